//! The options of `heaptide run`, and the recorder settings that result from them.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use heaptide_analysis::trace::KeepTrace;
use heaptide_command::values;
use heaptide_format::settings::{BELOW, OFF, ON, Setting};

use super::mode::{Mode, ModeParser};
use super::names::NameOptions;
use super::snapshots::{SNAPSHOTS, SnapshotOptions};

/// The heading of options for stacks and traces.
pub const STACKS: &str = "Stacks and traces";
/// The heading of options that disable something, for unusual programs.
pub const INTERCEPTION: &str = "Special cases";

/// How the memory of Python objects is recorded.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum PythonMemory {
    /// Each object is a block with a stack
    Objects,
    /// Python's arenas are recorded as mappings, and no objects in them
    Arenas,
}

impl PythonMemory {
    /// Returns the value of the recorder's setting.
    fn value(self) -> &'static str {
        match self {
            PythonMemory::Objects => "objects",
            PythonMemory::Arenas => "arenas",
        }
    }
}

/// `heaptide run`.
#[derive(Args, Debug)]
#[command(after_help = RUN_EXAMPLE)]
#[command(override_usage = "heaptide run [OPTIONS] [--] PROGRAM [ARG]...")]
pub struct RunOptions {
    /// Recording to write, a directory; %p is replaced by the pid, %h by the host, %r by the rank,
    /// %n by the program's name, %q{VAR} by a variable, %% by % [default:
    /// heaptide-PROGRAM-PID.heaptide]
    #[arg(short, long, value_name = "REC", value_parser = values::directory())]
    pub output: Option<PathBuf>,
    /// Replace an existing recording
    #[arg(long)]
    pub force: bool,
    /// How much to record [default: $HEAPTIDE_MODE, or stacks]
    #[arg(long, value_name = "MODE", value_parser = ModeParser)]
    pub mode: Option<Mode>,
    /// Print no summary and no progress
    #[arg(short, long)]
    pub quiet: bool,
    /// Record only the program itself, not its child processes
    #[arg(long)]
    pub no_follow: bool,
    /// Start with recording disabled; the program or `heaptide ctl REC on` enables it
    #[arg(long)]
    pub start_off: bool,
    /// When a process ends, find which of its blocks are lost and what keeps the others
    #[arg(long)]
    pub retain: bool,
    /// How to record the objects of CPython, in all processes [default: objects]
    #[arg(long, value_name = "objects|arenas")]
    pub python_memory: Option<PythonMemory>,
    #[command(flatten)]
    pub snapshots: SnapshotOptions,
    /// Take a snapshot when the program receives this signal, such as USR2
    #[arg(long, value_name = "SIGNAL", value_parser = values::signal, help_heading = SNAPSHOTS)]
    pub snapshot_on: Option<i32>,
    /// Also load this monitor library, which is called on each allocation. Can be repeated
    #[arg(long = "monitor", value_name = "LIB[:OPTIONS]")]
    pub monitors: Vec<OsString>,
    /// Write a report to TARGET (a file, stdout or stderr) when the program has ended, such as
    /// text:stderr, json:FILE or `query:CALQL:FILE`. Can be repeated [default: $HEAPTIDE_REPORT]
    #[arg(long = "report", value_name = "FORMAT:TARGET")]
    pub reports: Vec<OsString>,
    /// Record stacks only for requests of at least this many bytes, such as 4096, 4K or 1M
    #[arg(long, help_heading = STACKS, value_name = "BYTES", value_parser = values::bytes)]
    pub stacks_from: Option<u64>,
    /// Record stacks only for requests of fewer bytes than this
    #[arg(long, help_heading = STACKS, value_name = "BYTES", value_parser = values::stacks_below)]
    #[arg(conflicts_with = "stacks_from")]
    pub stacks_below: Option<u64>,
    /// Record a separate site for each request size (exact sizes; larger profile)
    #[arg(long, help_heading = STACKS)]
    pub by_size: bool,
    /// Record a separate site for each kind of function called: malloc, calloc, realloc, aligned,
    /// new, other
    #[arg(long, help_heading = STACKS)]
    pub by_call: bool,
    /// With --mode trace: also record the stacks of frees
    #[arg(long, help_heading = STACKS)]
    pub free_stacks: bool,
    /// With --mode trace: stop tracing when the traces use this much disk space, such as 500M or 2G
    #[arg(long, alias = "max-size", value_name = "BYTES", value_parser = values::bound)]
    #[arg(help_heading = STACKS)]
    pub max_trace_size: Option<u64>,
    /// With --mode trace: keep only the events of the last TIME, such as 10m
    #[arg(long, value_name = "TIME", value_parser = values::time, help_heading = STACKS)]
    #[arg(conflicts_with = "max_trace_size")]
    pub keep_trace_for: Option<Duration>,
    /// With --mode trace: keep only the newest events of each process, in this much disk space
    #[arg(long, value_name = "BYTES", value_parser = values::kept_trace, help_heading = STACKS)]
    #[arg(conflicts_with = "max_trace_size")]
    pub keep_trace_size: Option<u64>,
    /// Store no new stacks when the profile of a process reaches this size, such as 64M or 1G;
    /// totals stay exact
    #[arg(long, value_name = "BYTES", value_parser = values::profile_limit)]
    #[arg(help_heading = STACKS)]
    pub max_profile: Option<u64>,
    /// Don't preload the library (for programs that embed the recorder)
    #[arg(long, help_heading = INTERCEPTION, conflicts_with = "monitors")]
    pub no_preload: bool,
    /// Don't intercept the program's own allocator; its memory is then not recorded
    #[arg(long, help_heading = INTERCEPTION)]
    pub no_intercept: bool,
    /// Don't record accounts of resident memory, which `heaptide memory` shows
    #[arg(long, help_heading = INTERCEPTION)]
    pub no_accounts: bool,
    #[command(flatten)]
    pub names: NameOptions,
    /// Unwind every stack completely, for tests
    #[arg(long = "no-reuse", hide = true)]
    pub no_reuse: bool,
    /// Program to run, searched in PATH unless it contains a slash, and its arguments
    // A single list: with two, options of the program would be parsed as options of `heaptide`.
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

impl RunOptions {
    /// Returns the program to run.
    pub fn program(&self) -> &OsStr {
        // `required` guarantees at least one word.
        self.command.first().map_or(OsStr::new(""), |word| word)
    }

