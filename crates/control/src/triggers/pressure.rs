//! Detects memory pressure from outside of programs: pressure that the kernel measures (PSI), and
//! control groups close to their limits.
//!
//! Files are read at every poll, so changed limits apply immediately. The kernel notifies of PSI if
//! permitted; otherwise its totals are read.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A control group is close to its limit if its memory without the page cache reaches this fraction
/// of it: nine tenths.
const CLOSE: [u64; 2] = [9, 10];
/// Throttling and reclaim of a group count only from this fraction of its limit on: three quarters.
/// Below it, they are caused by the page cache alone. The cache is read only from there on.
const USED: [u64; 2] = [3, 4];
/// Without PSI, memory is short if at most this fraction of it is available: a twentieth.
const AVAILABLE_PART: u64 = 20;
/// Maximum number of observed control groups, and of ancestors of each.
const GROUPS_MAX: usize = 64;
const DEPTH_MAX: usize = 32;
/// PSI triggers: some task waits for memory for 150 ms within 1 s; where that requires privileges,
/// 300 ms within 2 s.
const PSI_TRIGGERS: [&[u8]; 2] = [b"some 150000 1000000\0", b"some 300000 2000000\0"];
/// The same fraction based on totals, and the interval at which these are read.
const PSI_PART: [u32; 2] = [15, 100];
const PSI_SPAN: Duration = Duration::from_secs(1);

/// The memory of control groups and of the machine.
#[derive(Debug)]
pub(crate) struct Groups {
    machine: Machine,
    groups: Vec<Group>,
    /// Mount points of control groups.
    mounts: Vec<Mount>,
    /// Where the last poll found pressure: indices of groups, or `None` for the machine.
    pressed: Vec<Option<usize>>,
}

/// Index of a group of [`Groups`]; `None` if there are too many groups, or the process is in none.
pub(crate) type GroupId = Option<usize>;

/// Returns whether a poll found pressure on the processes of a group.
pub(crate) fn is_pressing_on(pressed: &[Option<usize>], group: GroupId) -> bool {
    pressed.iter().any(|&place| place.is_none() || place == group)
}

impl Groups {
    /// Opens the groups of this machine.
    pub(crate) fn new() -> Groups {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Groups {
            machine: Machine::new(Path::new("/proc")),
            groups: Vec::new(),
            mounts: mounts.lines().filter_map(Mount::of).collect(),
            pressed: Vec::new(),
        }
    }

    /// Returns the group of a process.
    pub(crate) fn of_process(&mut self, pid: u32) -> GroupId {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let place = self.mounts.iter().find_map(|mount| mount.place(&text))?;
        if let Some(known) = self.groups.iter().position(|group| group.place == place) {
            return Some(known);
        }
        if self.groups.len() >= GROUPS_MAX {
            return None;
        }
        let mount = self.mounts.iter().find(|mount| place.starts_with(&mount.at))?;
        self.groups.push(Group::new(&place, &mount.at, mount.version));
        Some(self.groups.len() - 1)
    }

    /// Polls all groups at a time since a fixed start. Returns where there is pressure: indices of
    /// groups, or `None` for the machine.
    pub(crate) fn look(&mut self, now: Duration) -> &[Option<usize>] {
        self.pressed.clear();
        if self.machine.is_short(now) {
            self.pressed.push(None);
        }
        for (number, group) in self.groups.iter_mut().enumerate() {
            if group.is_short(now) {
                self.pressed.push(Some(number));
            }
        }
        &self.pressed
    }
}

/// The version of control groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    V1,
    V2,
}

/// A mount point of groups with memory accounting.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Mount {
    version: Version,
    /// The group that is mounted there, as named in `/proc/PID/cgroup`.
    root: PathBuf,
    at: PathBuf,
}

