//! Checks the style rules of the repository.

use std::collections::BTreeSet;

use crate::problem::Problem;
use crate::text::Text;
use crate::{english, imports, interface, library, links, settings};

/// The widest line of a source, in characters.
pub const COLUMNS: usize = 100;
/// The longest source, in lines: a reader finds one thing in one file.
const LINES: usize = 800;
/// Files that commands wrote, with scripts of others in them.
const WRITTEN: &str = "docs/gallery/";
/// Suffixes of sources.
const SOURCES: &[&str] = &[".rs", ".py", ".c", ".cpp", ".h", ".sh"];
/// The document that explains every variable.
const VARIABLES_PAGE: &str = settings::PAGE;

/// Files outside of `Cargo.toml` that contain the version of the release.
const VERSIONED: &[&str] = &[
    "CITATION.cff",
    "docs/install.md",
    "examples/ci/gitlab-ci.yml",
    "examples/serve/kubernetes.yaml",
    "pyproject.toml",
    "python/pyproject.toml",
];

/// The document that lists the interposed functions.
const HOOKS_PAGE: &str = "docs/hooks.md";

/// Returns all problems of these texts.
pub fn check(texts: &[Text]) -> Vec<Problem> {
    let rules = [
        first_line,
        columns,
        words,
        danger,
        length,
        dependencies,
        version,
        integers,
        english::check,
    ];
    let mut problems: Vec<Problem> =
        texts.iter().flat_map(|text| rules.iter().flat_map(|rule| rule(text))).collect();
    problems.extend(links::check(texts));
    problems.extend(variables(texts));
    problems.extend(settings::check(texts));
    problems.extend(hooks(texts));
    problems.extend(interface::check(texts));
    problems.extend(imports::check(texts));
    problems
}

/// The first line of a source describes the purpose of the file.
fn first_line(text: &Text) -> Vec<Problem> {
    if !text.ends_with(SOURCES) {
        return Vec::new();
    }
    let first = text.content.lines().find(|line| !line.starts_with("#!")).unwrap_or("");
    let openings: &[&str] = match text.path.rsplit('.').next() {
        Some("rs") => &["//! "],
        Some("py") => &["\"\"\""],
        Some("sh") => &["# "],
        _ => &["//! ", "// "],
    };
    if openings.iter().any(|opening| first.starts_with(opening)) {
        return Vec::new();
    }
    let says = format!("starts with `{first}`, expected `{}` and what it is for", openings[0]);
    vec![Problem::new(&text.path, 1, says)]
}

/// Examples and manifests name the version that this tree builds.
fn version(text: &Text) -> Vec<Problem> {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    if !VERSIONED.contains(&text.path.as_str()) || text.content.contains(VERSION) {
        return Vec::new();
    }
    vec![Problem::new(&text.path, 1, format!("does not contain the version, {VERSION}"))]
}

/// Headers include `<cstdint>` for its types: other headers of GCC 13 and later do not.
fn integers(text: &Text) -> Vec<Problem> {
    let is_integer = |name: &str| {
        let name = name.strip_prefix('u').unwrap_or(name);
        let kind = name.strip_prefix("int").and_then(|rest| rest.split_once("_t"));
        kind.is_some_and(|(bits, _)| matches!(bits, "8" | "16" | "32" | "64" | "ptr" | "max"))
    };
    let uses = text.content.split("std::").skip(1).any(is_integer);
    if !text.path.starts_with("include/") || !uses || text.content.contains("<cstdint>") {
        return Vec::new();
    }
    vec![Problem::new(&text.path, 1, "uses integers of `std` without `#include <cstdint>`")]
}

/// Lines must fit on a screen. The formatter decides about Rust code; in other languages a line
/// with a string may have no place to break.
fn columns(text: &Text) -> Vec<Problem> {
    if !text.ends_with(SOURCES) {
        return Vec::new();
    }
    let rust = text.path.ends_with(".rs");
    let wide = |line: &str| line.chars().count();
    let comment = |line: &str| line.trim_start().starts_with(if rust { "//" } else { "/" });
    text.lines()
        .filter(|(_, line)| comment(line) || !(rust || line.contains('"')))
        .filter(|(_, line)| wide(line) > COLUMNS)
        .map(|(n, line)| {
            Problem::new(&text.path, n, format!("{} columns, the limit is {COLUMNS}", wide(line)))
        })
        .collect()
}

/// Rejects words that must not stay in a finished source, and paths of one machine.
fn words(text: &Text) -> Vec<Problem> {
    // Split, so that this file passes its own check.
    let forbidden = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("to", "do!("),
        concat!("unimpl", "emented!("),
        concat!("db", "g!("),
        concat!("..", "/shared"),
        concat!("/wo", "rk/"),
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
    ];
    let mut problems = Vec::new();
    if text.path.starts_with(WRITTEN) {
        return problems;
    }
    for (n, line) in text.lines() {
        for word in forbidden.iter().filter(|word| line.contains(**word)) {
            problems.push(Problem::new(&text.path, n, format!("`{word}` does not belong here")));
        }
    }
    problems
}

