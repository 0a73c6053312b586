//! Determines whether a program is CPython, or a Python script.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::elf::Elf;
use crate::program::find;

/// The most nested script interpreters, as in the kernel.
const SCRIPTS_MAX: usize = 5;
/// Bytes of a script's first line that the kernel reads.
const LINE_BYTES_MAX: u64 = 256;
/// The functions that CPython's main function calls, in the order of versions.
const MAIN: [&[u8]; 2] = [b"Py_BytesMain", b"_Py_UnixMain"];

/// Returns whether a program is CPython: an executable with CPython's main function and any name; a
/// file with a name like `python3.11`, including a shell script; or a script of either. Programs
/// that `env` starts are looked up in `path`, the value of PATH.
pub fn is_cpython(program: &Path, path: Option<&OsStr>) -> bool {
    let mut file = program.to_owned();
    for _ in 0..SCRIPTS_MAX {
        if is_called_python(&file) {
            return true;
        }
        let mut line = Vec::new();
        let is_read = File::open(&file)
            .is_ok_and(|file| file.take(LINE_BYTES_MAX).read_to_end(&mut line).is_ok());
        if !is_read || line.starts_with(b"\x7fELF") {
            return is_read && has_main(&file);
        }
        match interpreter(&line, path) {
            Some(interpreter) => file = interpreter,
            None => return false,
        }
    }
    false
}

fn has_main(file: &Path) -> bool {
    let elf = Elf::read(file).ok().flatten();
    elf.is_some_and(|elf| elf.names().any(|name| MAIN.contains(&name)))
}

/// Returns whether a file's name is `python`, `python3` or `python3.` with a number, and it is no
/// link to PyPy, as in PyPy's virtual environments.
fn is_called_python(file: &Path) -> bool {
    let is_pypy =
        |file: PathBuf| file.file_name().is_some_and(|name| name.as_bytes().starts_with(b"pypy"));
    if std::fs::canonicalize(file).is_ok_and(is_pypy) {
        return false;
    }
    let name = file.file_name().unwrap_or_default().as_bytes();
    let Some(version) = name.strip_prefix(b"python") else { return false };
    let Some(minor) = version.strip_prefix(b"3") else { return version.is_empty() };
    minor.is_empty()
        || minor
            .strip_prefix(b".")
            .is_some_and(|n| !n.is_empty() && n.iter().all(u8::is_ascii_digit))
}

/// Returns the interpreter of a script from its first line; `None` if there is none, or if it is
/// not found.
fn interpreter(script: &[u8], path: Option<&OsStr>) -> Option<PathBuf> {
    let line = script.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let first = Path::new(OsStr::from_bytes(words.next()?)).to_owned();
    if first.file_name() != Some(OsStr::new("env")) {
        return Some(first);
    }
    let is_option = |word: &&[u8]| word.starts_with(b"-") || word.contains(&b'=');
    let name: OsString = OsStr::from_bytes(words.find(|word| !is_option(word))?).to_owned();
    find(&name, path).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use heaptide_fixtures::Scratch;

    fn script(place: &Scratch, name: &str, text: &str) -> PathBuf {
        let file = place.join(name);
        fs::write(&file, text).expect("a script");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("its mode");
        file
    }

    #[test]
    fn python_is_found_by_its_name_its_main_function_and_through_scripts() {
        let place = Scratch::new("is-cpython");
        let path = std::env::var_os("PATH");
        let is = |file: &Path| is_cpython(file, path.as_deref());
        let python = find(OsStr::new("python3"), path.as_deref()).expect("python3");
        assert!(is(&python));
        let shim = script(&place, "python3.12", "#!/bin/sh\nexec something\n");
        assert!(is(&shim), "by its name");
        let direct = script(&place, "direct", &format!("#!{} -u\n", shim.display()));
        assert!(is(&direct));
        assert!(is(&script(&place, "by-env", "#!/usr/bin/env python3\n")));
        assert!(is(&script(&place, "by-env-s", "#! /usr/bin/env -S A=1 python3 -u\n")));
        assert!(is(&script(&place, "indirect", &format!("#!{}\n", direct.display()))));
        for (name, text) in [
            ("shell", "#!/bin/sh\n"),
            ("none", "echo\n"),
            ("missing", "#!/usr/bin/env no-such-python3\n"),
            ("pythonic", "#!/bin/sh\n"),
            ("python3.x", "#!/bin/sh\n"),
            ("empty", ""),
        ] {
            assert!(!is(&script(&place, name, text)), "{name}");
        }
        assert!(!is(Path::new("/bin/ls")) && !is(Path::new("/nonexistent")));
        let pypy = script(&place, "pypy3.9", "#!/bin/sh\n");
        let of_pypy = place.join("python3");
        std::os::unix::fs::symlink(pypy, &of_pypy).expect("a link");
        assert!(!is(&of_pypy), "a link to PyPy");
        // A different name, like that of a program that embeds it.
        let real = fs::canonicalize("/usr/bin/python3").expect("a system's python3");
        let other = place.join("app");
        fs::copy(real, &other).expect("a copy");
        assert!(is(&other));
    }
}