impl Mount {
    /// Parses a line of `/proc/PID/mountinfo`; returns `None` if it is not a mount of groups with
    /// memory accounting.
    fn of(line: &str) -> Option<Mount> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = file_system.split(' ');
        let version = match (fields.next()?, fields.nth(1)?) {
            ("cgroup2", _) => Version::V2,
            ("cgroup", options) if options.split(',').any(|o| o == "memory") => Version::V1,
            _ => return None,
        };
        let mut fields = mount.split(' ').skip(3);
        let (root, at) = (fields.next()?.into(), fields.next()?.into());
        Some(Mount { version, root, at })
    }

    /// Returns the directory of a process's group, given its `/proc/PID/cgroup`, if the group is
    /// mounted here and has memory accounting.
    fn place(&self, of_process: &str) -> Option<PathBuf> {
        let group = of_process.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let is_it = match self.version {
                Version::V2 => controllers.is_empty(),
                Version::V1 => controllers.split(',').any(|name| name == "memory"),
            };
            is_it.then(|| Path::new(path))
        })?;
        // Groups outside of the namespace begin with `..`.
        let below = group.strip_prefix(&self.root).ok()?;
        let is_plain = below.components().all(|part| matches!(part, Component::Normal(_)));
        let place = self.at.join(below);
        let counts = ["memory.current", "memory.usage_in_bytes", "memory.pressure"];
        (is_plain && counts.iter().any(|file| place.join(file).exists())).then_some(place)
    }
}

/// A control group.
#[derive(Debug)]
struct Group {
    place: PathBuf,
    /// The group and its ancestors, each of which can have a limit.
    levels: Vec<Nested>,
    pressure: Option<Psi>,
}

/// A control group or an ancestor.
#[derive(Debug)]
struct Nested {
    place: PathBuf,
    version: Version,
    /// Events of memory shortage so far; `None` before the first poll.
    events: Option<Events>,
}

/// The counted events of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Events {
    /// Throttling at `memory.high`, or reclaim at the limit.
    limited: u64,
    /// Allocations that failed after reclaim.
    oom: u64,
}

impl Group {
    fn new(place: &Path, mount: &Path, version: Version) -> Group {
        let around = place.ancestors().take_while(|around| around.starts_with(mount));
        let nested = |place: &Path| Nested { place: place.to_owned(), version, events: None };
        let pressure = Psi::open(&place.join("memory.pressure"));
        Group {
            place: place.to_owned(),
            levels: around.take(DEPTH_MAX).map(nested).collect(),
            pressure,
        }
    }

    fn is_short(&mut self, now: Duration) -> bool {
        // All levels are polled, without short circuit, because each poll updates the counts that
        // the next one compares.
        let levels = self.levels.iter_mut().filter_map(|level| level.is_short().then_some(()));
        let has_short_level = levels.count() > 0;
        self.pressure.as_mut().is_some_and(|psi| psi.is_short(now)) || has_short_level
    }
}

impl Nested {
    fn is_short(&mut self) -> bool {
        let Some((current, limit)) = self.current_and_limit() else { return false };
        let events = self.events();
        let before = self.events.replace(events).unwrap_or(events);
        if events.oom > before.oom {
            return true;
        }
        if !is_part(current, limit, USED) {
            return false;
        }
        let used = current.saturating_sub(self.cache());
        let was_limited = events.limited > before.limited;
        is_part(used, limit, CLOSE) || (was_limited && is_part(used, limit, USED))
    }

    /// Returns the used bytes and the lowest limit; `None` without a limit.
    fn current_and_limit(&self) -> Option<(u64, u64)> {
        let (current, limits): (_, &[&str]) = match self.version {
            Version::V2 => ("memory.current", &["memory.high", "memory.max"]),
            Version::V1 => ("memory.usage_in_bytes", &["memory.limit_in_bytes"]),
        };
        let limits = limits.iter().filter_map(|file| self.number(file));
        // In version 1, the root has a limit close to 2^63, which means none.
        let limit = limits.min().filter(|&limit| limit > 0 && limit < 1 << 62)?;
        Some((self.number(current)?, limit))
    }

    /// Returns the bytes of file pages, which the kernel can drop when memory is short.
    fn cache(&self) -> u64 {
        let text = self.read("memory.stat");
        let of = |name| field(&text, name).unwrap_or(0);
        match self.version {
            Version::V2 => of("inactive_file") + of("active_file"),
            Version::V1 => of("total_inactive_file") + of("total_active_file"),
        }
    }

