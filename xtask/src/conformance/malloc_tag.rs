//! Tests and examples of malloc-tag, and its tools in Python on the statistics of its examples.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value};

use super::program::{self, Run};
use super::row::{Outcome, Row};

/// Fields that differ between two runs of one program.
const VOLATILE: [&str; 8] = [
    "PID",
    "TID",
    "tmStartProfiling",
    "tmCurrentSnapshot",
    "vmSizeNowBytes",
    "vmRSSNowBytes",
    "nVmSizeAtCreation",
    "nBytesMallocTagSelfUsage",
];
/// Allocations before `init()`, unknown to a linked recorder that starts there.
const BEFORE: &str = "nBytesAllocBeforeInit";
const PREFIX: &str = "tree_for_TID";

/// Runs the unit tests and the examples.
pub fn run(checkout: &Path, work: &Path) -> Vec<Row> {
    let tool = build_tool(checkout, work);
    let mut rows = unit_tests(checkout, work, tool.as_deref());
    for name in ["minimal", "multithread", "malloctag_and_tcmalloc"] {
        rows.push(example(checkout, work, tool.as_deref(), name));
    }
    rows
}

/// Runs the tools on the statistics of an example.
pub fn run_tools(checkout: &Path, work: &Path) -> Vec<Row> {
    let example = build(checkout, work, &["examples/minimal/minimal.cpp"], &[], None);
    let json = work.join("example.json");
    let made = example.and_then(|program| start(&program, work, &json));
    if let Err(why) = made.and_then(|run| if run.is_ok() { Ok(()) } else { Err(run.reason()) }) {
        return vec![Row::not_compiled("examples/minimal/minimal.cpp", why)];
    }
    let rules = checkout.join("tools/malloc_tag/mtag_postprocess/example_agg_rules.json");
    let rules = rules.to_string_lossy();
    [
        ("mtag_postprocess/postprocess.py", "unchanged.json", vec![]),
        ("mtag_postprocess/postprocess.py", "joined.json", vec!["-c", &rules]),
        ("mtag_json2dot/json2dot.py", "example.dot", vec![]),
    ]
    .into_iter()
    .map(|(script, target, options)| tool_row(checkout, work, &json, script, target, &options))
    .collect()
}

fn tool_row(
    checkout: &Path,
    work: &Path,
    json: &Path,
    script: &str,
    target: &str,
    options: &[&str],
) -> Row {
    let test = format!("tools/malloc_tag/{script} -o {target}");
    let made = work.join(target);
    let mut command = Command::new("python3");
    command.arg(checkout.join("tools/malloc_tag").join(script)).arg("-o").arg(&made);
    command.args(options).arg(json).env("PYTHONPATH", checkout.join("tools"));
    let same = match program::run(&mut command, work) {
        Err(why) => return Row { compiled: Outcome::NotApplicable, ..Row::failed(&test, why) },
        Ok(run) if !run.is_ok() || !made.is_file() => {
            return Row { compiled: Outcome::NotApplicable, ..Row::failed(&test, run.reason()) };
        }
        Ok(_) if target == "unchanged.json" => {
            let same = read(json)
                .and_then(|from| Ok(without_weights(from) == without_weights(read(&made)?)));
            Outcome::from(same.unwrap_or(false))
        }
        Ok(_) => Outcome::NotApplicable,
    };
    let why = match same {
        Outcome::NotApplicable => "reads the statistics of `examples/minimal`",
        _ => "compared with the input, as in the tool's own test",
    };
    Row { compiled: Outcome::NotApplicable, ..Row::compared(&test, same, why) }
}

/// Removes the weights, which the tool rounds differently.
fn without_weights(mut value: Value) -> Value {
    if let Value::Object(fields) = &mut value {
        fields.remove("nWeightPercentage");
        fields.values_mut().for_each(|field| *field = without_weights(field.take()));
    }
    value
}

