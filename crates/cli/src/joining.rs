//! A command's place in a recording: its own, or one that the commands of its launch share. The
//! first of them makes the recording, the others join it, and the last one to end seals it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use heaptide_analysis::files::file_names::RECORDING_SUFFIX;
use heaptide_analysis::recording::members;
use heaptide_analysis::recording::metadata::{Launch, Member, Metadata};
use heaptide_command::error::Error;

use crate::place::{Draft, Place, Recorded, is_being_made, resolve};

/// How long a command waits for another of its launch that makes the recording, or has it for
/// itself for an instant: both take milliseconds, on a busy machine more.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long for one that was not seen yet.
const PATIENCE_UNSEEN: Duration = Duration::from_millis(500);
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(2);

/// A recording in which the program may start.
pub enum Seat {
    /// Made by this command. What was there before comes back if the program does not start.
    First(Draft),
    /// Made by another command of the launch.
    Later(Recorded),
}

/// A command's seat, and its number among the members of the launch.
pub struct Entered {
    /// The recording.
    pub seat: Seat,
    /// None outside of a launch.
    pub number: Option<u32>,
    /// The host on which others of the launch write the recording that was asked for.
    pub elsewhere: Option<String>,
}

impl Seat {
    /// Where the recording is.
    pub fn path(&self) -> &Path {
        match self {
            Seat::First(draft) => draft.path(),
            Seat::Later(recorded) => recorded.path(),
        }
    }

    /// Keeps it: the program has started.
    pub fn keep(self) -> Recorded {
        match self {
            Seat::First(draft) => draft.keep(),
            Seat::Later(recorded) => recorded,
        }
    }
}

/// Enters the recording at a path: makes it, or joins that of the launch.
///
/// Errors: something else is there, or it cannot be made.
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

/// Makes the recording as the first of a launch.
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

/// Joins the recording of the launch; none if another has it for itself now.
fn join(path: &Path, member: &Member) -> Result<Option<(Recorded, Option<u32>)>, Error> {
    let Some(recorded) = Recorded::join(path)? else { return Ok(None) };
    let number = members::add(path, member)?;
    Ok(Some((recorded, Some(number))))
}

/// What is at the place of a recording.
enum Found {
    Nothing,
    /// The recording of the launch, in which this member is not yet.
    Ours,
    /// The recording of the launch, written on another host.
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
        // A rank that is in it already is of an earlier run with the same name.
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

/// The recording of a host beside that of another: `app-node2.heaptide` for `app.heaptide`. Process
/// ids of several hosts are equal, and many shared file systems have no locks.
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
        // One that comes when another has it for itself waits.
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
