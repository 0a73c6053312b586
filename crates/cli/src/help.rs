//! Two levels of help: `--help` shows the frequent options on one screen, `--help-all` all options.

use std::ffi::OsString;
use std::fmt::Write;

use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory, FromArgMatches};
use heaptide_command::selection::{NAMES, SELECTION};
use heaptide_command::terminal::GENERAL;

use crate::options::{DEBUG_FILES, FLAME_GRAPHS, INTERCEPTION, SNAPSHOTS, STACKS};

/// Headings of options that `--help` omits.
const FURTHER: [&str; 8] =
    [SELECTION, NAMES, DEBUG_FILES, FLAME_GRAPHS, INTERCEPTION, SNAPSHOTS, STACKS, GENERAL];

/// Other options that `--help` omits, of any command.
const RARE: [&str; 34] = [
    "accounts",
    "annotate",
    "background",
    "bisect",
    "cluster",
    "describe",
    "exact",
    "force",
    "host",
    "ignore-status",
    "keep-trace-for",
    "keep-trace-size",
    "linger",
    "link",
    "max-series",
    "monitor",
    "no-built-in",
    "order",
    "otlp-interval",
    "otlp-profiles",
    "owner",
    "patience",
    "python-memory",
    "report",
    "scope",
    "scopes-and-stacks",
    "skip-damaged",
    "start-off",
    "suppressions",
    "thread",
    "token-file",
    "update",
    "width",
    "write",
];

/// The group of these options below `--help`.
const OTHER: &str = "other options";

/// The most characters of possible values in `--help`.
const VALUES_MAX: usize = 60;

/// Commands with a common purpose, in `heaptide --help`.
struct Group {
    heading: &'static str,
    /// Frequent commands, each with its purpose.
    frequent: &'static [(&'static str, &'static str)],
    other: &'static [&'static str],
}

const GROUPS: [Group; 5] = [
    Group {
        heading: "Record a program",
        frequent: &[
            ("run", "Run a program and record its allocations"),
            ("attach", "Record a program that is already running"),
        ],
        other: &["detach", "watch", "ctl"],
    },
    Group {
        heading: "Read a recording",
        frequent: &[
            ("report", "Show totals, peak usage, leaks and temporary allocations"),
            ("flamegraph", "Draw a flame graph"),
        ],
        other: &[
            "peak",
            "leaks",
            "lines",
            "tree",
            "histogram",
            "timeline",
            "memory",
            "advise",
            "info",
        ],
    },
    Group {
        heading: "Observe running programs",
        frequent: &[
            ("top", "Watch a running program: its memory by owner, growth"),
            ("view", "Show recordings in the browser, live while programs run"),
        ],
        other: &["retain", "serve"],
    },
    Group {
        heading: "Compare",
        frequent: &[
            ("diff", "Compare two recordings"),
            ("check", "Check memory limits, also against a baseline"),
        ],
        other: &["ranks"],
    },
    Group {
        heading: "Convert, query, set up",
        frequent: &[],
        other: &[
            "export",
            "query",
            "sql",
            "dataset",
            "seal",
            "merge",
            "sdk",
            "library",
            "man",
            "completions",
        ],
    },
];

