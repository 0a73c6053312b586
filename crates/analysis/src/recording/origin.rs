//! Origins of processes: the process itself, its host, or its rank in a parallel job.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::{Process, Run};

/// The property by which processes are grouped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Each process image separately.
    Process,
    /// The machine.
    Host,
    /// The place in a parallel job.
    Rank,
}

impl Origin {
    /// Returns all origins.
    pub const fn all() -> &'static [Origin] {
        &[Origin::Process, Origin::Host, Origin::Rank]
    }

    /// Returns the name in options.
    pub const fn name(self) -> &'static str {
        match self {
            Origin::Process => "process",
            Origin::Host => "host",
            Origin::Rank => "rank",
        }
    }

    /// Returns the plural of the name.
    pub const fn plural(self) -> &'static str {
        match self {
            Origin::Process => "processes",
            Origin::Host => "hosts",
            Origin::Rank => "ranks",
        }
    }
}

/// Error of a name that is not an origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownOrigin(pub String);

impl fmt::Display for UnknownOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown grouping `{}` of processes; expected one of", self.0)?;
        Origin::all().iter().try_for_each(|by| write!(f, " {}", by.name()))
    }
}

impl std::error::Error for UnknownOrigin {}

impl FromStr for Origin {
    type Err = UnknownOrigin;

    fn from_str(name: &str) -> Result<Origin, UnknownOrigin> {
        let found = Origin::all().iter().find(|by| by.name() == name);
        found.copied().ok_or_else(|| UnknownOrigin(name.to_owned()))
    }
}

/// Process images with the same origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// The display name: `pid 4711 app`, `host node1`, `rank 3`.
    pub name: Arc<str>,
    /// The number of the rank, if processes are grouped by rank and have one.
    pub rank: Option<u32>,
    /// Indices into the processes, ascending.
    pub members: Vec<usize>,
}

/// Groups processes: ranks by number, processes without a rank last; hosts by name; processes in
/// their order. Ranks of different jobs are different groups, and so are equal pids of different
/// runs.
///
/// ```
/// use heaptide_analysis::recording::origin::{Origin, groups};
/// # let mut bytes = vec![0; 4096];
/// # bytes[..8].copy_from_slice(b"HEAPTIDE");
/// # (bytes[8], bytes[12], bytes[16], bytes[65]) = (1, 2, 7, 16);
/// # let process = heaptide_analysis::model::Process::from_bytes(&bytes, "x".as_ref()).unwrap();
/// let groups = groups(&[process], Origin::Process);
/// assert_eq!((&*groups[0].name, &*groups[0].members), ("pid 7", &[0][..]));
/// ```
pub fn groups<P: Borrow<Process>>(processes: &[P], by: Origin) -> Vec<Group> {
    let processes: Vec<&Process> = processes.iter().map(Borrow::borrow).collect();
    let naming = Naming::of(&processes, by);
    let mut groups: Vec<(Key, Group)> = Vec::new();
    let mut known: FxHashMap<Key, usize> = FxHashMap::default();
    for (index, process) in processes.into_iter().enumerate() {
        let key = naming.key(index, process);
        let at = *known.entry(key.clone()).or_insert_with(|| {
            let rank = process.identity.rank.filter(|_| by == Origin::Rank).map(|rank| rank.number);
            let name = Arc::from(naming.name(&key, process));
            groups.push((key, Group { name, rank, members: Vec::new() }));
            groups.len() - 1
        });
        groups[at].1.members.push(index);
    }
    groups.sort_by(|a, b| a.0.cmp(&b.0));
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The grouping key; groups are sorted by it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    Process(usize),
    Host(String),
    Rank { number: u32, run: u32, job: String },
    NoRank,
}

/// Additional parts of names that make them unique.
struct Naming {
    by: Origin,
    runs: bool,
    jobs: bool,
    images: bool,
}

impl Naming {
    fn of(processes: &[&Process], by: Origin) -> Naming {
        let several = |distinct: FxHashSet<&str>| distinct.len() > 1;
        let ranked = || processes.iter().filter(|p| p.identity.rank.is_some());
        let jobs = several(ranked().map(|p| p.identity.job.as_str()).collect());
        let mut run_of_pid = FxHashMap::default();
        let runs = match by {
            Origin::Host => false,
            // Recordings of one rank each belong to the same job; a recording with several ranks is
            // a job of its own.
            Origin::Rank => !jobs && has_jobs_for_runs(processes),
            Origin::Process => processes.iter().any(|p| {
                *run_of_pid.entry((&p.identity.host, p.identity.pid)).or_insert(number(p))
                    != number(p)
            }),
        };
        let mut named = FxHashSet::default();
        let mut one_of_each = processes
            .iter()
            .map(|p| (number(p), &p.identity.host, p.identity.pid, &p.identity.program));
        let images = by == Origin::Process && one_of_each.any(|name| !named.insert(name));
        Naming { by, runs, jobs, images }
    }

    fn key(&self, index: usize, process: &Process) -> Key {
        match (self.by, process.identity.rank) {
            (Origin::Process, _) => Key::Process(index),
            (Origin::Host, _) => Key::Host(process.identity.host.clone()),
            (Origin::Rank, None) => Key::NoRank,
            (Origin::Rank, Some(rank)) => Key::Rank {
                number: rank.number,
                run: if self.runs { number(process) } else { 0 },
                job: process.identity.job.clone(),
            },
        }
    }

    fn name(&self, key: &Key, process: &Process) -> String {
        let run = if self.runs { format!("run {} ", number(process)) } else { String::new() };
        match key {
            Key::NoRank => "no rank".to_owned(),
            Key::Host(host) if host.is_empty() => "unknown host".to_owned(),
            Key::Host(host) => format!("host {host}"),
            Key::Rank { number, job, .. } => {
                let job = if self.jobs { format!("job {job} ") } else { String::new() };
                format!("{job}{run}rank {number}")
            }
            Key::Process(_) => {
                let program = process.identity.name();
                let image = if self.images && process.identity.image > 0 {
                    format!(" image {}", process.identity.image)
                } else {
                    String::new()
                };
                format!("{run}pid {}{image} {program}", process.identity.pid).trim_end().to_owned()
            }
        }
    }
}

impl Process {
    /// Returns its pid, or the number of joined process images.
    ///
    /// ```
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[16], bytes[65]) = (1, 2, 7, 16);
    /// use heaptide_analysis::model::Process;
    /// let process = Process::from_bytes(&bytes, "7-0.profile".as_ref()).unwrap();
    /// assert_eq!(process.who(), "pid 7");
    /// ```
    pub fn who(&self) -> String {
        match self.identity.images {
            0 | 1 => format!("pid {}", self.identity.pid),
            images => format!("{images} process images"),
        }
    }
}

/// Returns whether there are several runs and one of them has several ranks.
fn has_jobs_for_runs(processes: &[&Process]) -> bool {
    let runs: FxHashSet<u32> = processes.iter().map(|p| number(p)).collect();
    let mut rank_of_run = FxHashMap::default();
    let mut ranked = processes.iter().filter_map(|p| Some((number(p), p.identity.rank?.number)));
    runs.len() > 1 && ranked.any(|(run, rank)| *rank_of_run.entry(run).or_insert(rank) != rank)
}

fn number(process: &Process) -> u32 {
    process.identity.run.as_ref().map_or(0, |Run { number, .. }| *number)
}
