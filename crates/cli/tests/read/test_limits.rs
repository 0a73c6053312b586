//! Limits in the tests of C and C++ programs: met limits print nothing, exceeded ones fail the test
//! with the allocating stacks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Guest, clean, programs, recorded, run, scratch};

#[test]
fn limits_of_statements_in_c() {
    let place = scratch("test-limits-c");
    let program = Guest::read("api_limits.c").build("api_limits.c", &["-std=c99", "-Wextra"]);
    let recording = place.join("a.heaptide");
    let recorded = |words: &[&str]| {
        let mut command = recorded(&recording, &["--force"]);
        run(command.arg(&program).args(words), &place)
    };
    let kept = recorded(&[]);
    assert_eq!((kept.status, &*kept.stdout, &*kept.stderr), (0, "sum 2\n", ""));
    let exceeded = recorded(&["x"]);
    assert_eq!((exceeded.status, &*exceeded.stdout), (128 + 6, ""), "{}", exceeded.stderr);
    let message = "memory limit exceeded: 107 requested bytes, limit 106";
    assert!(exceeded.stderr.contains(message), "{}", exceeded.stderr);
    assert!(exceeded.stderr.contains("wasteful"), "{}", exceeded.stderr);
    let bare = run(clean(Command::new(&program)).arg("x"), &place);
    assert_eq!((bare.status, &*bare.stdout, &*bare.stderr), (0, "sum 3\n", ""));
}

/// Two tests, of which `wasteful` fails when it is recorded.
const TESTS: &str = r#"
#include "heaptide_test.h"
#include <stdexcept>
#include <string>
__attribute__((noinline)) std::string text(unsigned long length) { return std::string(length, 'x'); }
TEST_CASE_("frugal")
{
    HEAPTIDE_MAX_ALLOCATIONS(2, auto a = text(100); auto b = text(200));
    std::string kept;
    HEAPTIDE_MAX_LEAKED_BLOCKS(1, kept = text(300));
    try {
        HEAPTIDE_NO_ALLOC(throw std::runtime_error(text(400)));
    } catch (const std::runtime_error &) {
    }
    HEAPTIDE_NO_ALLOC(kept[0] = 'y');
}
TEST_CASE_("wasteful")
{
    HEAPTIDE_NO_ALLOC(text(500));
}
"#;

fn build(place: &Path, head: &str, libraries: &[&str]) -> PathBuf {
    let (source, program) = (place.join("tests.cpp"), place.join("tests"));
    fs::write(&source, format!("{head}\n{TESTS}")).expect("a source");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-I"]);
    compiler.arg(programs().join("../../include")).arg(source).arg("-o").arg(&program);
    let output = compiler.args(libraries).output().expect("a compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Checks that only `wasteful` fails, and only when it is recorded.
fn judge(place: &Path, program: &Path, failed: &str, passed: &str) {
    let bare = run(&mut clean(Command::new(program)), place);
    assert_eq!(bare.status, 0, "{}", bare.stdout);
    let outcome = run(recorded(&place.join("a.heaptide"), &[]).arg(program), place);
    // GoogleTest and Catch2 before 3.6 exit with 1.
    assert!([1, 42].contains(&outcome.status), "{}{}", outcome.stdout, outcome.stderr);
    // Lines can be wrapped anywhere.
    let joined = |text: &str| text.replace(char::is_whitespace, "");
    for text in [failed, passed, "memory limit exceeded: 1 allocations, limit 0"] {
        assert!(joined(&outcome.stdout).contains(&joined(text)), "{text}: {}", outcome.stdout);
    }
    assert!(outcome.stderr.contains("      text"), "{}", outcome.stderr);
}

#[test]
fn limits_in_googletest() {
    let place = scratch("test-limits-gtest");
    // Names of tests must be identifiers in GoogleTest.
    let head = "#include <gtest/gtest.h>\n#define TEST_CASE_(name) TEST_AT_(__LINE__)\n\
                #define TEST_AT_(line) TEST_OF_(line)\n\
                #define TEST_OF_(line) TEST(Limits, line_##line)";
    let program = build(&place, head, &["-lgtest_main", "-lgtest", "-pthread"]);
    judge(&place, &program, "1 FAILED TEST", "[  PASSED  ] 1 test.");
}

#[test]
fn limits_in_catch2() {
    let place = scratch("test-limits-catch2");
    let is_3 = Path::new("/usr/include/catch2/catch_all.hpp").exists();
    let (first, libraries) = if is_3 {
        ("#include <catch2/catch_all.hpp>", &["-lCatch2Main", "-lCatch2"][..])
    } else {
        ("#include <catch2/catch.hpp>", &["-lCatch2WithMain"][..])
    };
    let head = format!("{first}\n#define TEST_CASE_(name) TEST_CASE(name)");
    let program = build(&place, &head, libraries);
    judge(&place, &program, "test cases: 2 | 1 passed | 1 failed", "wasteful");
}