/// Parses a command line, whose help has two levels.
///
/// Errors: those of the command line, or a requested help.
pub fn parse<T: CommandFactory + FromArgMatches>(arguments: &[OsString]) -> Result<T, clap::Error> {
    let command = T::command();
    // Shortening takes memory, which may be scarce when a program is run.
    let has =
        |words: &[&str]| arguments.iter().any(|a| a.to_str().is_some_and(|a| words.contains(&a)));
    let is_brief = arguments.len() < 2 || has(&["-h", "--help", "help"]) && !has(&["--help-all"]);
    let mut command = if is_brief { brief(command) } else { command };
    let matches = command.try_get_matches_from_mut(arguments)?;
    T::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Returns the command with help for one screen.
fn brief(command: Command) -> Command {
    // Those of the command itself are passed on to its subcommands.
    let command = command.mut_args(|argument| argument.hide_short_help(true));
    with_overview(command.mut_subcommands(in_brief))
}

/// Gives a command and its subcommands help for one screen.
fn in_brief(command: Command) -> Command {
    let mut omitted: Vec<String> = Vec::new();
    let command = command.mut_args(|argument| {
        let heading = argument.get_help_heading();
        let is_rare = argument.get_long().is_some_and(|long| RARE.contains(&long));
        let is_omitted = is_rare || heading.is_some_and(|heading| FURTHER.contains(&heading));
        let named = heading.filter(|_| !is_rare).unwrap_or(OTHER);
        if is_omitted && !argument.is_hide_set() && !omitted.iter().any(|known| known == named) {
            omitted.push(named.to_owned());
        }
        shortened(argument).hide_short_help(is_omitted)
    });
    let full = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    // The group of general options is there in any case.
    omitted.retain(|heading| heading != GENERAL);
    let brief = format!("{}\n{}", first_example(&full), further(&omitted));
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    command.about(first_clause(&about)).after_help(brief).mut_subcommands(in_brief)
}

/// Returns an option with a short description.
fn shortened(argument: Arg) -> Arg {
    let Some(full) = argument.get_help().map(ToString::to_string) else {
        return argument;
    };
    let names: usize = argument.get_possible_values().iter().map(|v| v.get_name().len() + 2).sum();
    let is_long = names > VALUES_MAX;
    let argument = if is_long { argument.hide_possible_values(true) } else { argument };
    argument.help(first_clause(&full))
}

/// The most characters of a default in `--help`.
const DEFAULT_MAX: usize = 45;

/// Returns the first clause of a description, and its default at the end unless it is long.
fn first_clause(text: &str) -> String {
    let (text, default) = match text.split_once(" [default: ") {
        Some((text, default)) if default.len() < DEFAULT_MAX => {
            (text, format!(" [default: {default}"))
        }
        Some((text, _)) => (text, String::new()),
        None => (text, String::new()),
    };
    let ends = ["; ", ". ", ": ", " ("].into_iter().filter_map(|end| text.find(end));
    let clause = &text[..ends.min().unwrap_or(text.len())];
    format!("{clause}{default}")
}

/// Returns the first line of the examples below a help.
fn first_example(help: &str) -> String {
    help.lines().take(2).collect::<Vec<_>>().join("\n")
}

/// Returns the line about what `--help-all` shows.
fn further(headings: &[String]) -> String {
    let names: Vec<String> = headings.iter().map(|heading| heading.to_lowercase()).collect();
    match &*names {
        [] => "--help-all also shows general options.".to_owned(),
        names => format!("--help-all also shows: {}.", names.join(", ")),
    }
}

/// Returns the command with groups of commands as its help.
fn with_overview(command: Command) -> Command {
    let mut text = StyledStr::new();
    // A string cannot fail.
    let _ = write_overview(&command, &mut text);
    command.override_help(text)
}

fn write_overview(command: &Command, out: &mut StyledStr) -> std::fmt::Result {
    let styles = command.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let about = about.split_once("; ").map_or(&*about, |(clause, _)| clause);
    writeln!(out, "{about}\n")?;
    writeln!(out, "{header}Usage:{header:#} {literal}heaptide{literal:#} <COMMAND> [OPTIONS]\n")?;
    for Group { heading, frequent, other } in &GROUPS {
        writeln!(out, "{header}{heading}:{header:#}")?;
        for (name, purpose) in *frequent {
            writeln!(out, "  {literal}{name:<10}{literal:#}  {purpose}")?;
        }
        let also = if frequent.is_empty() { "" } else { "also " };
        writeln!(out, "  {also}{literal}{}{literal:#}", other.join(" "))?;
    }
    writeln!(out, "Example: heaptide run ./app && heaptide report")?;
    write!(out, "`heaptide COMMAND --help` describes a command, `heaptide --help-all` lists all.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Options;

    /// The size of a screen.
    const SCREEN: (usize, usize) = (24, 80);

    fn assert_fits(what: &str, help: &str) {
        let (lines, columns) = SCREEN;
        assert!(help.trim_end().lines().count() <= lines, "{what}:\n{help}");
        assert!(help.lines().all(|line| line.chars().count() <= columns), "{what}:\n{help}");
    }

    fn all_fit(command: &mut Command, path: &str) -> usize {
        let mut count = 0;
        for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help") {
            let path = format!("{path} {}", sub.get_name());
            let mut shown = sub.clone().term_width(SCREEN.1);
            assert_fits(&path, &shown.render_help().to_string());
            count += 1 + all_fit(sub, &path);
        }
        count
    }

    #[test]
    fn the_help_of_every_command_fits_a_screen() {
        let mut command = brief(Options::command());
        command.build();
        assert!(all_fit(&mut command, "heaptide") > 35);
        for line in [&["heaptide"][..], &["heaptide", "--help"], &["heaptide", "-h"]] {
            let words: Vec<OsString> = line.iter().map(OsString::from).collect();
            assert_fits(
                "heaptide",
                &parse::<Options>(&words).expect_err("help").render().to_string(),
            );
        }
    }

    #[test]
    fn the_overview_has_every_command_once() {
        let mut listed: Vec<&str> = GROUPS
            .iter()
            .flat_map(|group| {
                group.frequent.iter().map(|row| row.0).chain(group.other.iter().copied())
            })
            .collect();
        listed.sort_unstable();
        let command = Options::command();
        let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        let mut names: Vec<&str> = shown.map(Command::get_name).collect();
        names.sort_unstable();
        assert_eq!(listed, names);
    }

    #[test]
    fn all_options_are_in_the_full_help_with_general_ones_last() {
        let mut command = Options::command();
        command.build();
        for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help") {
            let brief = in_brief(sub.clone()).render_help().to_string();
            let full = sub.render_long_help().to_string();
            let shown = sub.get_arguments().filter(|argument| !argument.is_hide_set());
            for long in shown.filter_map(|argument| argument.get_long()) {
                assert!(full.contains(&format!("--{long}")), "{long}: {full}");
            }
            assert!(brief.contains("--help-all also shows"), "{brief}");
            let general = full.split_once("\nGeneral options:\n").expect("general options").1;
            assert!(!general.contains(":\n      --") && general.contains("--no-pager"), "{full}");
        }
    }

    #[test]
    fn every_rare_option_exists() {
        let command = Options::command();
        let all = |long: &str| {
            command
                .get_subcommands()
                .flat_map(|sub| sub.get_arguments())
                .any(|argument| argument.get_long() == Some(long))
        };
        assert_eq!(RARE.into_iter().filter(|long| !all(long)).collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn a_short_description_is_the_first_clause() {
        for (text, expected) in [
            ("Replace a file", "Replace a file"),
            ("Output format: text, or json. Can be repeated", "Output format"),
            ("Recording; REC@NAME is … [default: the newest]", "Recording [default: the newest]"),
        ] {
            assert_eq!(first_clause(text), expected);
        }
    }
}
