//! The names of a recording's files: `PID-IMAGE`, or `rRUN-PID-IMAGE` in a merged recording, and a
//! suffix for the kind of file.

use std::fmt;
use std::path::Path;

use heaptide_format::{
    BASELINE_SUFFIX, HELD_SUFFIX, PROFILE_SUFFIX, RETAINED_SUFFIX, SNAPSHOT_SUFFIX, TRACE_SUFFIX,
};

/// Suffix of a recording's directory.
pub const RECORDING_SUFFIX: &str = ".heaptide";
/// The file with metadata of a recording, written by `heaptide run`.
pub const METADATA_FILE: &str = "recording.json";
/// The file with the symbols of a recording.
pub const SYMBOLS_FILE: &str = "symbols.json";
/// The file with totals of the data removed from a recording to keep it within its limits.
pub const REMOVED_FILE: &str = "removed.json";

/// Suffix, after a number, of the file of a command that takes part in a launch.
pub(crate) const MEMBER_SUFFIX: &str = ".member";

/// The image that a file belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Image {
    /// Number of the recording from which it was merged, from 1; 0 if it was recorded here.
    pub(crate) run: u32,
    pub(crate) pid: u32,
    pub(crate) image: u32,
}

impl Image {
    /// Parses the name of a profile, snapshot or baseline; `None` if it has another form.
    pub(crate) fn of(file: &Path) -> Option<Image> {
        let name = file.file_name()?.to_str()?;
        let (run, rest) = split(name.split('.').next()?);
        let (pid, image) = rest.split_once('-')?;
        Some(Image { run, pid: pid.parse().ok()?, image: image.parse().ok()? })
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.run {
            0 => {}
            run => write!(f, "r{run}-")?,
        }
        write!(f, "{}-{}", self.pid, self.image)
    }
}

/// Splits a name into its run, 0 if it has none, and the rest.
pub(crate) fn split(name: &str) -> (u32, &str) {
    let digits = name.strip_prefix('r').and_then(|name| name.split_once('-'));
    let run = digits.and_then(|(run, rest)| Some((run.parse().ok().filter(|&run| run > 0)?, rest)));
    run.unwrap_or((0, name))
}

/// Returns the `PID-IMAGE` of a profile.
pub(crate) fn image_name(profile: &Path) -> String {
    let name = profile.file_name().unwrap_or_default().to_string_lossy();
    name.strip_suffix(PROFILE_SUFFIX).unwrap_or(&name).to_owned()
}

/// Returns the image and number of a snapshot from its file name; `None` for other files.
pub(crate) fn snapshot(file: &Path) -> Option<(Image, u32)> {
    let name = file.file_name()?.to_str()?.strip_suffix(SNAPSHOT_SUFFIX)?;
    let (_, number) = name.split_once('.')?;
    Some((Image::of(file)?, number.parse().ok()?))
}

/// Returns whether a recording can contain a file of this name. In a merged recording any name can
/// follow the run, because single profiles can be merged.
///
/// ```
/// use heaptide_analysis::is_file_of_recording;
/// assert!(is_file_of_recording("12-0.profile") && is_file_of_recording("recording.json"));
/// assert!(!is_file_of_recording("photos.profile"));
/// ```
pub fn is_file_of_recording(name: &str) -> bool {
    let name = name.strip_suffix(DRAFT_SUFFIX).map_or(name, without_number);
    if [METADATA_FILE, SYMBOLS_FILE, REMOVED_FILE].contains(&name) || is_member(name) {
        return true;
    }
    let snapshot = [SNAPSHOT_SUFFIX, RETAINED_SUFFIX].iter().find_map(|of| name.strip_suffix(of));
    let of_image = [PROFILE_SUFFIX, TRACE_SUFFIX, BASELINE_SUFFIX, HELD_SUFFIX, RETAINED_SUFFIX];
    let image = of_image.iter().find_map(|suffix| name.strip_suffix(suffix));
    let is_merged = split(name).0 > 0;
    let is_own = |image: &str| is_merged || is_image(image);
    let is_snapshot = snapshot
        .and_then(|snapshot| snapshot.rsplit_once('.'))
        .is_some_and(|(image, number)| number.parse::<u32>().is_ok() && is_own(image));
    is_snapshot || image.is_some_and(is_own)
}

/// Suffix of a file that is being written.
pub(crate) const DRAFT_SUFFIX: &str = ".new";

/// Removes the pid of the writer from the name of a draft, if it has one.
fn without_number(name: &str) -> &str {
    let numbered = name.rsplit_once('.').filter(|(_, number)| number.parse::<u32>().is_ok());
    numbered.map_or(name, |(name, _)| name)
}

/// Returns whether a file belongs to a command of a launch.
pub(crate) fn is_member(name: &str) -> bool {
    let number = name.strip_suffix(MEMBER_SUFFIX);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns whether a name has the form `PID-IMAGE`.
fn is_image(name: &str) -> bool {
    let of_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    name.split_once('-').is_some_and(|(pid, image)| of_digits(pid) && of_digits(image))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_recordings_are_told_from_others() {
        for name in [
            "12-0.profile",
            "12-0.trace",
            "12-3.4.snapshot",
            "12-3.baseline",
            "12-3.baseline.new",
            "12-3.held",
            "12-3.held.new",
            "12-3.retained",
            "12-3.retained.7.new",
            "12-3.4.retained",
            "12-3.4.retained.7.new",
            "12-3.4.snapshot.99.new",
            "12-0.profile.99.new",
            "recording.json",
            "recording.json.7.new",
            "symbols.json",
            "symbols.json.7.new",
            "removed.json",
            "removed.json.7.new",
            "0.member",
            "12.member.7.new",
            "r1-12-0.profile",
            "r2-12-3.4.snapshot",
            "r1-odd.profile",
        ] {
            assert!(is_file_of_recording(name), "{name}");
        }
        for name in [
            "photos.profile",
            "12.profile",
            "-0.profile",
            "+1-0.profile",
            "12-0.profile.bak",
            "12-3.snapshot",
            "12.4.retained",
            ".member",
            "a.member",
            "a.jpg",
            "new",
            ".new",
            "x.new",
            "r1-odd",
            "r0-odd.profile",
            "",
        ] {
            assert!(!is_file_of_recording(name), "{name}");
        }
    }

    #[test]
    fn file_names_tell_snapshot_and_number() {
        let image = Image { run: 0, pid: 12, image: 3 };
        assert_eq!(snapshot(Path::new("a/12-3.4.snapshot")), Some((image, 4)));
        for other in ["12-3.snapshot", "12-3.profile", "12.4.snapshot", "12-3.4.snapshot.9.new"] {
            assert_eq!(snapshot(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn names_tell_run_pid_and_image() {
        let of = |name: &str| Image::of(Path::new(name)).map(|i| (i.run, i.pid, i.image));
        assert_eq!(of("a/12-3.profile"), Some((0, 12, 3)));
        assert_eq!(of("a/r7-12-3.4.snapshot"), Some((7, 12, 3)));
        assert_eq!(of("r7-12-3.baseline"), Some((7, 12, 3)));
        for other in ["12.profile", "r0-12-3.profile", "r-12-3.profile", "x-1.profile"] {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(Image { run: 7, pid: 12, image: 3 }.to_string(), "r7-12-3");
        assert_eq!(split("r2-odd"), (2, "odd"));
        assert_eq!(split("odd"), (0, "odd"));
    }
}
