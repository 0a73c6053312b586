//! The names of a recording's files: `PID-IMAGE`, in a merged recording `rRUN-PID-IMAGE`, and what
//! kind of file it is behind the first dot.

use std::fmt;
use std::path::Path;

/// Whose a file is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Image {
    /// The recording it was merged from, from 1; 0 if it was recorded here.
    pub(crate) run: u32,
    pub(crate) pid: u32,
    pub(crate) image: u32,
}

impl Image {
    /// As the name of a profile, snapshot or baseline says; none if it says something else.
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

/// The run in front of a name, 0 if there is none, and the rest.
pub(crate) fn split(name: &str) -> (u32, &str) {
    let digits = name.strip_prefix('r').and_then(|name| name.split_once('-'));
    let run = digits.and_then(|(run, rest)| Some((run.parse().ok().filter(|&run| run > 0)?, rest)));
    run.unwrap_or((0, name))
}

#[cfg(test)]
mod tests {
    use super::*;

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