/// Builds malloc-tag's own library, for comparison.
fn build_tool(checkout: &Path, work: &Path) -> Option<PathBuf> {
    let place = work.join("tool");
    fs::create_dir_all(&place).ok()?;
    let library = place.join("libmalloc_tag.so");
    let mut command = Command::new("c++");
    command.args(["-shared", "-fPIC", "-std=c++14", "-O0", "-g", "-pthread", "-w", "-I"]);
    command.arg(checkout.join("include")).arg("-o").arg(&library);
    for name in ["malloc_tag", "malloc_tree", "malloc_tree_registry", "malloc_tree_node"] {
        command.arg(checkout.join("src").join(name).with_extension("cpp"));
    }
    program::run(&mut command, work).ok()?.is_ok().then_some(place)
}

/// Compiles a program with the SDK, or with the tool.
fn build(
    checkout: &Path,
    work: &Path,
    sources: &[&str],
    libraries: &[&str],
    tool: Option<&Path>,
) -> Result<PathBuf, String> {
    let sdk = work.join("sdk");
    // The name of the program is that of its thread, which tests look up.
    let source = sources.last().map_or("", |source| source.trim_end_matches(".cpp"));
    let name = if sources.len() > 1 { "unit_tests" } else { source };
    let name = name.rsplit('/').next().unwrap_or(name);
    let place = work.join(if tool.is_some() { "with-tool" } else { "with-sdk" });
    fs::create_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    let target = place.join(name);
    let (include, places) = match tool {
        Some(tool) => (checkout.join("include"), vec![tool.to_owned()]),
        None => (sdk.join("include/compat"), vec![sdk.join("lib/compat"), sdk.join("lib")]),
    };
    let mut command = Command::new("c++");
    command.args(["-std=c++14", "-O0", "-g", "-pthread", "-w", "-I"]).arg(include);
    command.args(sources.iter().map(|source| checkout.join(source))).arg("-o").arg(&target);
    for place in places {
        let place = place.display();
        command.arg(format!("-L{place}")).arg(format!("-Wl,-rpath,{place}"));
    }
    command.arg("-lmalloc_tag").args(libraries);
    let run = program::run(&mut command, work)?;
    if run.is_ok() { Ok(target) } else { Err(run.reason()) }
}

fn start(program: &Path, work: &Path, json: &Path) -> Result<Run, String> {
    let mut command = Command::new(program);
    command.env_clear().env("MTAG_STATS_OUTPUT_JSON", json).env("TMPDIR", work);
    program::run(&mut command, work)
}

fn unit_tests(checkout: &Path, work: &Path, tool: Option<&Path>) -> Vec<Row> {
    let names = ["snapshots", "toomanylevels", "toomanynodes", "toomanysiblings"];
    let mut sources = vec!["tests/main.cpp".to_owned()];
    sources.extend(names.map(|name| format!("tests/{name}.cpp")));
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    let json = work.join("tests.json");
    let run = |tool: Option<&Path>| {
        start(&build(checkout, work, &sources, &["-lgtest"], tool)?, work, &json)
    };
    let own = match run(None) {
        Ok(run) => run,
        Err(why) => return vec![Row::not_compiled("tests/*.cpp", why)],
    };
    let other = tool.and_then(|tool| run(Some(tool)).ok());
    let tests = own.out.lines().filter_map(|line| line.strip_prefix("[ RUN      ] "));
    let passes = |run: &Run, test: &str| run.out.contains(&format!("[       OK ] {test} "));
    let rows = tests.map(|test| {
        if !passes(&own, test) {
            return Row::failed(test, own.reason());
        }
        match &other {
            Some(other) => Row::compared(
                test,
                passes(other, test).into(),
                format!("all tests: {:.2} s, with malloc-tag {:.2} s", own.seconds, other.seconds),
            ),
            None => Row::compared(test, Outcome::NotApplicable, "malloc-tag did not build"),
        }
    });
    let rows: Vec<Row> = rows.collect();
    if rows.is_empty() { vec![Row::failed("tests/*.cpp", own.reason())] } else { rows }
}

