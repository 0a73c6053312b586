//! The subject of a recording: the process images that views show if none is selected.

/// Which process images are the subject of a recording, and why. The processes themselves are
/// marked, see [`ImageRole`].
#[derive(Clone, PartialEq, Debug)]
pub struct Subject {
    /// Why these images were chosen.
    pub reason: Reason,
    /// Name of its program, and for an interpreter the script or module.
    pub name: String,
    /// Fraction of the memory-time of all images that these have, from 0 to 1; `None` if only the
    /// headers of profiles were read, which do not contain the course over time.
    pub share: Option<f64>,
    /// Process ids of its images, in order of start, without duplicates.
    pub pids: Vec<u32>,
    /// The peak of each of its images, ascending; at least one.
    pub peaks: Vec<u64>,
    /// Images of programs that only start others.
    pub launchers: Rest,
    /// All other images.
    pub others: Rest,
}

impl Subject {
    /// Returns the number of images of the recording.
    pub fn images(&self) -> usize {
        self.peaks.len() + self.launchers.images + self.others.images
    }
}

/// The part of an image in its recording: see [`super::Recording::choose_subject`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ImageRole {
    /// Not determined.
    #[default]
    Unknown,
    /// Views show it if none is selected.
    Subject,
    /// It only starts other programs, or compiles a program that is started.
    Launcher,
    /// Any other program.
    Other,
}

impl ImageRole {
    /// Returns the name in JSON; `None` if it is not determined.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            ImageRole::Unknown => None,
            ImageRole::Subject => Some("subject"),
            ImageRole::Launcher => Some("launcher"),
            ImageRole::Other => Some("other"),
        }
    }
}

/// Why images are the subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// There are no others.
    Only,
    /// They belong to the program that `heaptide run` started, and no other program has much more
    /// memory.
    Started,
    /// Their program has most memory over time, launchers excluded.
    Most,
    /// A launcher has more memory than the programs that it started.
    Launcher,
}

/// Images that are not the subject.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rest {
    /// Their number.
    pub images: usize,
    /// Names of their programs, those with most images first; not all if there are many.
    pub names: Vec<String>,
    /// Number of distinct names.
    pub programs: usize,
    /// The highest peak of one of them.
    pub peak_bytes: u64,
    /// Process id of the image with that peak.
    pub pid: u32,
}
