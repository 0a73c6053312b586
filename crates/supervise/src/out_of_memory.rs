//! Counts the processes that the kernel killed because memory ran out: in the control group of this
//! process or, if that has no count, on this machine.

use std::fs;
use std::path::{Path, PathBuf};

/// What the kernel killed within a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kills {
    /// The number of processes.
    pub processes: u64,
    /// Whether only processes of the control group count.
    pub is_of_group: bool,
}

/// A count that has begun.
#[derive(Debug)]
pub struct Counting {
    /// The file of the kernel's count.
    file: PathBuf,
    before: u64,
    is_of_group: bool,
}

impl Counting {
    /// Begins to count; `None` if the kernel has no count (before 4.13).
    pub fn begin() -> Option<Counting> {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let of_groups = groups.lines().filter_map(file_of).map(|file| (file, true));
        let mut files = of_groups.chain([("/proc/vmstat".into(), false)]);
        files.find_map(|(file, is_of_group)| {
            Some(Counting { before: count(&file)?, file, is_of_group })
        })
    }

    /// Returns what was killed since then.
    pub fn end(&self) -> Kills {
        let processes = count(&self.file).unwrap_or(0).saturating_sub(self.before);
        Kills { processes, is_of_group: self.is_of_group }
    }
}

/// Returns the file with the count of a control group, from its line in `/proc/PID/cgroup`:
/// `NUMBER:CONTROLLERS:PATH`, in version 2 without controllers.
fn file_of(line: &str) -> Option<PathBuf> {
    let (_, group) = line.split_once(':')?;
    let (controllers, path) = group.split_once(':')?;
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.events"),
        _ if controllers.split(',').any(|name| name == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.oom_control")
        }
        _ => return None,
    };
    Some(Path::new(root).join(path.trim_start_matches('/')).join(file))
}

fn count(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_control_groups() {
        let of = |line| file_of(line).map(|file| file.display().to_string());
        let second = "/sys/fs/cgroup/user.slice/a.scope/memory.events";
        assert_eq!(of("0::/user.slice/a.scope").as_deref(), Some(second));
        assert_eq!(of("0::/").as_deref(), Some("/sys/fs/cgroup/memory.events"));
        let first = "/sys/fs/cgroup/memory/docker/12/memory.oom_control";
        assert_eq!(of("4:cpu,memory:/docker/12").as_deref(), Some(first));
        assert_eq!(of("8:pids:/docker/12"), None);
        assert_eq!(of(""), None);
    }

    #[test]
    fn the_kernel_s_forms_of_the_count() {
        let scratch = heaptide_fixtures::Scratch::new("out-of-memory");
        let file = scratch.join("count");
        let of = |text: &str| {
            fs::write(&file, text).expect("a file");
            count(&file)
        };
        assert_eq!(of("low 0\nhigh 0\nmax 31\noom 2\noom_kill 1\noom_group_kill 0\n"), Some(1));
        assert_eq!(of("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), Some(3));
        assert_eq!(of("oom_kill_disable 0\nunder_oom 0\n"), None);
        let (before, is_of_group) = (2, true);
        fs::write(&file, "oom_kill 5\n").expect("a file");
        let counting = Counting { file: file.clone(), before, is_of_group };
        assert_eq!(counting.end(), Kills { processes: 3, is_of_group });
        fs::remove_file(&file).expect("it is there");
        assert_eq!(counting.end(), Kills { processes: 0, is_of_group });
    }
}
