//! Observes from outside when the process images of a recording end, for those that could not
//! record it themselves.
//!
//! The directory of the recording reports each new profile, and a descriptor of its process becomes
//! readable when that ends. Nothing is polled.
//!
//! The kernel takes about 10 ms to stop watching a directory. So watching starts only when the
//! program has run for a while, and the descriptor stays open until everything else is done.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::process::ExitStatus;

use heaptide_clock as clock;
use heaptide_format::{self as format, End, FileHeader, PROFILE_SUFFIX};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::Pid;
use zerocopy::FromBytes;

use crate::exec;
use crate::process;

/// The most processes to watch at once, because each takes a descriptor. The ends of others are not
/// recorded.
const WATCHED_MAX: u64 = 256;
/// The fraction of this process's descriptors to use for that.
const DESCRIPTORS_PART: u64 = 4;
/// The most ends to record, because each takes about 50 bytes of the recording.
const ENDS_MAX: usize = 100_000;

/// The end of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageEnd {
    /// `PID-IMAGE`.
    pub image: String,
    /// Monotonic clock, nanoseconds.
    pub monotonic_ns: u64,
    /// The status of its process, if it is known.
    pub status: Option<ExitStatus>,
}

/// A running process that has created a profile.
struct Process {
    pid: u32,
    /// Its last image, `PID-IMAGE`.
    image: String,
    /// Its start, in clock ticks since boot.
    start_ticks: u64,
    /// `None` if it ended before it could be watched.
    end: Option<OwnedFd>,
}

/// The images of a recording.
pub struct Images {
    directory: File,
    /// The pid of the program in its own pid namespace.
    program: u32,
    /// Reports new profiles, once watching has started.
    news: Option<(Inotify, WatchDescriptor)>,
    /// Inode of our pid namespace.
    namespace: u64,
    watched_max: usize,
    running: Vec<Process>,
    ended: Vec<ImageEnd>,
}

impl Images {
    /// Creates it for a recording's directory, and the pid of the program in its own namespace.
    ///
    /// Errors: there is no free descriptor, or no `/proc`.
    pub fn new(directory: &File, program: u32) -> io::Result<Images> {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
        Ok(Images {
            directory: directory.try_clone()?,
            program,
            news: None,
            namespace: fs::metadata("/proc/self/ns/pid")?.ino(),
            watched_max: (limit / DESCRIPTORS_PART).min(WATCHED_MAX) as usize,
            running: Vec::new(),
            ended: Vec::new(),
        })
    }

    /// Starts to watch the processes of the recording.
    ///
    /// Errors: the kernel has no free descriptor or watch.
    pub(crate) fn watch(&mut self) -> io::Result<()> {
        let news = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let watch = news.add_watch(&*here(&self.directory), AddWatchFlags::IN_CREATE)?;
        self.news = Some((news, watch));
        for (pid, image) in self.last_images() {
            self.began(pid, &format!("{pid}-{image}"));
        }
        // Those that have ended did so at an unknown time before.
        self.running.retain(|process| process.end.is_some());
        Ok(())
    }

    /// Returns the last image of each pid in the recording.
    fn last_images(&self) -> HashMap<u32, u32> {
        let mut last = HashMap::new();
        for entry in fs::read_dir(here(&self.directory)).into_iter().flatten().flatten() {
            if let Some((pid, image)) = entry.file_name().to_str().and_then(numbers) {
                let known = last.entry(pid).or_insert(image);
                *known = image.max(*known);
            }
        }
        last
    }

