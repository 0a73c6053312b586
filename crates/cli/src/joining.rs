//! Entering a recording: a command has one of its own, or shares one with the other commands of its
//! launch. The first of them creates the recording, the others join it, and the last one to end
//! seals it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use heaptide_analysis::files::file_names::RECORDING_SUFFIX;
use heaptide_analysis::recording::members;
use heaptide_analysis::recording::metadata::{Launch, Member, Metadata};
use heaptide_command::error::Error;

use crate::place::{Draft, Place, Recorded, is_being_made, resolve};

/// How long to wait for another command of the launch that creates the recording or holds its
/// exclusive lock. Both take milliseconds, or longer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait if no such command is visible.
const PATIENCE_UNSEEN: Duration = Duration::from_millis(500);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(2);

/// A recording that the program can be recorded into.
pub enum Seat {
    /// Created by this command. If the program does not start, the previous recording is restored.
    First(Draft),
    /// Created by another command of the launch.
    Later(Recorded),
}

/// A command's seat, and its number among the members of the launch.
pub struct Entered {
    /// The entered recording.
    pub seat: Seat,
    /// The member number; none outside of a launch.
    pub number: Option<u32>,
    /// The host on which other members write the requested recording, if it is another one.
    pub elsewhere: Option<String>,
}

impl Seat {
    /// Returns the path of the recording.
    pub fn path(&self) -> &Path {
        match self {
            Seat::First(draft) => draft.path(),
            Seat::Later(recorded) => recorded.path(),
        }
    }

    /// Keeps the recording, because the program has started.
    pub fn keep(self) -> Recorded {
        match self {
            Seat::First(draft) => draft.keep(),
            Seat::Later(recorded) => recorded,
        }
    }
}

/// Enters the recording at a path: creates it, or joins that of the launch.
///
/// Errors: something else is there, or it cannot be created.
pub fn enter(
    path: &Path,
    force: bool,
    metadata: &Metadata,
    member: &Member,
) -> Result<Entered, Error> {
    let Some(launch) = &metadata.launch else {
        let draft = make(path, force, metadata)?;
        return Ok(Entered { seat: Seat::First(draft), number: None, elsewhere: None });
    };
    let mut path = resolve(path)?;
    let mut elsewhere = None;
    let start = Instant::now();
    loop {
        let found = Found::at(&path, launch, member);
        let error = match &found {
            Found::Elsewhere(host) if elsewhere.is_none() => {
                path = on_host(&path, &launch.host);
                elsewhere = Some(host.clone());
                continue;
            }
            Found::Ours => match join(&path, member) {
                Ok(Some((recorded, number))) => {
                    return Ok(Entered { seat: Seat::Later(recorded), number, elsewhere });
                }
                Ok(None) => None,
                Err(error) => Some(error),
            },
            _ => match begin(&path, force, metadata, member) {
                Ok((draft, number)) => {
                    return Ok(Entered { seat: Seat::First(draft), number, elsewhere });
                }
                Err(error) if matches!(found, Found::Other) && !force => return Err(error),
                Err(error) => Some(error),
            },
        };
        let is_seen = matches!(found, Found::Ours) || is_being_made(&path);
        if start.elapsed() > if is_seen { PATIENCE } else { PATIENCE_UNSEEN } {
            let shown = path.display();
            return Err(error.unwrap_or_else(|| {
                Error::new(format!(
                    "{shown}: another command of the launch has it locked; try again with --force"
                ))
            }));
        }
        std::thread::sleep(PAUSE);
    }
}

fn make(path: &Path, force: bool, metadata: &Metadata) -> Result<Draft, Error> {
    let mut draft = Place::new(path, force)?.draft(metadata)?;
    draft.publish()?;
    Ok(draft)
}

/// Creates the recording as the first command of a launch.
fn begin(
    path: &Path,
    force: bool,
    metadata: &Metadata,
    member: &Member,
) -> Result<(Draft, Option<u32>), Error> {
    let mut draft = Place::new(path, force)?.draft(metadata)?;
    let number = members::add(draft.path(), member)?;
    draft.publish()?;
    Ok((draft, Some(number)))
}

/// Joins the recording of the launch; none if another command holds its exclusive lock.
fn join(path: &Path, member: &Member) -> Result<Option<(Recorded, Option<u32>)>, Error> {
    let Some(recorded) = Recorded::join(path)? else { return Ok(None) };
    let number = members::add(path, member)?;
    Ok(Some((recorded, Some(number))))
}

