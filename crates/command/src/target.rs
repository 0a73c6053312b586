//! Alternatives to a recording's path: the process id of a running program, `REC@NAME` for a
//! snapshot, and `@N` for one of the newest recording.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use heaptide_analysis::recording::running;
use heaptide_analysis::recording::snapshot::Reference;

use crate::error::Error;
use crate::message::message;
use crate::selection::Source;

/// Finds the recording and snapshot that a source refers to.
///
/// Errors: a process id without a recorded process, or two snapshots.
pub fn resolve(source: &Source) -> Result<Source, Error> {
    let Some(given) = &source.recording else {
        return Ok(source.clone());
    };
    let (path, named) = find(given)?;
    if let (Some(named), Some(option)) = (&named, &source.snapshot) {
        let given = given.display();
        let what = format!("{given}: names snapshot {named}, and --snapshot {option}; omit one");
        return Err(Error::new(what));
    }
    let snapshot = named.or_else(|| source.snapshot.clone());
    Ok(Source { recording: Some(path), snapshot, ..source.clone() })
}

/// Returns whether an argument refers to something that exists: a path, a running recorded program,
/// or a snapshot of either.
pub fn exists(given: &Path) -> bool {
    find(given).is_ok_and(|(path, _)| path.exists())
}

/// Returns the path of the recording that an argument refers to, and the snapshot. An existing path
/// takes precedence.
///
/// Errors: a process id without a recorded process, or no recording is here.
pub fn find(given: &Path) -> Result<(PathBuf, Option<Reference>), Error> {
    if given.symlink_metadata().is_ok() {
        return Ok((given.to_owned(), None));
    }
    match split(given) {
        Some((path, snapshot)) if path.as_os_str().is_empty() => Ok((newest()?, Some(snapshot))),
        Some((path, snapshot)) => Ok((place_of(path)?, Some(snapshot))),
        None => Ok((place_of(given)?, None)),
    }
}

/// Returns the path, or the profile of the running process whose id it is.
///
/// Errors: a process id without a recorded process.
pub fn place_of(given: &Path) -> Result<PathBuf, Error> {
    let running = running::by_id(given)?;
    Ok(running.map_or_else(|| given.to_owned(), |running| running.file))
}

/// Returns the newest recording in the current directory, and prints its name the first time.
///
/// Errors: there is none.
pub fn newest() -> Result<PathBuf, Error> {
    // `diff @1 @2` compares snapshots of one recording, even if a new one appears in between.
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    if let Some(path) = FOUND.get() {
        return Ok(path.clone());
    }
    let here = Path::new(".");
    let Some(path) = heaptide_analysis::newest(here)? else {
        return Err(Error::new(
            "no *.heaptide in the current directory; name a recording, or create one with \
             `heaptide run -- PROGRAM`",
        ));
    };
    let path = path.strip_prefix(here).unwrap_or(&path).to_owned();
    message(format_args!("reading {}, the newest recording in this directory", path.display()));
    Ok(FOUND.get_or_init(|| path).clone())
}

/// Splits `REC@NAME` at the first `@` after an existing path, a process id or nothing; if REC does
/// not exist, splits `REC@N`.
fn split(given: &Path) -> Option<(&Path, Reference)> {
    let bytes = given.as_os_str().as_bytes();
    let at = |index: usize| {
        let reference = std::str::from_utf8(&bytes[index + 1..]).ok()?.parse().ok()?;
        Some((Path::new(OsStr::from_bytes(&bytes[..index])), reference))
    };
    let all = || bytes.iter().enumerate().filter(|(_, byte)| **byte == b'@');
    let is_number = |path: &Path| {
        let bytes = path.as_os_str().as_bytes();
        !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit)
    };
    let known = all().filter_map(|(index, _)| at(index));
    let is_newest = |path: &Path| path.as_os_str().is_empty();
    let mut known = known
        .filter(|(path, _)| path.symlink_metadata().is_ok() || is_number(path) || is_newest(path));
    known.next().or_else(|| {
        let last = all().next_back().and_then(|(index, _)| at(index));
        last.filter(|(_, reference)| matches!(reference, Reference::Number(_)))
    })
}

#[cfg(test)]
mod tests {
    use heaptide_fixtures::Scratch;

    use super::*;

    fn found(given: &Path) -> (PathBuf, Option<String>) {
        let (path, snapshot) = find(given).expect("no process id");
        (path, snapshot.map(|snapshot| snapshot.to_string()))
    }

    #[test]
    fn snapshots_are_named_after_recordings() {
        let scratch = Scratch::new("target");
        for name in ["a.heaptide", "b@2", "me@here.heaptide"] {
            scratch.write(name, b"");
        }
        let of = |name: &str| {
            let (path, snapshot) = found(&scratch.join(name));
            let name = path.strip_prefix(scratch.join("")).expect("below").to_owned();
            (name.to_str().expect("UTF-8").to_owned(), snapshot)
        };
        let number = |n: u32| Some(n.to_string());
        assert_eq!(of("a.heaptide"), ("a.heaptide".into(), None));
        assert_eq!(of("a.heaptide@2"), ("a.heaptide".into(), number(2)));
        assert_eq!(of("a.heaptide@x y@z"), ("a.heaptide".into(), Some("\"x y@z\"".into())));
        assert_eq!(of("b@2"), ("b@2".into(), None));
        assert_eq!(of("b@2@3"), ("b@2".into(), number(3)));
        assert_eq!(of("me@here.heaptide"), ("me@here.heaptide".into(), None));
        assert_eq!(of("me@here.heaptide@1"), ("me@here.heaptide".into(), number(1)));
        assert_eq!(of("missing@3"), ("missing".into(), number(3)));
        for other in ["missing@x", "a.heaptide@0", "a.heaptide@", "a@1/b.heaptide"] {
            assert_eq!(of(other), (other.into(), None));
        }
    }

    #[test]
    fn a_snapshot_without_a_recording_is_one_of_the_newest() {
        let split = |given: &str| {
            let (path, reference) = split(Path::new(given))?;
            Some((path.to_owned(), reference.to_string()))
        };
        assert_eq!(split("@1"), Some((PathBuf::new(), "1".to_owned())));
        assert_eq!(split("@start"), Some((PathBuf::new(), "\"start\"".to_owned())));
        assert_eq!(split("@0"), None);
        assert_eq!(split("@"), None);
    }

    #[test]
    fn a_number_is_a_process_id_unless_a_file_has_that_name() {
        let me = std::process::id();
        let refused = |given: String| find(Path::new(&given)).expect_err("nothing").to_string();
        let expected =
            format!("pid {me}: not being recorded; start the program with `heaptide run`");
        assert_eq!(refused(me.to_string()), expected);
        assert_eq!(refused(format!("{me}@start")), expected);
        let none = "4294967295: no such process, and no recording of this name";
        assert_eq!(refused("4294967295".to_owned()), none);
        let scratch = Scratch::new("target-number");
        let path = scratch.write("4294967295", b"");
        assert_eq!(found(&path), (path, None));
    }

    #[test]
    fn only_one_snapshot_can_be_selected() {
        let scratch = Scratch::new("target-two");
        let given = scratch.write("a.heaptide", b"").with_file_name("a.heaptide@1");
        let [source] = &Source::each(&[given], Some(Reference::Number(2)), false)[..] else {
            panic!("one source");
        };
        let error = resolve(source).expect_err("two snapshots").to_string();
        assert!(error.ends_with("names snapshot 1, and --snapshot 2; omit one"), "{error}");
    }
}