    /// Returns the name of the program and its arguments.
    pub fn words(&self) -> &[OsString] {
        &self.command
    }

    /// Returns which part of traces to keep.
    pub fn keep_trace(&self) -> KeepTrace {
        KeepTrace { bytes: self.keep_trace_size, age: self.keep_trace_for }
    }

    /// Returns the settings that these options give to the recorder, except output, mode and
    /// monitors. `pid` is the process id that the program sees.
    pub fn settings(&self, pid: u32) -> Vec<(Setting, String)> {
        let switch = |is_given: bool, value: &str| is_given.then(|| value.to_owned());
        let below = |bytes| format!("{BELOW}{bytes}");
        let all = [
            (Setting::Follow, self.no_follow.then(|| pid.to_string())),
            (Setting::Reuse, switch(self.no_reuse, OFF)),
            (Setting::Intercept, switch(self.no_intercept, OFF)),
            (Setting::PythonMemory, self.python_memory.map(|chosen| chosen.value().to_owned())),
            (Setting::Accounts, switch(self.no_accounts, OFF)),
            (Setting::Retain, switch(self.retain, ON)),
            (Setting::Start, switch(self.start_off, OFF)),
            (Setting::SnapshotSignal, self.snapshot_on.map(|signal| signal.to_string())),
            (Setting::Threshold, self.stacks_from.map(|bytes| bytes.to_string())),
            (Setting::Threshold, self.stacks_below.map(below)),
            (Setting::BySize, switch(self.by_size, ON)),
            (Setting::ByCall, switch(self.by_call, ON)),
            (Setting::FreeStacks, switch(self.free_stacks, ON)),
            (Setting::MaxSize, self.max_trace_size.map(|bytes| bytes.to_string())),
            (Setting::KeepTrace, switch(self.keep_trace().is_limited(), ON)),
            (Setting::MaxProfile, self.max_profile.map(|bytes| bytes.to_string())),
        ];
        all.into_iter().filter_map(|(setting, value)| Some((setting, value?))).collect()
    }
}

const RUN_EXAMPLE: &str = "\
Example:
  heaptide run -o build.heaptide -- g++ -O2 -c big.cc
  heaptide run --mode scopes --snapshot-every 10s --keep-snapshots 60 -- ./server
  heaptide run --snapshot-when live=2G --snapshot-when oom --max-profile 256M -- ./server
  heaptide run --mode sampled -- ./service
  heaptide run --monitor ./libtotals.so:verbose -- ./app";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Options without a setting of the recorder: the command implements them.
    const OF_THE_COMMAND: [&str; 13] = [
        "--debuginfod",
        "--force",
        "--help",
        "--keep-snapshots",
        "--keep-snapshots-for",
        "--keep-snapshots-size",
        "--max-recording",
        "--no-preload",
        "--quiet",
        "--snapshot-every",
        "--snapshot-when",
        "--symbols",
        "--sysroot",
    ];

    #[test]
    fn each_option_is_in_the_table_of_settings_or_performed_by_the_command() {
        let command = RunOptions::augment_args(clap::Command::new("run"));
        let long = command.get_arguments().filter_map(|argument| argument.get_long());
        let mut options: BTreeSet<String> = long.map(|name| format!("--{name}")).collect();
        options.insert("--help".to_owned());
        let table = Setting::ALL.iter().flat_map(|setting| setting.flags()).copied();
        let listed: BTreeSet<String> = table.chain(OF_THE_COMMAND).map(str::to_owned).collect();
        assert_eq!(options, listed);
    }
}