/// The contents of a recording's path.
enum Found {
    Nothing,
    /// The recording of the launch, which this member has not joined yet.
    Ours,
    /// The recording of the launch, written on this other host.
    Elsewhere(String),
    /// Anything else.
    Other,
}

impl Found {
    fn at(path: &Path, launch: &Launch, member: &Member) -> Found {
        if path.symlink_metadata().is_err() {
            return Found::Nothing;
        }
        let Ok(Some(Metadata { launch: Some(there), members, .. })) = Metadata::read(path) else {
            return Found::Other;
        };
        // If this rank is a member already, the recording is of an earlier run with the same key.
        let is_in_it = member.rank.is_some() && members.iter().any(|m| m.rank == member.rank);
        if there.key != launch.key {
            Found::Other
        } else if there.host != launch.host {
            Found::Elsewhere(there.host)
        } else if is_in_it {
            Found::Other
        } else {
            Found::Ours
        }
    }
}

/// Returns the path for another host: `app-node2.heaptide` for `app.heaptide`. Hosts do not share a
/// recording, because process ids can coincide and many shared file systems have no locks.
fn on_host(path: &Path, host: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (stem, suffix) = match name.strip_suffix(RECORDING_SUFFIX) {
        Some(stem) => (stem, RECORDING_SUFFIX),
        None => (&*name, ""),
    };
    path.with_file_name(format!("{stem}-{host}{suffix}"))
}

#[cfg(test)]
mod tests {
    use heaptide_analysis::recording::metadata::VERSION;
    use heaptide_fixtures::Scratch;

    use super::*;

    fn metadata(key: &str, host: &str) -> Metadata {
        let launch = Some(Launch { key: key.to_owned(), host: host.to_owned() });
        Metadata { version: VERSION, root_pid: 7, launch, ..Metadata::default() }
    }

    fn rank(rank: u32) -> Member {
        Member { root_pid: 7, rank: Some(rank), ..Member::default() }
    }

    fn entered(path: &Path, force: bool, metadata: &Metadata, member: &Member) -> Entered {
        enter(path, force, metadata, member).expect("a seat")
    }

    fn refused(path: &Path, metadata: &Metadata, member: &Member) -> String {
        enter(path, false, metadata, member).err().expect("it is refused").to_string()
    }

    #[test]
    fn members_share_a_recording_and_others_are_refused() {
        let place = Scratch::new("joining");
        let path = place.join("a.heaptide");
        let (ours, other) = (metadata("x", "h"), metadata("y", "h"));
        let first = entered(&path, false, &ours, &rank(0)).seat;
        let second = entered(&path, false, &ours, &rank(1)).seat;
        assert!(matches!((&first, &second), (Seat::First(_), Seat::Later(_))));
        assert!(refused(&path, &other, &rank(2)).contains("exists"));
        assert!(refused(&path, &ours, &rank(1)).contains("exists"));
        let (first, second) = (first.keep(), second.keep());
        assert!(!first.is_last() && second.is_last());
        // A command that joins while another holds the exclusive lock waits.
        let waiting = std::thread::scope(|scope| {
            let later = scope.spawn(|| entered(&path, false, &ours, &rank(2)).number);
            std::thread::sleep(Duration::from_millis(20));
            second.share();
            later.join().expect("the thread")
        });
        assert_eq!(waiting, Some(2));
    }

    #[test]
    fn a_program_that_does_not_start_leaves_what_others_joined() {
        let place = Scratch::new("joining-failed");
        let path = place.join("a");
        let ours = metadata("x", "h");
        let first = entered(&path, false, &ours, &rank(0)).seat;
        let second = entered(&path, false, &ours, &rank(1)).seat;
        drop(first);
        assert_eq!(second.path(), path);
        assert!(path.join("1.member").exists() && !path.join("0.member").exists());
        drop(second);
        drop(entered(&path, true, &metadata("y", "h"), &rank(0)));
        assert!(path.join("1.member").exists(), "the old one is back");
    }

    #[test]
    fn another_host_has_a_recording_of_its_own() {
        let place = Scratch::new("joining-hosts");
        let path = place.join("a.heaptide");
        let here = entered(&path, false, &metadata("x", "h"), &rank(0)).seat.keep();
        let there = entered(&path, false, &metadata("x", "node2"), &rank(1));
        assert_eq!(there.seat.path(), place.join("a-node2.heaptide"));
        assert_eq!(there.elsewhere.as_deref(), Some("h"));
        assert_eq!(here.path(), path);
        assert_eq!(on_host(Path::new("/a/b"), "n"), Path::new("/a/b-n"));
    }
}
