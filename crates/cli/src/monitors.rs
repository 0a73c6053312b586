//! `--monitor LIB[:OPTIONS]`: libraries that are called on each allocation. Checks them and builds
//! the variables for the loader and for the libraries.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use heaptide_analysis::files::input;
use heaptide_command::error::Error;
use heaptide_supervise::program::check_library;

/// The values of these variables.
#[derive(Default, Debug)]
pub struct Monitors {
    /// The absolute path of each library after a colon, to be appended to the first one in
    /// `LD_PRELOAD`.
    pub preload: OsString,
    /// `HEAPTIDE_MONITORS`: `NAME[:OPTIONS]` per library, separated by semicolons.
    pub names: OsString,
}

/// Characters that end a name in `LD_PRELOAD` or `HEAPTIDE_MONITORS`, or begin a variable there.
const SEPARATORS: [u8; 6] = *b" :;\t\n$";

/// Checks the libraries, in the order in which they will be called.
pub fn check(given: &[OsString]) -> Result<Monitors, Error> {
    let mut monitors = Monitors::default();
    let mut seen: Vec<OsString> = Vec::new();
    for word in given {
        let (file, options) = split(word);
        let refuse = |why: &str| Error::new(format!("--monitor {}: {why}", word.display()));
        if options.is_some_and(|options| options.as_bytes().contains(&b';')) {
            return Err(refuse("options must not contain a semicolon"));
        }
        let path = std::path::absolute(&file)
            .map_err(|_| refuse("expected the path of a library, LIB or LIB:OPTIONS"))?;
        match input::open(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(refuse(&error.to_string()));
            }
            _ => check_library(&path).map_err(|why| refuse(&why))?,
        };
        if path.as_os_str().as_bytes().iter().any(|b| SEPARATORS.contains(b)) {
            let shown = path.display();
            return Err(refuse(&format!(
                "{shown} contains a space, colon, semicolon or dollar, which the loader \
                 interprets; copy the library elsewhere"
            )));
        }
        let name = path.file_name().unwrap_or_default().to_owned();
        if seen.contains(&name) {
            return Err(refuse("another monitor has this file name; rename one"));
        }
        monitors.preload.push(":");
        monitors.preload.push(&path);
        if !seen.is_empty() {
            monitors.names.push(";");
        }
        monitors.names.push(&name);
        if let Some(options) = options {
            monitors.names.push(":");
            monitors.names.push(options);
        }
        seen.push(name);
    }
    Ok(monitors)
}

/// Splits an argument into file and options. A colon in the name of an existing file does not
/// separate options, so that an error names the whole file.
fn split(word: &OsString) -> (PathBuf, Option<&std::ffi::OsStr>) {
    let bytes = word.as_bytes();
    match bytes.iter().position(|&b| b == b':') {
        Some(colon) if !PathBuf::from(word).exists() => {
            let of = std::ffi::OsStr::from_bytes;
            (PathBuf::from(of(&bytes[..colon])), Some(of(&bytes[colon + 1..])))
        }
        _ => (PathBuf::from(word), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(word: &str) -> String {
        check(&[word.into()]).expect_err("a bad library").to_string()
    }

    #[test]
    fn what_is_no_library_is_refused_in_one_line() {
        let me = std::env::current_exe().unwrap();
        let program = refused(&format!("{}:x", me.display()));
        assert!(
            program.ends_with("an executable, expected a shared object; build it with -shared")
        );
        let text = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert!(refused(text).contains("not a 64-bit ELF shared object"));
        assert!(refused("/").contains("is a directory, expected a regular file"));
        assert!(refused("none.so:a=1").contains("none.so:a=1: no such file"));
        assert!(refused("none.so:a;b").contains("semicolon"));
        assert!(refused("").contains("expected the path of a library"));
    }
}