    /// Returns the descriptors that become readable on an event.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let ends = self.running.iter().filter_map(|process| process.end.as_ref());
        ends.map(AsFd::as_fd).chain(self.news.iter().map(|(news, _)| news.as_fd()))
    }

    /// Returns the processes that are watched, without the program.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.running.iter().map(|process| process.pid)
    }

    /// Updates the images that have started and ended.
    pub(crate) fn look(&mut self) {
        while let Some(Ok(events)) = self.news.as_ref().map(|(news, _)| news.read_events()) {
            for name in events.into_iter().filter_map(|event| event.name?.into_string().ok()) {
                if let Some((pid, image)) = numbers(&name) {
                    self.began(pid, &format!("{pid}-{image}"));
                }
            }
        }
        let now = clock::now_ns();
        let all = std::mem::take(&mut self.running);
        let (ended, running): (Vec<_>, Vec<_>) = all.into_iter().partition(Process::has_ended);
        self.running = running;
        for process in ended {
            if self.ended.len() < ENDS_MAX && self.cannot_tell(&process) {
                let status = process.status();
                self.ended.push(ImageEnd { image: process.image, monotonic_ns: now, status });
            }
        }
    }

    fn began(&mut self, pid: u32, image: &str) {
        if pid == self.program {
            return; // waitpid reports its end more exactly
        }
        if let Some(process) = self.running.iter_mut().find(|process| process.is_still(pid)) {
            image.clone_into(&mut process.image);
        } else if self.running.len() < self.watched_max {
            self.running.extend(Process::new(pid, image));
        }
    }

    /// Returns whether a profile belongs to exactly this process, which ended without recording
    /// that.
    fn cannot_tell(&self, process: &Process) -> bool {
        let name = format!("{}/{}{PROFILE_SUFFIX}", here(&self.directory), process.image);
        let mut bytes = [0; size_of::<FileHeader>()];
        let read = File::open(name).and_then(|mut file| file.read_exact(&mut bytes));
        let header = FileHeader::read_from_bytes(&bytes).ok();
        read.is_ok()
            && header.is_some_and(|header| {
                header.magic == format::MAGIC
                    && header.end_kind == End::Unknown as u32
                    // A pid of another namespace would refer to a different process here.
                    && header.pid_namespace == self.namespace
                    && (process.end.is_none() || header.process_start_ticks == process.start_ticks)
            })
    }

    /// Returns the observed ends, including that of the program, and stops watching.
    pub(crate) fn finish(&mut self, program_end_ns: u64) -> Vec<ImageEnd> {
        self.look();
        if let Some((news, watch)) = &self.news {
            let _ = news.rm_watch(*watch); // otherwise it ends with the descriptor
        }
        let last = self.last_images().remove(&self.program);
        let image = last.map(|image| format!("{}-{image}", self.program));
        let of_program = |image| ImageEnd { image, monotonic_ns: program_end_ns, status: None };
        let own = image.map(of_program);
        own.into_iter().chain(std::mem::take(&mut self.ended)).collect()
    }
}

/// Returns pid and image in a profile's name.
fn numbers(file: &str) -> Option<(u32, u32)> {
    let (pid, image) = file.strip_suffix(PROFILE_SUFFIX)?.split_once('-')?;
    Some((pid.parse().ok()?, image.parse().ok()?))
}

/// Returns a path to an open directory that stays valid if it is moved.
fn here(directory: &File) -> String {
    format!("/proc/self/fd/{}", directory.as_raw_fd())
}

impl Process {
    /// Returns `None` if it cannot be watched.
    fn new(pid: u32, image: &str) -> Option<Process> {
        let end = match exec::pidfd(Pid::from_raw(pid as i32)) {
            Ok(end) => Some(end),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => None,
            Err(_) => return None,
        };
        let start_ticks = start_ticks(pid).unwrap_or(0);
        Some(Process { pid, image: image.to_owned(), start_ticks, end })
    }

    /// Returns whether this process still runs, with this pid.
    fn is_still(&self, pid: u32) -> bool {
        self.pid == pid && !self.has_ended()
    }

    /// Returns the status of the process, which has ended. Its parent may reap it at any moment.
    fn status(&self) -> Option<ExitStatus> {
        let is_it = start_ticks(self.pid) == Some(self.start_ticks);
        let unreaped = is_it.then(|| process::Process::unreaped_status(self.pid)).flatten();
        unreaped.or_else(|| exec::status_after_reaping(self.end.as_ref()?.as_fd()))
    }

    fn has_ended(&self) -> bool {
        let Some(end) = &self.end else { return true };
        let mut end = [PollFd::new(end.as_fd(), PollFlags::POLLIN)];
        poll(&mut end, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }
}

/// Returns the start of a process, in clock ticks since boot.
fn start_ticks(pid: u32) -> Option<u64> {
    process::Process::read(pid).map(|process| process.start_ticks)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::os::unix::process::ExitStatusExt;
    use std::path::Path;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    use heaptide_fixtures::Scratch;
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;

    fn directory(name: &str) -> (Scratch, File) {
        let path = Scratch::new(name);
        let open = File::open(&path).expect("the directory");
        (path, open)
    }

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().expect("sleep")
    }

    fn profile(directory: &Path, image: &str, change: impl Fn(&mut FileHeader), pid: u32) {
        let mut header = FileHeader::new_zeroed();
        header.magic = format::MAGIC;
        header.process_start_ticks = start_ticks(pid).expect("the process");
        header.pid_namespace = fs::metadata("/proc/self/ns/pid").expect("/proc").ino();
        change(&mut header);
        let file = File::create(directory.join(format!("{image}.profile"))).expect("a profile");
        file.write_all_at(header.as_bytes(), 0).expect("the head");
    }

    fn kill(mut child: Child) {
        child.kill().expect("kill");
        child.wait().expect("wait");
    }

    fn watched(open: &File) -> Images {
        let mut images = Images::new(open, 1).expect("images");
        images.watch().expect("a watch");
        images
    }

