//! Modules whose paths contain line breaks or are not UTF-8: their names are looked up and stored.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use heaptide_analysis::model::{Process, Recording};
use heaptide_analysis::seal;
use heaptide_fixtures::{ProfileBuilder, Scratch, site};
use heaptide_format as format;

/// Possible file names.
const NAMES: [&[u8]; 5] = [b"a\nb", b"a\xff", b"a\xfe", br"a\012b", br"a\xff"];

fn run(place: &Path, command: &str) -> String {
    let output = Command::new("sh").args(["-ec", command]).current_dir(place).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Builds a program with one function and without a build-id for each of the names, and returns
/// their paths and the address of the function, which is the same in all.
fn programs(scratch: &Scratch) -> (Vec<PathBuf>, u64) {
    let mut address = None;
    let build = |(number, name): (usize, &&[u8])| {
        let source = format!("int function_{number}(void) {{ return {number}; }}\n");
        fs::write(scratch.join("app.c"), source).unwrap();
        run(scratch, "cc -shared -Wl,--build-id=none -o app app.c");
        run(scratch, "touch -d '1970-01-01 00:00:00 UTC' app");
        let found = run(scratch, &format!("nm app | grep function_{number}"));
        let found = u64::from_str_radix(found.split(' ').next().unwrap(), 16).unwrap();
        assert_eq!(*address.get_or_insert(found), found);
        let path = scratch.join(OsStr::from_bytes(name));
        fs::rename(scratch.join("app"), &path).unwrap();
        path
    };
    let paths = NAMES.iter().enumerate().map(build).collect();
    (paths, address.unwrap())
}

/// Stores a profile with a call in the function of each program.
fn record(scratch: &Scratch, paths: &[PathBuf], address: u64) {
    let mut p = ProfileBuilder::new(format::Mode::Stacks, 12, 0);
    for (number, path) in (1..).zip(paths) {
        let start = number * 0x1000_0000;
        let module = p.module_at(path.as_os_str().as_bytes(), start, &[]);
        let node = p.node(0, module, start + address + 1, 0);
        p.site(0, site(node, number, 16));
    }
    p.lane(0, "app", |_| {});
    scratch.write("12-0.profile", &p.finish());
}

fn functions(process: &Process) -> Vec<Option<&str>> {
    process.tables.frames.iter().map(|frame| frame.function.as_deref()).collect()
}

const FOUND: [Option<&str>; 5] = [
    Some("function_0"),
    Some("function_1"),
    Some("function_2"),
    Some("function_3"),
    Some("function_4"),
];

#[test]
fn names_are_looked_up_by_the_bytes_of_the_path() {
    let scratch = Scratch::new("paths-looked-up");
    let (paths, address) = programs(&scratch);
    record(&scratch, &paths, address);
    let process = &Recording::open(&scratch).unwrap().processes[0];
    assert_eq!(process.completeness.notes, [""; 0]);
    assert_eq!(functions(process), FOUND);
    let shown: Vec<&str> =
        process.tables.modules.iter().map(|m| m.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(shown, ["a\nb", r"a\xff", r"a\xfe", r"a\012b", r"a\xff"]);
}

#[test]
fn stored_names_are_those_of_the_same_bytes() {
    let scratch = Scratch::new("paths-stored");
    let (paths, address) = programs(&scratch);
    record(&scratch, &paths, address);
    let sealed = seal(&scratch, &mut |_, _| {}).unwrap();
    assert_eq!((sealed.addresses, sealed.named), (5, 5));
    paths.iter().for_each(|path| fs::remove_file(path).unwrap());
    let recording = Recording::open(&scratch).unwrap();
    assert_eq!((recording.sealed, recording.damaged.len()), (true, 0));
    assert_eq!(functions(&recording.processes[0]), FOUND);
    // In a file written by an earlier heaptide, the names of paths in UTF-8 are known.
    let text = fs::read_to_string(scratch.join("symbols.json")).unwrap();
    let start = text.find("\"path_bytes\"").unwrap();
    assert!(text[start..].starts_with("\"path_bytes\":\"2f"), "{text}");
    let older = text.replace("path_bytes", "path_of_another_version");
    fs::write(scratch.join("symbols.json"), older).unwrap();
    let known = Recording::open(&scratch).unwrap().processes[0].tables.frames.clone();
    let known: Vec<bool> = known.iter().map(|frame| frame.function.is_some()).collect();
    assert_eq!(known, [true, false, false, true, true]);
}
