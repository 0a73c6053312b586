//! Options of the commands that take snapshots of running programs: when, and how many to keep.

use std::time::Duration;

use clap::Args;
use heaptide_analysis::recording::ring::Keep;
use heaptide_command::values;
use heaptide_control::{Plan, Trigger, When};
use nix::sys::signal::Signal;

/// The heading of these options.
pub const SNAPSHOTS: &str = "Snapshots and limits";

/// When to take snapshots, and which to keep.
#[derive(Args, Debug, Default)]
pub struct SnapshotOptions {
    /// Take a snapshot at this interval, such as 500ms, 10s or 2m
    #[arg(long, help_heading = SNAPSHOTS, value_name = "TIME", value_parser = values::time)]
    pub snapshot_every: Option<Duration>,
    /// Take a snapshot when this happens: live=BYTES, resident=BYTES, growth=BYTES/TIME, oom
    /// (memory is short), signal=NAME (sent to this command), failure (exit status other than 0, or
    /// killed). Can be repeated
    #[arg(long, help_heading = SNAPSHOTS, value_name = "EVENT", value_parser = trigger)]
    pub snapshot_when: Vec<Trigger>,
    /// Keep only the newest N snapshots of each process and event
    #[arg(long, help_heading = SNAPSHOTS, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub keep_snapshots: Option<u32>,
    /// Keep snapshots for this time, such as 12h or 7d
    #[arg(long, help_heading = SNAPSHOTS, value_name = "TIME", value_parser = values::time)]
    pub keep_snapshots_for: Option<Duration>,
    /// Remove profiles of ended processes, the oldest first, when the recording takes this much
    /// disk space; their totals are kept
    #[arg(long, help_heading = SNAPSHOTS, value_name = "BYTES", value_parser = recording_limit)]
    pub max_recording: Option<u64>,
    /// Keep the newest snapshots that fit into this much disk space, such as 500M or 2G
    #[arg(long, help_heading = SNAPSHOTS, value_name = "BYTES", value_parser = kept_bytes)]
    pub keep_snapshots_size: Option<u64>,
}

impl SnapshotOptions {
    /// Returns the plan of these options, for the programs of process `only` or of all processes.
    /// `started` is the process that the command started, if any.
    pub fn plan(&self, only: Option<u32>, started: Option<u32>) -> Plan {
        Plan {
            every: self.snapshot_every,
            triggers: self.snapshot_when.clone(),
            keep: Keep {
                count: self.keep_snapshots,
                age: self.keep_snapshots_for,
                bytes: self.keep_snapshots_size,
            },
            only,
            max_recording: self.max_recording,
            started,
        }
    }

    /// Returns the signals that take a snapshot, each with the name of its snapshots.
    pub fn signals(&self) -> impl Iterator<Item = (i32, &str)> {
        self.snapshot_when.iter().filter_map(|trigger| match trigger.when {
            When::Signal(signal) => Some((signal, &*trigger.name)),
            _ => None,
        })
    }
}

/// Parses the bytes that kept snapshots may take.
fn kept_bytes(text: &str) -> Result<u64, String> {
    values::some_bytes(text, "use --keep-snapshots 1 to keep the newest only")
}

/// Parses the bytes that a recording may take.
fn recording_limit(text: &str) -> Result<u64, String> {
    values::some_bytes(text, "omit --max-recording for no limit")
}

/// Parses a trigger.
fn trigger(text: &str) -> Result<Trigger, String> {
    let when = match text.split_once('=') {
        None if text == "oom" => When::Oom,
        None if text == "failure" => When::Failure,
        Some(("live", bytes)) => When::Live(limit(bytes)?),
        Some(("resident", bytes)) => When::Resident(limit(bytes)?),
        Some(("growth", growth)) => {
            let (bytes, span) =
                growth.split_once('/').ok_or("expected growth=BYTES/TIME, such as 100M/10m")?;
            When::Growth { bytes: limit(bytes)?, span: values::time(span)? }
        }
        Some(("signal", name)) => When::Signal(free_signal(name)?),
        _ => {
            return Err("expected live=BYTES, resident=BYTES, growth=BYTES/TIME, oom, \
                        signal=NAME or failure"
                .to_owned());
        }
    };
    Ok(Trigger { name: text.to_owned(), when })
}

fn limit(text: &str) -> Result<u64, String> {
    values::some_bytes(text, "use --snapshot-every for snapshots at an interval")
}

/// Parses a signal that the command does not use itself.
fn free_signal(text: &str) -> Result<i32, String> {
    const TAKEN: [Signal; 8] = [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGQUIT,
        Signal::SIGCHLD,
        Signal::SIGCONT,
        Signal::SIGTSTP,
        Signal::SIGTTIN,
        Signal::SIGTTOU,
    ];
    let number = values::signal(text)?;
    match TAKEN.into_iter().find(|&taken| taken as i32 == number) {
        Some(taken) => {
            Err(format!("{taken} has another meaning for this command; use USR1, USR2 or RTMIN+1"))
        }
        None => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_by_name_and_limit() {
        let when = |text: &str| trigger(text).map(|trigger| (trigger.name, trigger.when));
        let growth = When::Growth { bytes: 100 << 20, span: Duration::from_secs(600) };
        for (text, expected) in [
            ("live=500M", When::Live(500 << 20)),
            ("resident=2G", When::Resident(2 << 30)),
            ("growth=100M/10m", growth),
            ("oom", When::Oom),
            ("signal=usr2", When::Signal(12)),
            ("failure", When::Failure),
        ] {
            assert_eq!(when(text), Ok((text.to_owned(), expected)));
        }
        for bad in [
            "",
            "live",
            "live=",
            "live=0",
            "live=1X",
            "growth=1M",
            "growth=1M/",
            "growth=/1s",
            "oom=1",
            "signal=TERM",
            "signal=CHLD",
            "signal=KILL",
            "signal",
            "failures",
            "peak=1M",
        ] {
            assert!(when(bad).is_err(), "{bad}");
        }
    }
}