    fn ended(images: &Images) -> Vec<&str> {
        images.ended.iter().map(|end| &*end.image).collect()
    }

    #[test]
    fn the_last_image_of_a_killed_process_is_marked_as_ended() {
        let (path, open) = directory("killed");
        let mut images = watched(&open);
        let child = sleeper();
        let pid = child.id();
        for image in 0..2 {
            profile(&path, &format!("{pid}-{image}"), |_| {}, pid);
            images.look();
        }
        assert_eq!((images.running.len(), ended(&images)), (1, vec![]));
        let before = clock::now_ns();
        kill(child);
        images.look();
        assert_eq!(ended(&images), [format!("{pid}-1")]);
        // Kernels before 6.15 do not keep the status of a process that was reaped.
        let signal = |end: &ImageEnd| end.status.and_then(|status| status.signal());
        assert!([None, Some(libc::SIGKILL)].contains(&signal(&images.ended[0])));
        assert!((before..=clock::now_ns()).contains(&images.ended[0].monotonic_ns));
        profile(&path, "1-0", |_| {}, std::process::id());
        profile(&path, "1-1", |_| {}, std::process::id());
        let all = images.finish(7);
        assert_eq!(all[0], ImageEnd { image: "1-1".to_owned(), monotonic_ns: 7, status: None });
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn the_status_of_a_process_is_known_until_its_parent_reaps_it() {
        let (path, open) = directory("unreaped");
        let mut images = watched(&open);
        let mut child = sleeper();
        profile(&path, &format!("{}-0", child.id()), |_| {}, child.id());
        images.look();
        child.kill().expect("kill");
        while ended(&images).is_empty() {
            std::thread::yield_now();
            images.look();
        }
        let status = images.ended[0].status.expect("a status");
        assert_eq!(status.signal(), Some(libc::SIGKILL));
        child.wait().expect("wait");
    }

    /// They had the time of the first look, a tenth of a second after the start of the program.
    #[test]
    fn ends_before_the_first_look_have_no_time() {
        let (path, open) = directory("ended");
        let child = sleeper();
        let pid = child.id();
        profile(&path, &format!("{pid}-0"), |_| {}, pid);
        kill(child);
        let mut images = watched(&open);
        images.look();
        assert_eq!((images.running.len(), ended(&images)), (0, vec![]));
    }

    #[test]
    fn earlier_processes_are_watched_too() {
        let (path, open) = directory("before");
        let mut images = Images::new(&open, 1).expect("images");
        let child = sleeper();
        let pid = child.id();
        (0..11).for_each(|image| profile(&path, &format!("{pid}-{image}"), |_| {}, pid));
        images.watch().expect("a watch");
        kill(child);
        assert_eq!(
            images.finish(7).iter().map(|end| &*end.image).collect::<Vec<_>>(),
            [format!("{pid}-10")]
        );
    }

    #[test]
    fn other_profiles_and_recorded_ends_are_not_changed() {
        let (path, open) = directory("others");
        let mut images = watched(&open);
        let changes: [fn(&mut FileHeader); 4] = [
            |header| header.pid_namespace += 1,
            |header| header.process_start_ticks += 1,
            |header| header.end_kind = End::Exited as u32,
            |header| header.magic = [0; 8],
        ];
        for change in changes {
            let child = sleeper();
            profile(&path, &format!("{}-0", child.id()), change, child.id());
            images.look();
            assert_eq!(images.running.len(), 1);
            kill(child);
            images.look();
        }
        fs::write(path.join("notes.profile"), "x").expect("a file");
        fs::write(path.join("12-0.trace"), "x").expect("a file");
        images.look();
        assert_eq!((images.running.len(), ended(&images)), (0, vec![]));
    }

    #[test]
    fn a_process_that_ends_immediately_has_ended_now() {
        let (path, open) = directory("gone");
        let mut images = watched(&open);
        let child = sleeper();
        let pid = child.id();
        profile(&path, &format!("{pid}-0"), |_| {}, pid);
        kill(child);
        images.look();
        assert_eq!(ended(&images), [format!("{pid}-0")]);
    }

    #[test]
    fn an_end_wakes_waiting_threads() {
        let (path, open) = directory("wakes");
        let mut images = watched(&open);
        let child = sleeper();
        profile(&path, &format!("{}-0", child.id()), |_| {}, child.id());
        images.look();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            kill(child);
        });
        let mut all: Vec<PollFd> =
            images.descriptors().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        assert_eq!(all.len(), 2);
        let start = Instant::now();
        assert_eq!(poll(&mut all, PollTimeout::from(60_000u16)), Ok(1));
        assert!(start.elapsed() >= Duration::from_millis(10));
        killer.join().expect("the killer");
    }
}
