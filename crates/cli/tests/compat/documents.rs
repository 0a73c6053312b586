//! The programs in the documents compile without a warning. Complete ones behave the same bare and
//! recorded, and their recordings have the documented names.

use crate::harness::{clean, programs, recorded, report, run, scratch};
use heaptide_fixtures::skips::skip;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Pages with programs that use the interface.
const PAGES: [&str; 3] = ["README.md", "docs/interface.md", "python/README.md"];

fn root() -> PathBuf {
    programs().join("../..")
}

/// Returns the fenced blocks of a language in all pages that begin with this text.
fn blocks(language: &str, beginning: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let read = |page: &str| fs::read_to_string(root().join(page)).expect(page);
    let texts = PAGES.map(read);
    let inside = texts.iter().flat_map(|text| text.split(&*fence).skip(1));
    let blocks = inside.filter_map(|rest| rest.split("```").next());
    blocks.filter(|block| block.starts_with(beginning)).map(str::to_string).collect()
}

/// Compiles a block, and links it if it is a complete program.
fn compile(block: &str, compiler: [&str; 2], source: &Path) -> Option<PathBuf> {
    fs::write(source, block).expect("a source");
    let whole = block.contains("int main(");
    let program = source.with_extension("program");
    let mut command = Command::new(compiler[0]);
    command.args([compiler[1], "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]);
    command.arg("-I").arg(root().join("include")).arg(source);
    if whole {
        command.arg("-o").arg(&program)
    } else {
        command.arg("-fsyntax-only")
    };
    let output = command.output().unwrap_or_else(|e| panic!("{}: {e}", compiler[0]));
    assert!(output.status.success(), "{block}\n{}", String::from_utf8_lossy(&output.stderr));
    whole.then_some(program)
}

/// Runs a program bare and recorded. It must have a scope `load` and a label `grid`.
fn is_content(command: impl Fn(Command) -> Command, place: &Path) {
    let bare = run(&mut command(clean(Command::new("env"))), place);
    assert_eq!((bare.status, &*bare.stderr), (0, ""), "{bare:?}");
    let recording = place.join("a.heaptide");
    let _ = fs::remove_dir_all(&recording);
    let outcome = run(&mut command(recorded(&recording, &[])), place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{outcome:?}");
    let report = report(&recording, place).to_string();
    for name in [r#""value":"load""#, r#""label":"grid""#] {
        assert!(report.contains(name), "no {name}");
    }
}

#[test]
fn programs_in_c_and_cpp() {
    let place = scratch("documents");
    let languages = [("c", ["cc", "-std=c99"], 2), ("cpp", ["c++", "-std=c++11"], 2)];
    for (language, compiler, count) in languages {
        let blocks = blocks(language, "#include \"heaptide");
        assert_eq!(blocks.len(), count, "programs in {language}");
        for (number, block) in blocks.iter().enumerate() {
            let source = place.join(format!("block{number}.{language}"));
            if let Some(program) = compile(block, compiler, &source) {
                let run = |mut command: Command| {
                    command.arg(&program);
                    command
                };
                is_content(run, &place);
            }
        }
    }
}

#[test]
fn programs_in_python() {
    let place = scratch("documents-python");
    if Command::new("python3").arg("--version").output().is_err() {
        return skip("python3");
    }
    let blocks = blocks("python", "import heaptide\n");
    // One block reads a recording and one records a part; `python/tests/with_command` tests these.
    assert_eq!(blocks.len(), 4);
    for block in blocks.iter().filter(|block| block.contains("grid")) {
        let run = |mut command: Command| {
            command.args(["python3", "-c", block]).env("PYTHONPATH", root().join("python"));
            command.env("PYTHONDONTWRITEBYTECODE", "1");
            command
        };
        is_content(run, &place);
    }
}
