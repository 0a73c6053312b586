//! Caliper's tests and examples that concern memory, its query tool, caliper-reader and hatchet.
//!
//! The variables `CALIPER_BUILD` (a build directory of Caliper, for comparisons) and
//! `CALIPER_PYTHON` (a Python with caliper-reader and hatchet) are optional.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::program;
use super::row::{Outcome, Row};

/// A test in Python with the programs that it starts.
struct Suite {
    /// Module, class and method.
    test: &'static str,
    program: &'static str,
}

const SUITES: [Suite; 3] = [
    Suite { test: "test_basic.CaliperBasicTest.test_alloc", program: "ci_test_alloc.c" },
    Suite {
        test: "test_alloc_hooks.CaliperAllocServiceTest.test_alloc_hooks",
        program: "ci_test_alloc_hooks.c",
    },
    Suite {
        test: "test_alloc_hooks.CaliperAllocServiceTest.test_allocstats",
        program: "ci_test_macros.cpp",
    },
];

/// Programs that only have to run.
const PROGRAMS: [&str; 5] = [
    "examples/apps/cali-print-snapshot.c",
    "examples/apps/async_event.cpp",
    "examples/apps/cali-regionprofile.cpp",
    "examples/apps/cali-memtracking.cpp",
    "test/ci_app_tests/ci_test_thread.cpp",
];

/// The directory of tests in a checkout.
const TESTS: &str = "test/ci_app_tests";

/// Runs the tests and examples.
pub fn run(checkout: &Path, work: &Path) -> Vec<Row> {
    let bin = work.join("sdk/bin");
    // The tests clear the environment, so the command must be found beside the library.
    let linked = fs::create_dir_all(&bin)
        .and_then(|()| std::os::unix::fs::symlink(work.join("heaptide"), bin.join("heaptide")));
    if let Err(error) = linked {
        return vec![Row::not_compiled(TESTS, format!("{}: {error}", bin.display()))];
    }
    let mut rows: Vec<Row> = SUITES.iter().map(|suite| suite.row(checkout, work)).collect();
    rows.extend(PROGRAMS.iter().map(|source| example(checkout, work, source)));
    rows.extend(readers(checkout, work));
    rows
}

fn python() -> PathBuf {
    env::var_os("CALIPER_PYTHON").map_or_else(|| PathBuf::from("python3"), PathBuf::from)
}

/// Compiles a source file with the SDK, and returns the program, or what the compiler reported.
fn compile(checkout: &Path, work: &Path, source: &str) -> Result<PathBuf, String> {
    let stem = Path::new(source).file_stem().unwrap_or_default();
    let target = work.join(stem);
    let (compiler, standard) =
        if source.ends_with(".c") { ("cc", "-std=gnu11") } else { ("c++", "-std=c++17") };
    let sdk = work.join("sdk");
    let mut command = Command::new(compiler);
    command.args(["-g", "-w", standard, "-pthread", "-I"]).arg(sdk.join("include/compat"));
    command.arg(checkout.join(source)).arg("-o").arg(&target);
    command.arg("-L").arg(sdk.join("lib/compat")).arg("-L").arg(sdk.join("lib"));
    command.arg(format!("-Wl,-rpath,{}", sdk.join("lib").display()));
    command.args(["-Wl,--no-as-needed", "-lcaliper"]);
    let done = program::run(&mut command, work)?;
    if done.is_ok() { Ok(target) } else { Err(done.reason()) }
}

impl Suite {
    fn row(&self, checkout: &Path, work: &Path) -> Row {
        if let Err(why) = compile(checkout, work, &format!("{TESTS}/{}", self.program)) {
            return Row::not_compiled(self.test, why);
        }
        let mut command = Command::new(python());
        command.args(["-m", "unittest", self.test]).current_dir(work);
        command.env("PYTHONPATH", checkout.join(TESTS)).env("PYTHONDONTWRITEBYTECODE", "1");
        match program::run(&mut command, work) {
            Err(why) => Row::failed(self.test, why),
            Ok(done) if done.is_ok() => {
                Row::compared(self.test, Outcome::Yes, "its own assertions, by caliper-reader")
            }
            Ok(done) => Row::failed(self.test, done.reason()),
        }
    }
}

/// Returns why a program cannot be compiled with the headers that Caliper installs, if so.
fn reason(checkout: &Path, source: &str) -> &'static str {
    let text = fs::read_to_string(checkout.join(source)).unwrap_or_default();
    if text.contains("#include \"../../src/") {
        "includes private headers of Caliper: "
    } else {
        ""
    }
}

