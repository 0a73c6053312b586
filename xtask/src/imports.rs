//! Checks the direction of imports: no cycles among the files of a crate, and no import from a
//! lower folder into a higher one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::problem::Problem;
use crate::rust_paths::{Module, Source};
use crate::text::Text;

/// The folders and files at the root of a crate, lowest first. Each may import only from earlier
/// ones. Crates that are not listed have no declared order.
const LAYERS: &[(&str, &[&str])] = &[
    ("crates/recorder", &["sys", "store", "event", "api"]),
    (
        "crates/advise",
        &[
            "finding",
            "timeline",
            "steady_growth",
            "material",
            "rule",
            "rules",
            "suppression",
            "advice",
        ],
    ),
    (
        "crates/analysis",
        &[
            "error",
            "text",
            "quantity",
            "binomial",
            "threads",
            "collections",
            "files",
            "model",
            "profile",
            "symbols",
            "tables",
            "trace",
            "recording",
            "attribution",
            "selection",
            "views",
        ],
    ),
    (
        "crates/command",
        &[
            "values",
            "growth",
            "error",
            "progress",
            "message",
            "project",
            "outcome",
            "terminal",
            "output",
            "damage",
            "selection",
            "target",
            "chosen",
            "select",
            "source",
            "snapshots",
            "missing_names",
            "names",
            "replayed",
            "dataset",
            "sql",
            "entry",
        ],
    ),
    (
        "crates/control",
        &[
            "error",
            "file_user",
            "lead",
            "control",
            "status",
            "actions",
            "targets",
            "profiles",
            "awaiting",
            "triggers",
            "programs",
            "snapshots",
            "mover",
        ],
    ),
    (
        "crates/cli",
        &[
            "private_dir",
            "library",
            "manual_tables",
            "manual_page",
            "monitors",
            "debuginfod",
            "options",
            "help",
            "ending",
            "settings",
            "launch",
            "output_name",
            "place",
            "joining",
            "helper",
            "guardian",
            "inserting",
            "search",
            "finish",
            "reports",
            "run",
            "sql",
            "dataset",
            "commands",
            "help",
            "words",
        ],
    ),
    ("crates/render", &["shared", "text", "json", "export", "chart", "page", "heat_map"]),
    (
        "crates/view",
        &[
            "error",
            "access",
            "catalog",
            "live",
            "store",
            "changes",
            "app",
            "data",
            "control",
            "findings",
            "owners",
            "lifetimes",
            "query",
            "source",
            "events",
            "routes",
            "server",
        ],
    ),
    ("crates/http", &["refusal", "access", "cache", "clients", "stream", "connections"]),
    (
        "crates/serve",
        &[
            "error",
            "family",
            "target",
            "watch",
            "numbers",
            "observed",
            "places",
            "own",
            "collector",
            "text",
            "readings",
            "profiles",
            "access",
            "app",
            "pprof",
            "otlp",
            "routes",
            "server",
        ],
    ),
    ("crates/top", &["error", "model", "source", "screen", "terminal", "run"]),
];

/// Returns all problems with the imports of crates.
pub fn check(texts: &[Text]) -> Vec<Problem> {
    Rules { layers: LAYERS }.check(texts)
}

/// The declared order of a crate.
struct Rules<'a> {
    layers: &'a [(&'a str, &'a [&'a str])],
}

/// An import of one file by another, with its line.
struct Import<'a> {
    from: &'a str,
    line: usize,
    to: &'a str,
}

impl Rules<'_> {
    fn check(&self, texts: &[Text]) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (name, files) in crates(texts) {
            let sources = sources(&files);
            let imports = imports(&sources);
            if let Some((_, order)) = self.layers.iter().find(|(of, _)| *of == name) {
                problems.extend(upward(&sources, &imports, order));
            }
            problems.extend(cycles(&imports));
        }
        problems
    }
}

