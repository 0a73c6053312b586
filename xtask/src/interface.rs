//! Checks that the recorder's function table, its declarations and the document for users list the
//! same functions.

use crate::problem::Problem;
use crate::text::Text;

/// The table of functions that programs call.
pub const INTERFACE: &str = "crates/recorder/src/api/interface.rs";
/// The macro with their names.
const OPENING: &str = "macro_rules! interface_functions {";
/// The exported object with the table.
pub const TABLE: &str = "heaptide_interface";
/// The prefix of exported functions.
const PREFIX: &str = "heaptide_";
/// The declaration in C, which has the whole table.
const HEADER: &str = "include/heaptide.h";
/// The declaration in Rust, which may omit the last functions.
const CRATE: &str = "crates/heaptide/src/interface.rs";
/// The functions that Python looks up by name.
const PYTHON: &str = "python/heaptide/_interface.py";
/// The document that lists all functions.
const PAGE: &str = "docs/interface.md";

/// Returns problems of the interface.
pub fn check(texts: &[Text]) -> Vec<Problem> {
    let of = |path: &str| texts.iter().find(|text| text.path == path).map(|text| &*text.content);
    let Some(source) = of(INTERFACE) else {
        return Vec::new();
    };
    let fields = fields(source);
    let mut problems = Vec::new();
    if fields.is_empty() {
        problems.push(Problem::new(INTERFACE, 0, format!("has no `{OPENING}` with functions")));
    }
    if let Some(header) = of(HEADER) {
        let declared = pointers_in_c(header);
        problems.extend(difference(&fields, &declared).map(|says| Problem::new(HEADER, 0, says)));
    }
    if let Some(source) = of(CRATE) {
        let declared = pointers_in_rust(source);
        let known = &fields[..fields.len().min(declared.len())];
        problems.extend(difference(known, &declared).map(|says| Problem::new(CRATE, 0, says)));
    }
    let unknown = of(PYTHON).map(looked_up).unwrap_or_default();
    for name in unknown.iter().filter(|name| !fields.contains(name)) {
        problems.push(Problem::new(PYTHON, 0, format!("`{name}` is not in {INTERFACE}")));
    }
    let page = of(PAGE).unwrap_or("");
    for name in fields.iter().map(|field| exported(field)) {
        if !page.contains(&format!("`{name}`")) {
            problems.push(Problem::new(PAGE, 0, format!("does not name `{name}`")));
        }
    }
    problems
}

/// Returns the exported names: those in the table, and the table itself.
pub fn exports(source: &str) -> impl Iterator<Item = String> {
    fields(source).into_iter().map(exported).chain([TABLE.to_string()])
}

fn exported(field: &str) -> String {
    format!("{PREFIX}{field}")
}

/// Returns the names in the recorder's list of functions, in order.
fn fields(source: &str) -> Vec<&str> {
    inside(source, OPENING).lines().filter_map(|line| line.trim().strip_suffix(',')).collect()
}

/// Returns the function pointers in a C struct, in order.
fn pointers_in_c(source: &str) -> Vec<&str> {
    let inside = inside(source, "struct heaptide_interface {");
    inside.split("(*").skip(1).filter_map(|rest| Some(rest.split_once(")(")?.0)).collect()
}

/// Returns the function pointers in a Rust struct, in order.
fn pointers_in_rust(source: &str) -> Vec<&str> {
    let fields = inside(source, "struct Table {").lines().filter_map(|line| line.split_once(": "));
    fields.filter(|(_, is)| is.contains("fn(")).map(|(name, _)| name.trim()).collect()
}

/// Returns the text between an opening line and the line that closes it.
fn inside<'a>(source: &'a str, opening: &str) -> &'a str {
    source.split(opening).nth(1).and_then(|rest| rest.split("\n}").next()).unwrap_or("")
}

/// Returns the first strings of the tuples in Python's list of functions.
fn looked_up(source: &str) -> Vec<&str> {
    let list = source.split("\n_FUNCTIONS = [").nth(1).and_then(|rest| rest.split("\n]").next());
    let lines = list.unwrap_or("").lines().map(|line| line.trim().trim_start_matches('('));
    lines.filter_map(|line| line.strip_prefix('"')?.split('"').next()).collect()
}

/// Describes the first difference of two lists of fields.
fn difference(table: &[&str], declared: &[&str]) -> Option<String> {
    let longest = table.len().max(declared.len());
    let at = (0..longest).find(|&at| table.get(at) != declared.get(at))?;
    let shown = |list: &[&str]| list.get(at).map_or("nothing".to_string(), |f| format!("`{f}`"));
    Some(format!("field {at} is {}, {INTERFACE} has {}", shown(declared), shown(table)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "macro_rules! interface_functions {\n    ($with:ident) => {\n        $with! \
                          {\n            mark,\n            turn,\n        }\n    };\n}\n";
    const C: &str = "struct heaptide_interface {\n    uint32_t size;\n    void (*mark)(const char \
                     *n,\n          size_t l);\n    void (*turn)(int on);\n};\n";
    const RUST: &str = "struct Table {\n    size: u32,\n    mark: fn(Text, usize),\n}\n";
    const LIST: &str = "\n_FUNCTIONS = [\n    (\"mark\", None, []),\n    (\n        \"turn\",\n        \
                        None,\n    ),\n]\n";
    const NAMES: &str = "| `heaptide_mark` | `heaptide_turn` |";

    fn said(changed: &str, content: &str) -> Vec<String> {
        let texts =
            [(INTERFACE, SOURCE), (HEADER, C), (CRATE, RUST), (PYTHON, LIST), (PAGE, NAMES)].map(
                |(path, usual)| Text {
                    path: path.to_string(),
                    content: if path == changed { content } else { usual }.to_string(),
                },
            );
        check(&texts).iter().map(Problem::to_string).collect()
    }

    #[test]
    fn agreement_is_detected_in_each_language() {
        assert_eq!(said("", ""), Vec::<String>::new());
        let exported: Vec<String> = exports(SOURCE).collect();
        assert_eq!(exported, ["heaptide_mark", "heaptide_turn", "heaptide_interface"]);
    }

    #[test]
    fn a_field_of_another_order_is_found_in_c() {
        let swapped = C.replace("mark", "x").replace("turn", "mark").replace("(*x)", "(*turn)");
        let said = said(HEADER, &swapped);
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("field 0 is `turn`"), "{said:?}");
    }

    #[test]
    fn a_missing_field_is_found_in_c() {
        let shorter = C.replace("    void (*turn)(int on);\n", "");
        assert!(said(HEADER, &shorter)[0].contains("field 1 is nothing"));
    }

    #[test]
    fn a_declaration_in_rust_may_be_shorter_but_not_different() {
        assert!(said(CRATE, &RUST.replace("mark", "turn"))[0].contains("field 0 is `turn`"));
        let longer = RUST.replace("usize),\n}", "usize),\n    turn: fn(),\n    more: fn(),\n}");
        assert!(said(CRATE, &longer)[0].contains("field 2 is `more`"));
    }

    #[test]
    fn a_name_that_only_python_knows_is_found() {
        assert!(said(PYTHON, &LIST.replace("mark", "marks"))[0].contains("`marks`"));
    }

    #[test]
    fn a_function_that_the_page_lacks_is_found() {
        assert!(said(PAGE, "`heaptide_mark`")[0].contains("`heaptide_turn`"));
    }

    #[test]
    fn a_list_without_functions_is_found() {
        assert!(said(INTERFACE, "")[0].contains("with functions"));
    }
}
