//! The environment variables of Heaptide: one table for the recorder, which reads them, for the
//! command, which sets them from its options, and for the page that documents them.
//!
//! Each row has the name of the setting, its variable, the options of `heaptide run` that set it,
//! and the columns of that page: the reader of the variable, its values, and its default. After a
//! change, `cargo xtask options` writes the page.

/// The prefix of each variable.
pub const PREFIX: &str = "HEAPTIDE_";
/// The value that turns on a switch that is off by default.
pub const ON: &str = "on";
/// The value that turns off a switch that is on by default.
pub const OFF: &str = "off";
/// The prefix of the value of [`Setting::Threshold`] if only requests below it have stacks.
pub const BELOW: &str = "<";

macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident = $variable:literal, [$($flag:literal),*], $reader:literal,
        $value:literal, $default:literal;)*) => {
        /// A setting that is stored in an environment variable.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Setting {
            $($(#[$doc])* $name,)*
        }

        impl Setting {
            /// All settings, in the order of their documentation.
            pub const ALL: &[Setting] = &[$(Setting::$name),*];

            /// Returns the name of its variable.
            pub const fn variable(self) -> &'static str {
                match self {
                    $(Setting::$name => concat!("HEAPTIDE_", $variable),)*
                }
            }

            /// Returns the setting of a variable, given its name without [`PREFIX`].
            pub fn from_suffix(suffix: &[u8]) -> Option<Setting> {
                $(if suffix == $variable.as_bytes() {
                    return Some(Setting::$name);
                })*
                None
            }

            /// Returns the options of `heaptide run` that set it.
            pub const fn flags(self) -> &'static [&'static str] {
                match self {
                    $(Setting::$name => &[$($flag),*],)*
                }
            }

            /// Returns who reads the variable, for its documentation.
            pub const fn reader(self) -> &'static str {
                match self {
                    $(Setting::$name => $reader,)*
                }
            }

            /// Returns its values, for its documentation.
            pub const fn value(self) -> &'static str {
                match self {
                    $(Setting::$name => $value,)*
                }
            }

            /// Returns the behaviour without the variable, for its documentation.
            pub const fn default_value(self) -> &'static str {
                match self {
                    $(Setting::$name => $default,)*
                }
            }
        }
    };
}