/// Returns one problem per shortest cycle; of cycles that share a file, only the first.
fn cycles(imports: &[Import]) -> Vec<Problem> {
    let mut graph: BTreeMap<&str, Vec<&Import>> = BTreeMap::new();
    for import in imports {
        graph.entry(import.from).or_default().push(import);
    }
    let mut reported = BTreeSet::new();
    let mut problems = Vec::new();
    for start in graph.keys() {
        let Some(cycle) = shortest_cycle(&graph, start) else {
            continue;
        };
        let files: BTreeSet<&str> = cycle.iter().map(|import| import.from).collect();
        if reported.is_disjoint(&files) {
            let way: Vec<&str> = cycle.iter().map(|import| file_name(import.to)).collect();
            let way = way.join(", which imports ");
            let says = format!("imports {way}: a cycle");
            problems.push(Problem::new(start, cycle[0].line, says));
        }
        reported.extend(files);
    }
    problems
}

/// Returns imports of a higher layer, and files that are in no layer.
fn upward(sources: &BTreeMap<Module, Source>, imports: &[Import], order: &[&str]) -> Vec<Problem> {
    let top: BTreeMap<&str, &str> = sources
        .iter()
        .map(|(module, source)| (source.path, module.first().map_or("", String::as_str)))
        .collect();
    // The root of the crate is above all layers.
    let rank = |name: &str| match name {
        "" => Some(order.len()),
        name => order.iter().position(|layer| *layer == name),
    };
    let mut problems = Vec::new();
    for (path, name) in &top {
        if rank(name).is_none() {
            problems.push(Problem::new(path, 0, format!("`{name}` is in no layer of its crate")));
        }
    }
    for import in imports {
        let (from, to) = (top[import.from], top[import.to]);
        if let (Some(low), Some(high)) = (rank(from), rank(to))
            && low < high
        {
            let higher = if to.is_empty() { "the root of the crate" } else { to };
            let says = format!("imports {} upward: `{from}` is below {higher}", import.to);
            problems.push(Problem::new(import.from, import.line, says));
        }
    }
    problems
}

/// Returns the files of each crate, by its directory.
fn crates(texts: &[Text]) -> BTreeMap<&str, Vec<&Text>> {
    let root = |text: &Text| {
        let root =
            ["/src/lib.rs", "/src/main.rs"].iter().find_map(|end| text.path.strip_suffix(end));
        root.map(str::len)
    };
    let roots: BTreeSet<&str> =
        texts.iter().filter_map(|text| Some(&text.path[..root(text)?])).collect();
    let mut crates: BTreeMap<&str, Vec<&Text>> = BTreeMap::new();
    for text in texts.iter().filter(|text| text.path.ends_with(".rs")) {
        if let Some((directory, _)) = text.path.split_once("/src/")
            && let Some(root) = roots.get(directory)
        {
            crates.entry(root).or_default().push(text);
        }
    }
    crates
}

/// Returns the sources of a crate by module, excluding modules that only tests use.
fn sources<'a>(files: &[&'a Text]) -> BTreeMap<Module, Source<'a>> {
    let read = |text: &&'a Text| {
        let source = Source::read(&text.path, &text.content)?;
        Some((source.module.clone(), source))
    };
    let mut sources: BTreeMap<Module, Source> = files.iter().filter_map(read).collect();
    let of_tests: Vec<Module> =
        sources.values().flat_map(|source| source.test_modules.clone()).collect();
    sources.retain(|module, _| !of_tests.iter().any(|test| module.starts_with(test)));
    sources
}

/// Returns the imports between the files of a crate, each once, at its first line.
fn imports<'a>(sources: &BTreeMap<Module, Source<'a>>) -> Vec<Import<'a>> {
    let mut imports = Vec::new();
    for source in sources.values() {
        let mut seen = BTreeSet::new();
        for path in &source.paths {
            let Some(target) = path.target(|module| sources.contains_key(module)) else {
                continue;
            };
            let to = sources[&target].path;
            if to != source.path && seen.insert(to) {
                imports.push(Import { from: source.path, line: path.line, to });
            }
        }
    }
    imports
}

