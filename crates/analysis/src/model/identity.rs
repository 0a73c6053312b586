//! Identity of a process image, when it ran and how it ended.

use std::path::PathBuf;

use super::subject::ImageRole;

/// Identity of a process image: its program, and its relation to other images.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The profile file.
    pub file: PathBuf,
    /// Process id.
    pub pid: u32,
    /// Parent's process id at the start.
    pub ppid: u32,
    /// The image number in the name of its profile. Images with the same pid are counted; they can
    /// belong to several processes.
    pub image: u32,
    /// A number shared by all images of this process, and unique within the recording.
    pub process_number: u32,
    /// Number of programs that this process executed before, by exec.
    pub execs: u32,
    /// Whether `heaptide run` started the process directly.
    pub is_requested: bool,
    /// Its part in the recording.
    pub role: ImageRole,
    /// Whether the image began as a fork of a recorded process.
    pub forked: bool,
    /// Path of the program.
    pub program: String,
    /// Its arguments.
    pub command: Vec<String>,
    /// Host name.
    pub host: String,
    /// Its place among the processes of a parallel job, as reported by MPI or Slurm.
    pub rank: Option<Rank>,
    /// The job id of MPI, Slurm or another batch system; empty if there is none.
    pub job: String,
    /// The recording from which `heaptide merge` took it; `None` if it was recorded here.
    pub run: Option<Run>,
    /// Number of process images in these tables: 1, or more if several were joined (see
    /// [`crate::model::Recording::join`]). Joined images have no pid, parent, image number or
    /// process number: these are 0.
    pub images: u32,
}

impl Identity {
    /// Returns the name by which the program was started: the file name of its first argument,
    /// which can be that of a link to its file. Returns the file's own name if the first argument
    /// is empty or a title.
    pub fn name(&self) -> &str {
        let last = |path: &'_ str| path.rfind('/').map_or(0, |slash| slash + 1);
        let file = &self.program[last(&self.program)..];
        let word = self.command.first().map_or("", |word| word.as_str());
        let word = word.strip_prefix('-').unwrap_or(word); // marks a login shell
        let name = &word[last(word)..];
        if name.is_empty() || word.contains(' ') || file.is_empty() { file } else { name }
    }

    /// Returns name and file, such as `sh (/usr/bin/dash)`; only the file if it has that name.
    /// Empty for images of several programs.
    pub fn name_and_file(&self) -> String {
        let (name, file) = (self.name(), &self.program);
        if file.rsplit('/').next() == Some(name) {
            file.clone()
        } else {
            format!("{name} ({file})")
        }
    }
}

/// The place of a process in a parallel job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Rank {
    /// Its number, from 0.
    pub number: u32,
    /// Number of processes of the job; 0 if unknown.
    pub of: u32,
}

/// A recording that was merged into another one.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Run {
    /// Its number among the merged recordings, from 1.
    pub number: u32,
    /// Its path when it was merged.
    pub recording: String,
}

/// When a process image ran, and how it ended.
#[derive(Clone, Debug)]
pub struct Lifetime {
    /// Start, nanoseconds since 1970-01-01 UTC.
    pub start_realtime_ns: u64,
    /// Time from start to end, or to the last known activity, in nanoseconds.
    pub duration_ns: u64,
    /// Whether `duration_ns` is exact; if not, it is a lower bound.
    pub duration_is_known: bool,
    /// How it ended.
    pub end: End,
}

/// How a process image ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It exited with this status.
    Exited(i32),
    /// It was killed by this signal.
    Signaled(i32),
    /// It executed another program.
    Exec,
    /// Its recording ended, because the command that had attached to it detached.
    Detached,
    /// It still runs.
    Running,
    /// The end was not observed.
    Unknown,
}
