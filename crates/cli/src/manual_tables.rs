//! Tables for manual pages beyond the help of the commands: exit statuses, files, variables. Each
//! row lists the commands on whose pages it appears.

/// The pages that have a row. Commands are named without `heaptide`; the main page has an empty
/// name.
#[derive(Clone, Copy)]
pub enum On {
    /// On all pages.
    All,
    /// On the main page and the pages of these commands.
    Pages(&'static [&'static str]),
    /// On all pages except those of these commands.
    AllBut(&'static [&'static str]),
}

impl On {
    /// Returns whether the page of a command has the row. `command` is `ctl snapshot` for a
    /// subcommand.
    pub fn is_on(self, command: &str) -> bool {
        let is_one = |names: &[&str]| names.contains(&command.split(' ').next().unwrap_or(""));
        match self {
            On::All => true,
            On::Pages(names) => command.is_empty() || is_one(names),
            On::AllBut(names) => !is_one(names),
        }
    }
}

/// A row of a section: a term, its meaning, and the pages that have it.
pub type Row = (&'static str, &'static str, On);

/// Commands that start or attach to programs and record them.
const RECORDING: &[&str] = &["run", "attach"];
/// Commands with exit status 1 for a failed check.
const JUDGING: &[&str] = &["check", "leaks", "diff", "ctl"];
/// Commands that read no recording.
const WITHOUT: &[&str] = &["sdk", "library", "man", "completions"];
/// Commands that print no pages of results.
const WITHOUT_PAGES: &[&str] = &[
    "run",
    "attach",
    "detach",
    "sdk",
    "library",
    "man",
    "completions",
    "seal",
    "merge",
    "export",
    "ctl",
    "sql",
    "dataset",
    "view",
    "serve",
    "watch",
];

/// Exit statuses.
pub const STATUSES: &[Row] = &[
    ("0", "Success.", On::All),
    (
        "1",
        "The check failed: there are leaks, a limit is exceeded, or a program did not do what was requested.",
        On::Pages(JUDGING),
    ),
    (
        "1",
        "Nothing was found: nothing was recorded, there is no such process, or no allocation matches the filters. A line on standard error gives the reason.",
        On::AllBut(&[
            "run",
            "attach",
            "sdk",
            "library",
            "man",
            "completions",
            "check",
            "leaks",
            "diff",
            "ctl",
            "retain",
        ]),
    ),
    (
        "2",
        "Error: invalid options, an unreadable recording, a failed write. A line on standard error states what was found and what to do.",
        On::All,
    ),
    ("125", "With `--bisect`: the limits could not be checked.", On::Pages(&["check"])),
    ("the program's", "The exit status of the program, once it has started.", On::Pages(&["run"])),
    ("128+N", "The program was ended by signal N.", On::Pages(&["run"])),
];

/// Files.
pub const FILES: &[Row] = &[
    (
        "NAME.heaptide",
        "A recording: a directory. Without a name, commands that read take the newest one in the current directory.",
        On::AllBut(WITHOUT),
    ),
    (
        "NAME.heaptide/PID-IMAGE.profile",
        "Counters, stacks and timeline of one process image, written by the program itself.",
        On::AllBut(WITHOUT),
    ),
    (
        "NAME.heaptide/PID-IMAGE.trace",
        "Every event of the image, if recorded with `--mode trace`.",
        On::AllBut(WITHOUT),
    ),
    (
        "NAME.heaptide/PID-IMAGE.N.snapshot",
        "A copy of the profile at one point in time.",
        On::AllBut(WITHOUT),
    ),
    (
        "NAME.heaptide/recording.json, NAME.heaptide/symbols.json",
        "The command line and how the program ended; the names of functions.",
        On::AllBut(WITHOUT),
    ),
    (
        "heaptide.toml",
        "Settings of a project, in the current directory or one above it: own code, rules, suppressions, limits.",
        On::AllBut(WITHOUT_PAGES),
    ),
    (
        "$XDG_CACHE_HOME/heaptide, ~/.cache/heaptide, $TMPDIR/heaptide-UID",
        "The preloaded library, in the first of these directories that no other user can change.",
        On::Pages(&["run", "attach", "library"]),
    ),
    (
        "~/.cache/debuginfod_client",
        "Debug files that were fetched from a server.",
        On::Pages(&["run", "attach", "seal"]),
    ),
    (
        "DIR/include, DIR/lib, DIR/share/heaptide",
        "Headers, library, and sources that the command writes.",
        On::Pages(&["sdk"]),
    ),
    ("DIR/heaptide-COMMAND.1", "A page for each command.", On::Pages(&["man"])),
    (
        "~/.local/share/bash-completion/completions",
        "The directory of a user's completions for bash.",
        On::Pages(&["completions"]),
    ),
];

/// Variables not named `HEAPTIDE_…`; `heaptide-format` lists those.
pub const VARIABLES: &[Row] = &[
    (
        "DEBUGINFOD_URLS, DEBUGINFOD_CACHE_PATH, DEBUGINFOD_TIMEOUT, DEBUGINFOD_MAXTIME, DEBUGINFOD_MAXSIZE",
        "Servers of debug files, the directory for fetched files, timeouts in seconds, and the maximum size of a file in bytes.",
        On::Pages(&["run", "attach", "seal"]),
    ),
    (
        "NO_COLOR, CLICOLOR, CLICOLOR_FORCE, TERM",
        "Whether pages have colours: `NO_COLOR=1`, `CLICOLOR=0` and `TERM=dumb` for none, `CLICOLOR_FORCE=1` in files and pipes, too.",
        On::All,
    ),
    (
        "PAGER, LESS",
        "The pager for pages on a terminal if `HEAPTIDE_PAGER` is not set, and options for less.",
        On::AllBut(WITHOUT_PAGES),
    ),
    (
        "XDG_CACHE_HOME, HOME, TMPDIR",
        "Where the preloaded library is written.",
        On::Pages(&["run", "attach", "library"]),
    ),
];

/// Returns the pages that list a variable `HEAPTIDE_…`, given which program reads it.
pub fn pages_of(reader: &str, flags: &[&str]) -> On {
    match reader {
        "the command" => On::All,
        _ if flags.is_empty() => On::Pages(&["run"]),
        _ => On::Pages(RECORDING),
    }
}