    fn events(&self) -> Events {
        match self.version {
            Version::V2 => {
                let text = self.read("memory.events");
                let of = |name| field(&text, name).unwrap_or(0);
                Events { limited: of("high").saturating_add(of("max")), oom: of("oom") }
            }
            Version::V1 => Events { limited: self.number("memory.failcnt").unwrap_or(0), oom: 0 },
        }
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.place.join(file)).unwrap_or_default()
    }

    /// Returns `None` if the file does not exist or contains `max`.
    fn number(&self, file: &str) -> Option<u64> {
        self.read(file).trim().parse().ok()
    }
}

/// Returns whether a number is at least this fraction of another.
fn is_part(number: u64, of: u64, [part, parts]: [u64; 2]) -> bool {
    u128::from(number) * u128::from(parts) >= u128::from(of) * u128::from(part)
}

/// Returns the number after a name, in lines of a name and a number.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut fields = text.lines().filter_map(|line| line.split_once(' '));
    fields.find(|(known, _)| *known == name)?.1.trim().parse().ok()
}

/// The memory of the machine.
#[derive(Debug)]
struct Machine {
    pressure: Option<Psi>,
    meminfo: PathBuf,
}

impl Machine {
    /// Opens the memory of the machine, based on `/proc` or a directory like it.
    fn new(proc: &Path) -> Machine {
        let pressure = Psi::open(&proc.join("pressure/memory"));
        Machine { pressure, meminfo: proc.join("meminfo") }
    }

    fn is_short(&mut self, now: Duration) -> bool {
        if let Some(pressure) = &mut self.pressure {
            return pressure.is_short(now);
        }
        let text = fs::read_to_string(&self.meminfo).unwrap_or_default();
        let kilobytes = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().trim_end_matches(" kB").parse::<u64>().ok()
        };
        let both = kilobytes("MemAvailable:").zip(kilobytes("MemTotal:"));
        both.is_some_and(|(available, all)| available < all / AVAILABLE_PART)
    }
}

/// The source of pressure measurements.
#[derive(Debug)]
enum Psi {
    /// The kernel notifies.
    Notified(File),
    /// The totals are polled.
    Read {
        path: PathBuf,
        /// Time of the last poll, and total waiting time in microseconds then.
        last: Option<(Duration, u64)>,
    },
}

impl Psi {
    /// Returns `None` if there is no such file or it cannot be read, as in a kernel without PSI.
    fn open(path: &Path) -> Option<Psi> {
        waited_us(path)?;
        // Each descriptor can have one trigger. Only files of the kernel support triggers.
        let notified = PSI_TRIGGERS.iter().find_map(|trigger| {
            let mut file = OpenOptions::new().read(true).write(true).open(path).ok()?;
            let is_of_kernel = nix::sys::statfs::fstatfs(&file).is_ok_and(|system| {
                use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, PROC_SUPER_MAGIC};
                [CGROUP2_SUPER_MAGIC, PROC_SUPER_MAGIC].contains(&system.filesystem_type())
            });
            (is_of_kernel && file.write_all(trigger).is_ok()).then_some(file)
        });
        let read = || Psi::Read { path: path.to_owned(), last: None };
        Some(notified.map_or_else(read, Psi::Notified))
    }

    fn is_short(&mut self, now: Duration) -> bool {
        match self {
            Psi::Notified(file) => {
                let mut all = [PollFd::new(file.as_fd(), PollFlags::POLLPRI)];
                let ready = poll(&mut all, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
                // POLLERR: the group was removed.
                let seen = all[0].revents().unwrap_or(PollFlags::empty());
                ready && seen.contains(PollFlags::POLLPRI) && !seen.contains(PollFlags::POLLERR)
            }
            Psi::Read { path, last } => {
                let &mut (then, before) = match last {
                    Some(last) if now.saturating_sub(last.0) < PSI_SPAN => return false,
                    Some(last) => last,
                    None => {
                        *last = waited_us(path).map(|waited| (now, waited));
                        return false;
                    }
                };
                let Some(waited) = waited_us(path) else { return false };
                *last = Some((now, waited));
                let part = Duration::from_micros(waited.saturating_sub(before));
                part * PSI_PART[1] >= now.saturating_sub(then) * PSI_PART[0]
            }
        }
    }
}

