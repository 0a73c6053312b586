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
    rows.extend(EXAMPLES.iter().map(|it| example(checkout, work, tool.as_deref(), it)));
    rows
}

/// Runs the tools on the statistics of an example.
pub fn run_tools(checkout: &Path, work: &Path) -> Vec<Row> {
    let example = build(checkout, work, "minimal", &["examples/minimal/minimal.cpp"], &[], None);
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

/// Compiles a program with the SDK, or with the tool. Its name is that of its thread, which tests
/// look up.
fn build(
    checkout: &Path,
    work: &Path,
    name: &str,
    sources: &[&str],
    libraries: &[&str],
    tool: Option<&Path>,
) -> Result<PathBuf, String> {
    let sdk = work.join("sdk");
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
        start(&build(checkout, work, "unit_tests", &sources, &["-lgtest"], tool)?, work, &json)
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

/// A thread-local variable. For each thread, the C library allocates and frees memory by the number
/// of libraries and programs that have one; with Heaptide, there is one more.
const THREAD_LOCAL: &str = "thread_local int of_the_program;";
/// Operators `new` and `delete` that call malloc and free. With tcmalloc's own, malloc-tag sees no
/// call of `new`. Initializers of tcmalloc must not call malloc.
const OPERATORS: &str = r#"
#include <cstdlib>
#include <new>
extern "C" void* tc_new(std::size_t);
static bool started;
__attribute__((constructor)) static void start() { started = true; }
void* operator new(std::size_t size) { return started ? std::malloc(size) : tc_new(size); }
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
"#;

/// An example, and how it is compared.
struct Example {
    name: &'static str,
    libraries: &'static [&'static str],
    /// Source that is compiled into it with malloc-tag, to make it comparable.
    addition: Option<&'static str>,
    /// Each counter has to be equal in some of this many runs.
    runs: usize,
    /// Parts of the names of fields that are not compared.
    omitted: &'static [&'static str],
    /// What equality means.
    equality: &'static str,
}

const EXAMPLES: [Example; 3] = [
    Example {
        name: "minimal",
        libraries: &[],
        addition: None,
        runs: 1,
        omitted: &[],
        equality: "all counters of all scopes are equal",
    },
    Example {
        name: "multithread",
        libraries: &[],
        addition: Some(THREAD_LOCAL),
        // Threads get blocks of other usable sizes in each run, so that percentages of the sum
        // differ, too.
        runs: 5,
        omitted: &["nWeightPercentage"],
        equality: "all counters of all scopes are equal in some of 5 runs, with the same number of \
                   modules that have thread-local variables; sizes of blocks differ between runs",
    },
    Example {
        name: "malloctag_and_tcmalloc",
        libraries: &["-ltcmalloc"],
        addition: Some(OPERATORS),
        runs: 1,
        omitted: &["Freed", "_free", "NetTracked"],
        equality: "calls and bytes of all allocations are equal, with a `new` that malloc-tag \
                   sees; frees are not compared, because malloc-tag counts those of its own map",
    },
];

fn example(checkout: &Path, work: &Path, tool: Option<&Path>, example: &Example) -> Row {
    let &Example { name, libraries, .. } = example;
    let test = format!("examples/{name}/{name}.cpp");
    let json = work.join("example.json");
    let addition = work.join("addition.cpp");
    let run = |tool: Option<&Path>| -> Result<Vec<Value>, Row> {
        let failed = |why| Row::failed(&test, why);
        let mut sources = vec![&*test];
        if let Some(text) = example.addition.filter(|_| tool.is_some()) {
            fs::write(&addition, text).map_err(|e| failed(e.to_string()))?;
            sources.push(addition.to_str().unwrap_or_default());
        }
        let program = build(checkout, work, name, &sources, libraries, tool)
            .map_err(|why| Row::not_compiled(&test, why))?;
        let once = |_| {
            let run = start(&program, work, &json).map_err(failed)?;
            if run.is_ok() { read(&json).map_err(failed) } else { Err(failed(run.reason())) }
        };
        let runs = (0..example.runs).map(once);
        runs.map(|value| Ok(comparable(&value?, example.omitted))).collect()
    };
    let own = match run(None) {
        Ok(own) => own,
        Err(row) => return row,
    };
    let Some(Ok(other)) = tool.map(|tool| run(Some(tool))) else {
        return Row::compared(&test, Outcome::NotApplicable, "malloc-tag did not build");
    };
    match difference("", &own.iter().collect::<Vec<_>>(), &other.iter().collect::<Vec<_>>()) {
        None => Row::compared(&test, Outcome::Yes, example.equality),
        Some(what) => Row::compared(&test, Outcome::No, what),
    }
}

fn read(json: &Path) -> Result<Value, String> {
    let text = fs::read_to_string(json).map_err(|e| format!("no statistics: {e}"))?;
    serde_json::from_str(&text).map_err(|e| format!("the statistics are not JSON: {e}"))
}

/// Returns statistics without what differs between runs and without fields whose names contain one
/// of `omitted`, with threads by name.
fn comparable(statistics: &Value, omitted: &[&str]) -> Value {
    let mut fields = Map::new();
    for (key, value) in statistics.as_object().into_iter().flatten() {
        let name = value["ThreadName"].as_str().filter(|_| key.starts_with(PREFIX));
        fields.insert(name.unwrap_or(key).to_owned(), value.clone());
    }
    let mut value = Value::Object(fields);
    retain(&mut value, &|key| {
        let is_omitted = omitted.iter().any(|part| key.contains(part));
        !is_omitted && !VOLATILE.contains(&key) && key != BEFORE
    });
    value
}

fn retain(value: &mut Value, keep: &impl Fn(&str) -> bool) {
    if let Value::Object(fields) = value {
        fields.retain(|key, _| keep(key));
        fields.values_mut().for_each(|field| retain(field, keep));
    }
}

/// Describes the first field that has no value in common in the runs of both.
fn difference(path: &str, own: &[&Value], other: &[&Value]) -> Option<String> {
    let objects = |runs: &[&Value]| runs.iter().all(|run| run.is_object());
    if objects(own) && objects(other) {
        let fields = own.iter().chain(other).filter_map(|run| run.as_object());
        let mut keys: Vec<&String> = fields.flat_map(|fields| fields.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        return keys.iter().find_map(|key| {
            difference(&format!("{path}/{key}"), &field(own, key), &field(other, key))
        });
    }
    let are_equal = |a: &Value, b: &Value| a == b || a.is_number() && a.as_f64() == b.as_f64();
    let is_common = |a: &&Value| other.iter().any(|b| are_equal(a, b));
    (!own.iter().any(is_common)).then(|| format!("{path}: {}, not {}", own[0], other[0]))
}

fn field<'a>(runs: &[&'a Value], key: &str) -> Vec<&'a Value> {
    runs.iter().map(|run| &run[key]).collect()
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
        let of = |bytes| comparable(&tree(bytes), &[]);
        let (four, five) = (of(4), of(5));
        assert_eq!(difference("", &[&four], &[&four]), None);
        assert_eq!(difference("", &[&four], &[&five, &four]), None, "in one run");
        let text = difference("", &[&four], &[&five]).expect("a difference");
        assert_eq!(text, "/a/scope_a/nBytesSelfAllocated: 4, not 5");
        assert!(difference("", &[&four], &[&json!({})]).is_some());
    }
}