/// Returns the imports on a shortest path from a file back to itself.
fn shortest_cycle<'a>(
    graph: &BTreeMap<&str, Vec<&'a Import<'a>>>,
    start: &str,
) -> Option<Vec<&'a Import<'a>>> {
    let mut reached: BTreeMap<&str, &Import> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(at) = queue.pop_front() {
        for import in graph.get(at).into_iter().flatten() {
            if reached.contains_key(import.to) {
                continue;
            }
            reached.insert(import.to, import);
            if import.to == start {
                let mut way = vec![*import];
                while way[0].from != start {
                    way.insert(0, reached[way[0].from]);
                }
                return Some(way);
            }
            queue.push_back(import.to);
        }
    }
    None
}

fn file_name(path: &str) -> &str {
    path.split_once("/src/").map_or(path, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Rules = Rules { layers: &[] };

    fn said(rules: &Rules, files: &[(&str, &str)]) -> Vec<String> {
        let text = |(path, content): &(&str, &str)| Text {
            path: format!("c/src/{path}"),
            content: content.to_string(),
        };
        let texts: Vec<Text> = files.iter().map(text).collect();
        rules.check(&texts).iter().map(Problem::to_string).collect()
    }

    #[test]
    fn a_cycle_is_reported_once_with_its_path() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\nmod c;\nuse a::A;\n"),
            ("a.rs", "//! A.\n\nuse crate::b::B;\n"),
            ("b.rs", "use std::fmt;\nfn f() { super::c::g() }\n"),
            ("c.rs", "use crate::{b::{self, B}, a::A};\n"),
        ];
        let expected =
            ["tidy: c/src/a.rs:3: imports b.rs, which imports c.rs, which imports a.rs: a cycle"];
        assert_eq!(said(&NOTHING, &files), expected);
    }

    #[test]
    fn a_child_that_imports_from_a_parent_that_exports_it_is_a_cycle() {
        let files = [
            ("lib.rs", "mod a;\n"),
            ("a/mod.rs", "mod b;\nmod c;\npub use b::B;\n"),
            ("a/b.rs", "use super::c::C;\n"),
            ("a/c.rs", "use super::B;\n"),
        ];
        let expected = [
            "tidy: c/src/a/b.rs:1: imports a/c.rs, which imports a/mod.rs, which imports a/b.rs: \
             a cycle",
        ];
        assert_eq!(said(&NOTHING, &files), expected);
    }

    #[test]
    fn an_upward_import_is_reported_and_tests_may_import_all() {
        let layers = Rules { layers: &[("c", &["low", "high"])] };
        let files = [
            ("lib.rs", "mod low;\nmod high;\n#[cfg(test)]\nmod made;\npub use low::a::A;\n"),
            ("low/mod.rs", "pub mod a;\n"),
            ("low/a.rs", "fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::high::H;\n}\n"),
            ("high.rs", "use crate::low::{a::A};\n"),
            ("made.rs", "use crate::high::H;\n"),
        ];
        assert_eq!(said(&layers, &files), Vec::<String>::new());
        let mut upward = files;
        upward[2].1 = "use std::fmt;\n\nuse crate::high::H;\n";
        let expected =
            ["tidy: c/src/low/a.rs:3: imports c/src/high.rs upward: `low` is below high"];
        let found = said(&layers, &upward);
        assert_eq!(found[..1], expected);
        assert_eq!(found.len(), 2, "and a cycle: {found:?}");
        let root = [("lib.rs", "mod low;\npub fn f() {}\n"), ("low.rs", "use crate::f;\n")];
        let expected = [
            "tidy: c/src/low.rs:1: imports c/src/lib.rs upward: `low` is below the root of the crate",
        ];
        assert_eq!(said(&layers, &root), expected);
    }

    #[test]
    fn a_file_in_no_layer_is_reported() {
        let layers = Rules { layers: &[("c", &["low"])] };
        let files = [("lib.rs", "mod low;\nmod new;\n"), ("low.rs", ""), ("new.rs", "")];
        assert_eq!(
            said(&layers, &files),
            ["tidy: c/src/new.rs:0: `new` is in no layer of its crate"]
        );
    }
}