/// Returns the total time in microseconds in which some task waited for memory.
fn waited_us(path: &Path) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split(' ').find_map(|word| word.strip_prefix("total="))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use heaptide_fixtures::Scratch;

    use super::*;

    const MEBIBYTE: u64 = 1 << 20;

    /// Writes files of a directory that imitates a control group.
    fn write(place: &Path, files: &[(&str, String)]) {
        for (name, content) in files {
            fs::write(place.join(name), content).expect("a file");
        }
    }

    fn use_memory(place: &Path, mebibytes: u64, cache: u64) {
        let stat = format!("anon 1\ninactive_file {}\nactive_file 0\n", cache * MEBIBYTE);
        let current = format!("{}\n", mebibytes * MEBIBYTE);
        write(place, &[("memory.current", current), ("memory.stat", stat)]);
    }

    fn events(place: &Path, high: u64, max: u64, oom: u64) {
        let text = format!("low 0\nhigh {high}\nmax {max}\noom {oom}\noom_kill 0\n");
        write(place, &[("memory.events", text)]);
    }

    fn group(place: &Path) -> Group {
        Group::new(place, place, Version::V2)
    }

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn a_group_is_close_to_its_lowest_limit() {
        let place = Scratch::new("pressure-close");
        let limits =
            [("memory.high", "max\n".to_owned()), ("memory.max", "104857600\n".to_owned())];
        write(&place, &limits);
        events(&place, 0, 0, 0);
        let mut group = group(&place);
        let mut at = |mebibytes, cache| {
            use_memory(&place, mebibytes, cache);
            group.is_short(NOW)
        };
        // (used MiB, of which page cache, whether this is close to the limit of 100 MiB)
        for (mebibytes, cache, is_short) in
            [(50, 0, false), (89, 0, false), (90, 0, true), (99, 10, false), (99, 9, true)]
        {
            assert_eq!(at(mebibytes, cache), is_short, "{mebibytes} MiB, {cache} of them cache");
        }
        write(&place, &[("memory.high", "52428800\n".to_owned())]);
        assert!(at(45, 0), "a limit that was set meanwhile");
        write(&place, &[("memory.high", "max\n".to_owned()), ("memory.max", "max\n".to_owned())]);
        assert!(!at(1000, 0), "no limit");
    }

    #[test]
    fn a_group_that_was_held_back_is_short_unless_it_was_for_its_cache() {
        let place = Scratch::new("pressure-events");
        write(&place, &[("memory.max", "104857600\n".to_owned())]);
        use_memory(&place, 80, 0);
        events(&place, 7, 3, 0);
        let mut group = group(&place);
        assert!(!group.is_short(NOW), "what was before counts nothing");
        events(&place, 8, 3, 0);
        assert!(group.is_short(NOW) && !group.is_short(NOW), "each is seen once");
        events(&place, 8, 4, 0);
        assert!(group.is_short(NOW));
        use_memory(&place, 99, 50);
        events(&place, 9, 9, 0);
        assert!(!group.is_short(NOW), "49 MiB of 100 are used");
        events(&place, 9, 9, 1);
        assert!(group.is_short(NOW), "reclaiming did not help");
        fs::remove_file(place.join("memory.current")).expect("the file");
        assert!(!group.is_short(NOW), "the group is gone");
    }

    #[test]
    fn limits_of_groups_around_count_too() {
        let mount = Scratch::new("pressure-around");
        let inner = mount.join("service/worker");
        fs::create_dir_all(&inner).expect("groups");
        write(&mount.join("service"), &[("memory.max", "104857600".to_owned())]);
        use_memory(&mount.join("service"), 95, 0);
        use_memory(&inner, 10, 0);
        write(&inner, &[("memory.max", "max".to_owned())]);
        assert!(Group::new(&inner, &mount, Version::V2).is_short(NOW));
        assert_eq!(Group::new(&inner, &mount, Version::V2).levels.len(), 3);
        assert!(!Group::new(&inner, &inner, Version::V2).is_short(NOW));
    }

    #[test]
    fn groups_of_version_1() {
        let place = Scratch::new("pressure-v1");
        let set = |usage: u64, cache: u64, failures: u64| {
            write(
                &place,
                &[
                    ("memory.usage_in_bytes", format!("{}\n", usage * MEBIBYTE)),
                    ("memory.limit_in_bytes", format!("{}\n", 100 * MEBIBYTE)),
                    ("memory.failcnt", format!("{failures}\n")),
                    ("memory.stat", format!("total_inactive_file {}\n", cache * MEBIBYTE)),
                ],
            );
        };
        let mut group = Group::new(&place, &place, Version::V1);
        for (usage, cache, failures, is_short) in [
            (80, 0, 5, false),
            (80, 0, 6, true),
            (80, 0, 6, false),
            (100, 40, 7, false),
            (91, 0, 7, true),
        ] {
            set(usage, cache, failures);
            assert_eq!(group.is_short(NOW), is_short, "{usage} MiB, {failures} failures");
        }
        write(&place, &[("memory.limit_in_bytes", "9223372036854771712\n".to_owned())]);
        assert!(!group.is_short(NOW), "no limit");
    }

    #[test]
    fn waiting_for_memory_counts_by_its_part_of_the_time() {
        let place = Scratch::new("pressure-psi");
        let path = place.join("memory.pressure");
        let waited = |us: u64| {
            let line = |kind| format!("{kind} avg10=0.00 avg60=0.00 avg300=0.00 total={us}\n");
            fs::write(&path, [line("some"), line("full")].concat()).expect("a file");
        };
        assert!(Psi::open(&path).is_none());
        waited(1_000_000);
        let mut psi = Psi::open(&path).expect("a file");
        let at = Duration::from_millis;
        assert!(!psi.is_short(at(0)), "the first look");
        waited(2_000_000);
        assert!(!psi.is_short(at(500)), "too early");
        assert!(psi.is_short(at(1000)));
        waited(2_149_999);
        assert!(!psi.is_short(at(2000)), "less than 150 ms in a second");
        waited(2_449_999);
        assert!(psi.is_short(at(4000)), "300 ms in two");
    }

    #[test]
    fn without_psi_memory_is_short_when_little_is_available() {
        let place = Scratch::new("pressure-meminfo");
        let mut machine = Machine::new(&place);
        assert!(!machine.is_short(NOW), "nothing is known");
        let mut with = |available: u64| {
            let text =
                format!("MemTotal:   1000000 kB\nMemFree: 1 kB\nMemAvailable: {available} kB\n");
            write(&place, &[("meminfo", text)]);
            machine.is_short(NOW)
        };
        assert!(!with(50_000) && with(49_999));
    }

    #[test]
    fn the_group_of_a_process_is_found_below_its_mount() {
        let scratch = Scratch::new("pressure-mount");
        let at = scratch.display();
        let line =
            |root: &str, kind: &str| format!("31 1 0:27 {root} {at} rw,nosuid shared:9 - {kind}");
        let group = scratch.join("a/b");
        fs::create_dir_all(&group).expect("a group");
        write(&group, &[("memory.current", "1".to_owned())]);
        let second = Mount::of(&line("/", "cgroup2 cgroup2 rw,nsdelegate")).expect("a mount");
        assert_eq!(second.version, Version::V2);
        assert_eq!(second.place("0::/a/b\n"), Some(group.clone()));
        for other in ["0::/a\n", "0::/../x\n", "3:memory:/a/b\n", "", "0::\n"] {
            assert_eq!(second.place(other), None, "{other}");
        }
        let of_container = Mount::of(&line("/docker/77", "cgroup2 cgroup rw")).expect("a mount");
        assert_eq!(of_container.place("0::/docker/77/a/b\n"), Some(group.clone()));
        let first = Mount::of(&line("/", "cgroup cgroup rw,memory")).expect("a mount");
        assert_eq!(first.place("9:cpu,cpuacct:/\n4:memory:/a/b\n0::/\n"), Some(group));
        assert_eq!(Mount::of(&line("/", "cgroup cgroup rw,cpu,cpuacct")), None);
        assert_eq!(Mount::of("22 1 0:20 / /proc rw - proc proc rw"), None);
    }

    #[test]
    fn pressure_on_the_machine_is_pressure_on_all() {
        assert!(is_pressing_on(&[None], Some(3)) && is_pressing_on(&[None], None));
        assert!(is_pressing_on(&[Some(1), Some(3)], Some(3)));
        assert!(!is_pressing_on(&[Some(1)], Some(3)) && !is_pressing_on(&[Some(1)], None));
    }
}