/// Code that the compiler cannot check is allowed only in the in-process crates, in the file with
/// the program's interface for Rust, in the files that start programs and attach to them, and in
/// test programs.
fn danger(text: &Text) -> Vec<Problem> {
    const KEYWORD: &str = concat!("un", "safe");
    let places = [
        "crates/recorder/",
        "crates/preload/",
        "crates/embedded/",
        "crates/heaptide/src/interface.rs",
        "crates/heaptide/src/task.rs",
        "crates/supervise/src/exec.rs",
        "crates/attach/src/ptrace.rs",
        "tests/programs/",
    ];
    let allowed = places.iter().any(|place| text.path.starts_with(place));
    if !text.path.ends_with(".rs") || allowed {
        return Vec::new();
    }
    let follows = [" {", " fn", " impl", " extern", " trait", "("];
    text.lines()
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .filter(|(_, line)| follows.iter().any(|f| line.contains(&format!("{KEYWORD}{f}"))))
        .map(|(n, _)| Problem::new(&text.path, n, format!("`{KEYWORD}` outside of the recorder")))
        .collect()
}

fn length(text: &Text) -> Vec<Problem> {
    let lines = text.content.lines().count();
    if !text.ends_with(SOURCES) || lines <= LINES {
        return Vec::new();
    }
    vec![Problem::new(&text.path, lines, format!("{lines} lines, the limit is {LINES}; split it"))]
}

/// Each dependency has a comment on its purpose, on its line or the line above. The workspace's
/// table has only versions; the members that use it have the comments.
fn dependencies(text: &Text) -> Vec<Problem> {
    if !text.path.ends_with("Cargo.toml") {
        return Vec::new();
    }
    let (mut problems, mut inside, mut above) = (Vec::new(), false, "");
    for (n, line) in text.lines() {
        if line.starts_with('[') {
            inside = line.contains("dependencies") && line != "[workspace.dependencies]";
        } else if inside
            && line.starts_with(|c: char| c.is_ascii_alphanumeric())
            && !line.contains(" # ")
            && !above.starts_with('#')
        {
            problems.push(Problem::new(&text.path, n, "a dependency without `# what it is for`"));
        }
        above = line;
    }
    problems
}

/// Every variable that the recorder or the command reads must be documented.
fn variables(texts: &[Text]) -> Vec<Problem> {
    let page = texts.iter().find(|text| text.path == VARIABLES_PAGE);
    let explained = page.map(|text| variable_names(&text.content)).unwrap_or_default();
    let read = |text: &&Text| {
        let is_of_tests = ["crates/fixtures/", "crates/harness/"]
            .iter()
            .any(|directory| text.path.starts_with(directory));
        text.path.starts_with("crates/") && text.path.contains("/src/") && !is_of_tests
    };
    let mut problems = Vec::new();
    for text in texts.iter().filter(read) {
        for name in variable_names(&text.content).difference(&explained) {
            let says = format!("`{name}` is not explained in {VARIABLES_PAGE}");
            problems.push(Problem::new(&text.path, 0, says));
        }
    }
    problems
}

/// Every interposed function must be in the document that lists them.
fn hooks(texts: &[Text]) -> Vec<Problem> {
    let of = |path: &str| texts.iter().find(|text| text.path == path);
    let Some(table) = of(library::HOOKS) else {
        return Vec::new();
    };
    let page = of(HOOKS_PAGE).map_or("", |text| &text.content);
    let names = library::hook_names(&table.content);
    let missing = names.iter().filter(|name| !page.contains(&format!("`{name}`")));
    missing.map(|name| Problem::new(HOOKS_PAGE, 0, format!("does not list `{name}`"))).collect()
}

