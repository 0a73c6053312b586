//! Programs compiled by tests, and recordings with a stack at every address of a function.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use heaptide_analysis::model::Process;
use heaptide_analysis::recording::metadata::{Metadata, Status};
use heaptide_fixtures::{ProfileBuilder, Scratch, site};
use heaptide_format as format;

/// Returns metadata as `heaptide run` stores it.
pub fn metadata(root_pid: u32, status: Option<Status>) -> Metadata {
    let command = vec!["app".to_owned()];
    let heaptide = "0.1.0".to_owned();
    Metadata { version: 1, heaptide, command, root_pid, status, ..Metadata::default() }
}

/// A C program whose function `outer` calls `inner`, which is always inlined.
pub const PROGRAM: &str = "#include <stdlib.h>\n\
    static inline __attribute__((always_inline)) char *inner(int n) {\n\
        char *p = malloc(n);\n\
        p[0] = 1;\n\
        return p;\n\
    }\n\
    __attribute__((noinline)) char *outer(int n) {\n\
        char *p = inner(n + 1);\n\
        p[1] = 2;\n\
        return p;\n\
    }\n\
    int main(int argc, char **argv) { return outer(argc + 1)[1]; }\n";

/// Runs a shell command in a directory, and returns its output.
pub fn run(directory: &Path, command: &str) -> String {
    let output = Command::new("sh").args(["-ec", command]).current_dir(directory).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Compiles the program and returns its path, its build-id, and the address range of `outer`.
pub fn compile(directory: &Path) -> (PathBuf, Vec<u8>, std::ops::Range<u64>) {
    fs::write(directory.join("app.c"), PROGRAM).unwrap();
    run(directory, "cc -g -O2 -Wl,--build-id=sha1 -o app app.c");
    identify(directory)
}

/// Returns the path of `app`, its build-id, and the address range of `outer`.
pub fn identify(directory: &Path) -> (PathBuf, Vec<u8>, std::ops::Range<u64>) {
    let symbols = run(directory, "nm -S app");
    let line = symbols.lines().find(|line| line.ends_with(" T outer")).unwrap();
    let mut numbers = line.split(' ').map_while(|n| u64::from_str_radix(n, 16).ok());
    let (start, size) = (numbers.next().unwrap(), numbers.next().unwrap());
    let notes = run(directory, "readelf -n app");
    let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).unwrap();
    let byte = |i| u8::from_str_radix(&id[i..i + 2], 16).unwrap();
    let id = (0..id.len()).step_by(2).map(byte).collect();
    (directory.join("app"), id, start..start + size)
}

/// Writes a recording with a stack at every address of a function.
pub fn record(scratch: &Scratch, module: &Path, build_id: &[u8], addresses: std::ops::Range<u64>) {
    const BASE: u64 = 0x5500_0000_0000;
    let mut p = ProfileBuilder::new(format::Mode::Stacks, 12, 0);
    let module = p.module(module.to_str().unwrap(), BASE, build_id);
    for address in addresses {
        let node = p.node(0, module, BASE + address + 1, 0);
        p.site(0, site(node, 1, 16));
    }
    p.lane(0, "app", |_| {});
    scratch.write("12-0.profile", &p.finish());
    metadata(12, None).write(scratch).unwrap();
}

/// Returns the distinct stacks, as `function line[ inlined]` from the outermost frame.
pub fn stacks(process: &Process) -> Vec<String> {
    let frame = |id: heaptide_analysis::model::FrameId| {
        let frame = &process.tables.frames[id.0 as usize];
        let file = frame.file.as_deref().unwrap_or("-").rsplit('/').next().unwrap();
        let line = frame.line.unwrap_or(0);
        let inlined = if frame.inlined { " inlined" } else { "" };
        format!("{} {file}:{line}{inlined}", frame.function.as_deref().unwrap_or("?"))
    };
    let stack = |site: &heaptide_analysis::model::Site| {
        let frames: Vec<_> = process.path_of(site.stack).into_iter().map(frame).collect();
        frames.join(" / ")
    };
    let mut stacks: Vec<_> = process.tables.sites.iter().map(stack).collect();
    stacks.sort();
    stacks.dedup();
    stacks
}

/// Asserts that `stacks` contains a stack.
pub fn has(stacks: &[String], stack: &str) {
    assert!(stacks.iter().any(|s| s == stack), "{stack} is not among {stacks:#?}");
}