settings! {
    /// The recording directory.
    Output = "OUTPUT", ["--output"], "the library",
        "directory to record into, created if missing",
        "`heaptide-PROGRAM-PID.heaptide` in the current directory";
    /// How much is recorded.
    Mode = "MODE", ["--mode"], "the library, and `heaptide run` as the default of `--mode`",
        "`stacks`: a site for each distinct stack, scope path, label and thread; `scopes`: the same without stacks; `counters`: totals, threads and histograms only; `trace`: as `stacks`, and every event; `sampled` or `sampled=BYTES`: as `counters`, and stacks of sampled blocks, one for each BYTES (512K) on average; `off`: nothing",
        "`stacks`";
    /// The seed of random numbers.
    SampleSeed = "SAMPLE_SEED", [], "the library",
        "a number: with `sampled`, it alone determines which blocks are sampled, for tests; children inherit it",
        "from the clock and the pid";
    /// The clock of recordings.
    Clock = "CLOCK", [], "the library and the command",
        "a file that begins with the time in nanoseconds, in 8 bytes: it is the clock of recordings and of commands, for tests, which set the time",
        "the monotonic clock";
    /// Whether threads publish live bytes in full batches only.
    FullBatches = "FULL_BATCHES", [], "the library",
        "`on`: slow threads publish their live bytes as rarely as fast ones, for counts under tools that slow a program down",
        "`off`";
    /// The only process that is recorded.
    Follow = "FOLLOW", ["--no-follow"], "the library",
        "a pid: record only that process, not its children (`--no-follow`)", "record all";
    /// Whether recording is on from the start.
    Start = "START", ["--start-off"], "the library",
        "`off`: start with recording disabled (`--start-off`)", "on";
    /// Whether each requested size has sites of its own.
    BySize = "BY_SIZE", ["--by-size"], "the library",
        "`on`: a separate site for each requested size (`--by-size`)", "`off`";
    /// Whether each kind of function called has sites of its own.
    ByCall = "BY_CALL", ["--by-call"], "the library",
        "`on`: a separate site for each kind of function called (`--by-call`)", "`off`";
    /// Whether events of frees have stacks.
    FreeStacks = "FREE_STACKS", ["--free-stacks"], "the library",
        "`on`: events of frees have their stack (`--free-stacks`)", "`off`";
    /// The most bytes of traces.
    MaxSize = "MAX_SIZE", ["--max-trace-size"], "the library",
        "a number of bytes: the traces of the recording end at this size (`--max-trace-size`)",
        "no limit";
    /// Whether the oldest part of traces is dropped.
    KeepTrace = "KEEP_TRACE", ["--keep-trace-for", "--keep-trace-size"], "the library",
        "`on`: the oldest part of traces may be dropped, so frees have the site and the size of their block (`--keep-trace-for`, `--keep-trace-size`)",
        "`off`";
    /// The most bytes of a profile.
    MaxProfile = "MAX_PROFILE", ["--max-profile"], "the library",
        "a number of bytes, at least 1048576: the profile of each process image stores no new stacks once it reaches this size; totals stay exact (`--max-profile`)",
        "no limit";
    /// The sizes of requests that have stacks.
    Threshold = "THRESHOLD", ["--stacks-from", "--stacks-below"], "the library",
        "`BYTES`: stacks only for requests of at least BYTES (`--stacks-from`); `<BYTES`: only below (`--stacks-below`)",
        "stacks of all";
    /// The interval at which the recorder itself takes snapshots.
    SnapshotEvery = "SNAPSHOT_EVERY", [], "the library",
        "seconds, such as `10` or `0.5`: a snapshot at the first allocation or free after each interval; every event then reads the clock. For programs run without the command, which has `--snapshot-every`",
        "none";
    /// How many of those snapshots are kept.
    KeepSnapshots = "KEEP_SNAPSHOTS", [], "the library",
        "the number of snapshots of `HEAPTIDE_SNAPSHOT_EVERY` to keep for each process, at most 256: the newest. For programs run without the command, which has `--keep-snapshots`",
        "all";
    /// The reports to write at the end, and their targets.
    Report = "REPORT", ["--report"], "the library, and `heaptide run` as the default of `--report`",
        "`FORMAT:TARGET`, several separated by `;`: reports to write when the program exits, to a file, `stdout` or `stderr` ([Output](interface.md#output))",
        "nothing";
    /// The signal that triggers a snapshot.
    SnapshotSignal = "SNAPSHOT_SIGNAL", ["--snapshot-on"], "the library",
        "number of a signal that triggers a snapshot (`--snapshot-on`)", "none";
    /// The rank of the process in a parallel job.
    Rank = "RANK", [], "the library",
        "the process's number in a parallel job, from 0; for launchers that [Ranks](merging.md#ranks) does not list",
        "from the launcher";
    /// The number of processes in that job.
    Ranks = "RANKS", [], "the library", "the number of processes in that job",
        "from the launcher";
    /// The name of that job.
    Job = "JOB", [], "the library", "the name of that job", "from the launcher";
    /// The monitor libraries and their options.
    Monitors = "MONITORS", ["--monitor"], "monitor libraries",
        "their file names and options, `NAME[:OPTIONS]`, separated by `;` (`--monitor`)", "none";
    /// Whether to intercept allocators that preloading does not reach.
    Intercept = "INTERCEPT", ["--no-intercept"], "the library",
        "`off`: do not change the code of an allocator that the executable or a library contains (`--no-intercept`); its allocations are then not recorded",
        "on";
    /// Whether objects of Python are blocks.
    PythonMemory = "PYTHON_MEMORY", ["--python-memory"], "the library",
        "`arenas`: do not record the objects of Python, only the arenas in which they are (`--python-memory`)",
        "`objects`";
    /// Whether to record accounts of resident memory.
    Accounts = "ACCOUNTS", ["--no-accounts"], "the library",
        "`off`: record no accounts of resident memory (`--no-accounts`)", "on";
    /// Whether images wait at their end until a command has searched their memory.
    Retain = "RETAIN", ["--retain"], "the library",
        "`on`: at its end, a process waits until `heaptide run` has found what keeps its blocks (`--retain`)",
        "`off`";
    /// Whether to reuse unwound stacks.
    Reuse = "REUSE", ["--no-reuse"], "the library",
        "`off`: unwind each stack from top to end; for tests: slower, with the same result", "on";
    /// The changes that an outer `heaptide run` made to the environment.
    Run = "RUN", [], "`heaptide run` in a recorded program",
        "what an outer `heaptide run` set: `NAME:LENGTH:FINGERPRINT` for each variable, separated by commas. The fingerprint (64-bit FNV-1a, hexadecimal) is of the first LENGTH bytes of the value",
        "none";
    /// The library to preload.
    Library = "LIBRARY", [], "the command", "path of the `libheaptide.so` to preload",
        "one installed next to the command, or the built-in one";
    /// The command that writes the output that programs request.
    Command = "COMMAND", [], "the library",
        "path of the `heaptide` that writes what the program requests ([Output](interface.md#output)); `heaptide run` sets it to itself",
        "one installed next to the library, or in `PATH`";
    /// The pager of the command.
    Pager = "PAGER", [], "the command",
        "the pager that shows [pages on a terminal](views.md#on-a-terminal); empty for none",
        "`PAGER`, else `less`";
    /// The token of a cluster of SQL engines.
    ClusterToken = "CLUSTER_TOKEN", [], "the command",
        "the token of a [cluster](sql.md#clusters), at least 16 characters, if no `--token-file` is given",
        "the file `heaptide/cluster-token` in `$XDG_STATE_HOME` or `~/.local/state`";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_found_by_its_variable() {
        for &setting in Setting::ALL {
            let suffix = setting.variable().strip_prefix(PREFIX).expect("the prefix");
            assert_eq!(Setting::from_suffix(suffix.as_bytes()), Some(setting));
        }
        assert_eq!(Setting::from_suffix(b"OTHER"), None);
    }
}