/// Returns names of the form `HEAPTIDE_…`.
fn variable_names(content: &str) -> BTreeSet<String> {
    const PREFIX: &str = "HEAPTIDE_";
    let of_a_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    content
        .match_indices(PREFIX)
        .map(|(at, _)| content[at..].chars().take_while(|c| of_a_name(*c)).collect::<String>())
        .filter(|name| name.len() > PREFIX.len())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str, content: &str) -> Text {
        Text { path: path.to_string(), content: content.to_string() }
    }

    fn said(problems: Vec<Problem>) -> Vec<String> {
        problems.iter().map(Problem::to_string).collect()
    }

    #[test]
    fn the_repository_keeps_the_rules() {
        let texts = crate::text::all(&crate::root()).expect("the sources can be listed");
        assert!(texts.iter().any(|text| text.path == "xtask/src/tidy.rs"));
        assert_eq!(said(check(&texts)), Vec::<String>::new());
    }

    #[test]
    fn a_source_without_a_first_line_is_found() {
        assert_eq!(first_line(&text("a.rs", "use std::fmt;\n")).len(), 1);
        assert_eq!(first_line(&text("a.rs", "//! What it is for.\n")).len(), 0);
        assert_eq!(first_line(&text("a.py", "#!/usr/bin/python3\nimport os\n")).len(), 1);
        assert_eq!(
            first_line(&text("a.py", "#!/usr/bin/python3\n\"\"\"What for.\"\"\"\n")).len(),
            0
        );
        assert_eq!(first_line(&text("a.c", "#include <stdio.h>\n")).len(), 1);
    }

    #[test]
    fn a_file_of_another_version_is_found() {
        let current = format!("version = \"{}\"\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(version(&text("pyproject.toml", &current)).len(), 0);
        assert_eq!(version(&text("pyproject.toml", "version = \"0.0.1\"\n")).len(), 1);
        assert_eq!(version(&text("docs/format.md", "\"heaptide\":\"0.0.1\"\n")).len(), 0);
    }

    #[test]
    fn integers_without_their_header_are_found() {
        let uses = "std::uint32_t scope = 0;\n";
        assert_eq!(integers(&text("include/a.hpp", uses)).len(), 1);
        let includes = format!("#include <cstdint>\n{uses}");
        assert_eq!(integers(&text("include/a.hpp", &includes)).len(), 0);
        assert_eq!(integers(&text("include/a.h", "uint32_t scope = 0;\n")).len(), 0);
        assert_eq!(integers(&text("include/a.hpp", "std::internal(out);\n")).len(), 0);
    }

    #[test]
    fn a_wide_line_is_found_and_counted_in_characters() {
        let wide = "é".repeat(COLUMNS);
        assert_eq!(columns(&text("a.c", &wide)).len(), 0);
        assert_eq!(columns(&text("a.c", &format!("{wide}x"))).len(), 1);
        assert_eq!(columns(&text("a.c", &format!("\"{wide}\""))).len(), 0);
        assert_eq!(columns(&text("a.rs", &format!("{wide}x"))).len(), 0);
        assert_eq!(columns(&text("a.rs", &format!("    // \"{wide}\""))).len(), 1);
        assert_eq!(columns(&text("a.md", &format!("{wide}x"))).len(), 0);
    }

    #[test]
    fn forbidden_words_are_found() {
        let line = format!("let x = {}x);", concat!("db", "g!("));
        assert_eq!(words(&text("a.rs", &line)).len(), 1);
        assert_eq!(words(&text("a.md", concat!("see ..", "/shared/x"))).len(), 1);
        assert_eq!(words(&text("a.rs", "let x = 1;")).len(), 0);
    }

    #[test]
    fn unchecked_code_is_found_outside_the_recorder() {
        let block = concat!("let x = un", "safe { *p };");
        assert_eq!(danger(&text("crates/cli/src/a.rs", block)).len(), 1);
        assert_eq!(danger(&text("crates/supervise/src/start.rs", block)).len(), 1);
        assert_eq!(danger(&text("crates/recorder/src/a.rs", block)).len(), 0);
        assert_eq!(danger(&text("crates/supervise/src/exec.rs", block)).len(), 0);
        assert_eq!(danger(&text("crates/cli/src/a.rs", "#![forbid(unsafe_code)]")).len(), 0);
    }

    #[test]
    fn a_long_file_is_found() {
        assert_eq!(length(&text("a.rs", &"x\n".repeat(LINES + 1))).len(), 1);
        assert_eq!(length(&text("a.rs", &"x\n".repeat(LINES))).len(), 0);
    }

    #[test]
    fn a_dependency_without_a_comment_is_found() {
        let bare = "[dependencies]\nserde = \"1\"\n";
        let beside = "[dependencies]\nserde = \"1\" # JSON\n";
        let above = "[dev-dependencies]\n# JSON\nserde = \"1\"\n";
        assert_eq!(dependencies(&text("Cargo.toml", bare)).len(), 1);
        assert_eq!(dependencies(&text("Cargo.toml", beside)).len(), 0);
        assert_eq!(dependencies(&text("Cargo.toml", above)).len(), 0);
        assert_eq!(dependencies(&text("Cargo.toml", "[package]\nname = \"x\"\n")).len(), 0);
        let table = "[workspace.dependencies]\nserde = \"1\"\n";
        assert_eq!(dependencies(&text("Cargo.toml", table)).len(), 0);
    }

    #[test]
    fn an_unlisted_hook_is_found() {
        let table = "\nhooks! {\n    allocate malloc = a;\n    plain free = f;\n}\n";
        let texts = [text(library::HOOKS, table), text(HOOKS_PAGE, "| `malloc` | x |")];
        let said = said(hooks(&texts));
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("`free`"), "{said:?}");
    }

    #[test]
    fn an_unexplained_variable_is_found() {
        let texts = [
            text("crates/cli/src/a.rs", "env(\"HEAPTIDE_OUTPUT\"); env(\"HEAPTIDE_OTHER\")"),
            text(VARIABLES_PAGE, "`HEAPTIDE_OUTPUT`: where"),
        ];
        let said = said(variables(&texts));
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("`HEAPTIDE_OTHER`"), "{said:?}");
    }
}