fn example(checkout: &Path, work: &Path, tool: Option<&Path>, name: &str) -> Row {
    let test = format!("examples/{name}/{name}.cpp");
    let libraries: &[&str] = if name.contains("tcmalloc") { &["-ltcmalloc"] } else { &[] };
    let json = work.join("example.json");
    let run = |tool: Option<&Path>| -> Result<Value, Row> {
        let program = build(checkout, work, &[&*test], libraries, tool)
            .map_err(|why| Row::not_compiled(&test, why))?;
        let run = start(&program, work, &json).map_err(|why| Row::failed(&test, why))?;
        if !run.is_ok() {
            return Err(Row::failed(&test, run.reason()));
        }
        read(&json).map_err(|why| Row::failed(&test, why))
    };
    let own = match run(None) {
        Ok(own) => own,
        Err(row) => return row,
    };
    let Some(Ok(other)) = tool.map(|tool| run(Some(tool))) else {
        return Row::compared(&test, Outcome::NotApplicable, "malloc-tag did not build");
    };
    match difference("", &comparable(&own), &comparable(&other)) {
        None => Row::compared(&test, Outcome::Yes, "all counters of all scopes are equal"),
        Some(what) => Row::compared(&test, Outcome::No, format!("{what}; {}", cause(name))),
    }
}

/// Why an example has other counters than with malloc-tag.
fn cause(name: &str) -> &'static str {
    match name {
        "multithread" => {
            "malloc-tag counts frees of null pointers at the end of a thread, and its own reading \
             of /proc"
        }
        "malloctag_and_tcmalloc" => {
            "malloc-tag does not see calls of `new` that tcmalloc serves without malloc"
        }
        _ => "unexplained",
    }
}

fn read(json: &Path) -> Result<Value, String> {
    let text = fs::read_to_string(json).map_err(|e| format!("no statistics: {e}"))?;
    serde_json::from_str(&text).map_err(|e| format!("the statistics are not JSON: {e}"))
}

/// Returns statistics without what differs between runs, with threads by name.
fn comparable(statistics: &Value) -> Value {
    let mut fields = Map::new();
    for (key, value) in statistics.as_object().into_iter().flatten() {
        if VOLATILE.contains(&&**key) || key == BEFORE {
            continue;
        }
        let name = value["ThreadName"].as_str().filter(|_| key.starts_with(PREFIX));
        let mut value = value.clone();
        if let Some(tree) = value.as_object_mut().filter(|_| name.is_some()) {
            tree.retain(|key, _| !VOLATILE.contains(&&**key));
        }
        fields.insert(name.unwrap_or(key).to_owned(), value);
    }
    Value::Object(fields)
}

/// Describes the first difference of two statistics.
fn difference(path: &str, own: &Value, other: &Value) -> Option<String> {
    match (own, other) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
            let mut keys = keys.map(|key| (format!("{path}/{key}"), a.get(key), b.get(key)));
            keys.find_map(|(path, own, other)| {
                difference(&path, own.unwrap_or(&Value::Null), other.unwrap_or(&Value::Null))
            })
        }
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => None,
        _ if own == other => None,
        _ => Some(format!("{path}: {own}, not {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_difference_is_described() {
        let tree = |bytes: u64| {
            json!({"PID": 1, "tree_for_TID7": {"TID": 7, "ThreadName": "a",
            "scope_a": {"nBytesSelfAllocated": bytes}}})
        };
        let of = |bytes| comparable(&tree(bytes));
        assert_eq!(difference("", &of(4), &of(4)), None);
        let text = difference("", &of(4), &of(5)).expect("a difference");
        assert_eq!(text, "/a/scope_a/nBytesSelfAllocated: 4, not 5");
        assert!(difference("", &of(4), &json!({})).is_some());
    }
}
