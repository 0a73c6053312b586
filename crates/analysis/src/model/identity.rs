//! Which process image the tables are of, when it ran and how it ended.

use std::path::PathBuf;

/// Which process image this is: its program, and its place among the others.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The profile file.
    pub file: PathBuf,
    /// Process id.
    pub pid: u32,
    /// Parent's process id at the start.
    pub ppid: u32,
    /// The number in the name of its profile: images of one pid are counted, which may be of
    /// several processes.
    pub image: u32,
    /// A number that all images of this process have, and no other of the recording.
    pub process_number: u32,
    /// Programs that this process was before, by exec.
    pub execs: u32,
    /// Whether the process is the one that `heaptide run` started.
    pub is_requested: bool,
    /// Whether the image began as a fork of a recorded one.
    pub forked: bool,
    /// Path of the program.
    pub program: String,
    /// Its arguments.
    pub command: Vec<String>,
    /// Host name.
    pub host: String,
    /// Its place among the processes of a parallel job, as MPI or Slurm told it.
    pub rank: Option<Rank>,
    /// The parallel job, as MPI, Slurm or another batch system calls it; empty if none does.
    pub job: String,
    /// Where `heaptide merge` took it from; none if it was recorded here.
    pub run: Option<Run>,
    /// Process images in these tables: 1, or more where several were joined (see
    /// [`crate::model::Recording::join`]). Joined ones have no pid, parent and numbers of image and
    /// process: those are 0.
    pub images: u32,
}

impl Identity {
    /// The name by which it was started, that of its first argument: the name of a link to its file
    /// where it was started through one. The file's own name if the first argument is empty or a
    /// title.
    pub fn name(&self) -> &str {
        let last = |path: &'_ str| path.rfind('/').map_or(0, |slash| slash + 1);
        let file = &self.program[last(&self.program)..];
        let word = self.command.first().map_or("", |word| word.as_str());
        let word = word.strip_prefix('-').unwrap_or(word); // of a login shell
        let name = &word[last(word)..];
        if name.is_empty() || word.contains(' ') || file.is_empty() { file } else { name }
    }

    /// Name and file: `sh (/usr/bin/dash)`; the file alone if it has that name. Empty for several
    /// programs.
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
    /// How many processes the job has; 0 if it was not told.
    pub of: u32,
}

/// A recording that was merged into another one.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Run {
    /// Its number among them, from 1.
    pub number: u32,
    /// What it was called.
    pub recording: String,
}

/// When a process image ran, and how it ended.
#[derive(Clone, Debug)]
pub struct Lifetime {
    /// Start, nanoseconds since 1970-01-01 UTC.
    pub start_realtime_ns: u64,
    /// From start to end, or to the last sign of life, nanoseconds.
    pub duration_ns: u64,
    /// Whether `duration_ns` is all of it; else the image is known to have lasted at least so long.
    pub duration_is_known: bool,
    /// How it ended.
    pub end: End,
}

/// How a process image ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// With this status.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
    /// Another program took its place.
    Exec,
    /// It has not, but its recording: the command that had attached to it detached.
    Detached,
    /// It has not.
    Running,
    /// Nobody noted it.
    Unknown,
}