/// Compiles and runs an example.
fn example(checkout: &Path, work: &Path, source: &str) -> Row {
    let program = match compile(checkout, work, source) {
        Ok(program) => program,
        Err(why) => {
            let why = why.replace(&format!("{}/", checkout.display()), "");
            return Row::not_compiled(source, format!("{}{why}", reason(checkout, source)));
        }
    };
    match program::run(Command::new(&program).current_dir(work), work) {
        Ok(done) if done.is_ok() => {
            Row::compared(source, Outcome::NotApplicable, "prints times or addresses")
        }
        Ok(done) => Row::failed(source, done.reason()),
        Err(why) => Row::failed(source, why),
    }
}

/// The query of Caliper's page on memory that needs sizes.
const BY_SIZE: &str = "SELECT mem.alloc,alloc.total_size,count() \
                       GROUP BY mem.alloc,alloc.total_size WHERE mem.alloc FORMAT table";

/// What caliper-reader and hatchet have to find in a file.
const READ: &str = "import caliperreader, sys\n\
    reader = caliperreader.CaliperReader()\n\
    reader.read(sys.argv[1])\n\
    sizes = sorted(r['alloc.total_size'] for r in reader.records if 'mem.alloc' in r)\n\
    assert sizes == ['168', '168', '168', '400'], sizes\n";
const HATCHET: &str = "import hatchet, sys\n\
    frame = hatchet.GraphFrame.from_caliperreader(sys.argv[1]).dataframe\n\
    assert 'fooloop' in set(frame['name']), frame\n";

/// Lets Caliper's readers read what programs wrote.
fn readers(checkout: &Path, work: &Path) -> Vec<Row> {
    let mut rows = Vec::new();
    let file = work.join("hooks.cali");
    let written = compile(checkout, work, &format!("{TESTS}/ci_test_alloc_hooks.c"));
    let written = written.and_then(|program| {
        let mut command = Command::new(program);
        command.env("CALI_SERVICES_ENABLE", "alloc,sysalloc,trace,recorder");
        program::run(command.env("CALI_RECORDER_FILENAME", &file).current_dir(work), work)
    });
    if let Err(why) = written {
        return vec![Row::failed("cali-query", why)];
    }
    rows.push(query(&file, work));
    rows.push(reader("caliper-reader", READ, &file, work));
    let profile = work.join("profile.cali");
    let config = format!("hatchet-region-profile,alloc.stats,output={}", profile.display());
    let written = compile(checkout, work, &format!("{TESTS}/ci_test_macros.cpp"));
    let written = written.and_then(|program| {
        program::run(Command::new(program).args(["10", &config]).current_dir(work), work)
    });
    rows.push(match written {
        Ok(_) => reader("hatchet", HATCHET, &profile, work),
        Err(why) => Row::failed("hatchet", why),
    });
    rows
}

fn query(file: &Path, work: &Path) -> Row {
    let Some(build) = env::var_os("CALIPER_BUILD") else {
        let mut row = Row::failed("cali-query", "not built: set CALIPER_BUILD");
        (row.compiled, row.ran) = (Outcome::NotApplicable, Outcome::NotApplicable);
        return row;
    };
    let tool = PathBuf::from(build).join("src/tools/cali-query/cali-query");
    let mut command = Command::new(tool);
    match program::run(command.args(["-q", BY_SIZE]).arg(file), work) {
        Ok(done) if done.is_ok() => {
            let lines: Vec<String> = done
                .out
                .lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect();
            let expected = [
                "mem.alloc alloc.total_size count",
                "malloc 168 1",
                "calloc 168 1",
                "malloc 400 1",
                "realloc 168 1",
            ];
            let is_same = expected.iter().all(|row| lines.iter().any(|line| line == row));
            Row::compared("cali-query", is_same.into(), "sizes of ci_test_alloc_hooks")
        }
        Ok(done) => Row::failed("cali-query", done.reason()),
        Err(why) => Row::failed("cali-query", why),
    }
}

fn reader(name: &str, script: &str, file: &Path, work: &Path) -> Row {
    match program::run(Command::new(python()).args(["-c", script]).arg(file), work) {
        Ok(done) if done.is_ok() => {
            let mut row = Row::compared(name, Outcome::Yes, "finds the program's records");
            row.compiled = Outcome::NotApplicable;
            row
        }
        Ok(done) => Row::failed(name, done.reason()),
        Err(why) => Row::failed(name, why),
    }
}
