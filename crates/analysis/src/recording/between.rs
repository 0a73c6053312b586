//! Counters of a process between two of its snapshots, its start or its end.

use std::path::Path;

use super::parts::{Choice, Parts};
use super::snapshot::{self, Reference};
use crate::error::Error;
use crate::model::Process;
use crate::profile::{baseline, reader};
use crate::symbols::{Blazesym, Lookup, Sources};
use crate::tables::process;

/// A time at which the counters of a process are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stop {
    /// The number of the snapshot; `None` for the start or the end.
    pub snapshot: Option<u32>,
    /// Nanoseconds from the start.
    pub time_ns: u64,
}

/// Returns the snapshots of a profile in order of time.
///
/// ```
/// use heaptide_analysis::recording::between;
/// assert!(between::stops("missing.heaptide/12-0.profile".as_ref()).is_empty());
/// ```
pub fn stops(profile: &Path) -> Vec<Stop> {
    let directory = profile.parent().unwrap_or(Path::new("."));
    let found = snapshot::by_profile(directory, &[profile.to_owned()]);
    let found = found.into_values().flatten();
    let mut stops: Vec<Stop> =
        found.map(|own| Stop { snapshot: Some(own.number), time_ns: own.time_ns }).collect();
    stops.sort_by_key(|stop| stop.time_ns);
    stops
}

/// Reads the counters of a process from one snapshot, or its start, to another, or its end. Live
/// blocks are those at the later time; the peak and the blocks live at peak are those of the run up
/// to that time.
///
/// Errors: a file cannot be read, or there is no such snapshot.
///
/// ```
/// use heaptide_analysis::recording::between;
/// assert!(between::open("missing.heaptide/12-0.profile".as_ref(), Some(1), None).is_err());
/// ```
pub fn open(profile: &Path, from: Option<u32>, to: Option<u32>) -> Result<Process, Error> {
    let choice =
        Choice { snapshot: to.map(Reference::Number), from_start: true, ..Choice::default() };
    let mut parts = Parts::read(profile, &choice)?;
    if let (Some(number), Some((_, after))) = (from, parts.profiles.first_mut()) {
        let directory = profile.parent().unwrap_or(Path::new("."));
        let wanted = Reference::Number(number);
        let files = snapshot::referred(profile, directory, &[profile.to_owned()], &wanted)?;
        let file = files.first().ok_or_else(|| Error::Missing { path: profile.to_owned() })?;
        baseline::take_off(after, reader::read(file)?, format!("snapshot {number}"));
    }
    let (engine, sources) = (&Blazesym, &Sources::default());
    let changed = parts.look_up(&Lookup { engine, sources, again: false }, &mut |_, _| {});
    if !parts.sealed {
        parts.look_up_jit(sources);
    }
    let ending = parts.endings(&changed).pop();
    let read = parts.profiles.pop().zip(ending);
    let ((_, profile), ending) = read.ok_or_else(|| Error::Missing { path: profile.to_owned() })?;
    Ok(process::process(profile, &parts.symbols, ending))
}

#[cfg(test)]
mod tests {
    use heaptide_fixtures::{ProgramBuilder, Scratch};

    use super::*;

    #[test]
    fn counts_are_those_between_two_stops_and_live_is_of_the_later() {
        let scratch = Scratch::new("between");
        let mut program = ProgramBuilder::with_stacks(&["main", "main;load"]);
        let path = program.write(&scratch);
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let snapshot = |number: u32| {
            let file = name.replace(".profile", &format!(".{number}.snapshot"));
            std::fs::copy(&path, path.with_file_name(file)).expect("a snapshot");
        };
        snapshot(1);
        program.block("main;parse", 100);
        program.write(&scratch);
        snapshot(2);
        program.block("main", 1000);
        program.write(&scratch);
        let between = |from, to| {
            let totals = open(&path, from, to).expect("a process").totals;
            (totals.allocations, totals.usable_bytes, totals.live_bytes)
        };
        assert_eq!(between(None, Some(1)), (2, 3, 3));
        assert_eq!(between(Some(1), Some(2)), (1, 100, 103));
        assert_eq!(between(Some(1), None), (2, 1100, 1103));
        assert_eq!(between(Some(2), None), (1, 1000, 1103));
        assert_eq!(between(None, None), (4, 1103, 1103));
        let numbers: Vec<_> = stops(&path).into_iter().map(|stop| stop.snapshot).collect();
        assert_eq!(numbers, [Some(1), Some(2)]);
        let part = open(&path, Some(1), Some(2)).expect("a process").completeness.part;
        assert!(part.is_some_and(|part| part.ends_with("since snapshot 1")));
        assert!(open(&path, Some(7), None).is_err() && open(&path, None, Some(7)).is_err());
    }
}
