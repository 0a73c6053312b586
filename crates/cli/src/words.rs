//! Commands and options that users of other tools try, and what to use instead.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Commands of other tools.
const COMMANDS: &[(&str, &str)] = &[
    ("analyse", REPORT),
    ("analyze", REPORT),
    ("callgraph", "use `heaptide tree` or `heaptide export --format dot`"),
    ("compare", "use `heaptide diff A B`"),
    ("convert", "use `heaptide export`"),
    ("dump", REPORT),
    ("flame", "use `heaptide flamegraph`"),
    ("graph", "use `heaptide flamegraph` or `heaptide tree`"),
    ("html", "use `heaptide export --format html`"),
    ("leak", "use `heaptide leaks`"),
    ("list", "`heaptide info` lists the processes, modules and snapshots of a recording"),
    ("live", "use `heaptide top`"),
    ("open", "use `heaptide view`"),
    ("print", REPORT),
    ("record", "use `heaptide run`"),
    ("show", REPORT),
    ("snapshot", "use `heaptide ctl REC snapshot`"),
    ("start", "use `heaptide run`"),
    ("stat", REPORT),
    ("stats", REPORT),
    ("status", "use `heaptide ctl REC status`"),
    ("summary", REPORT),
    ("table", "use `heaptide report --by function`"),
];

const REPORT: &str = "use `heaptide report`";
const ATTACH: &str = "use `heaptide attach PID`";

/// Options of other commands and tools: the commands they are tried with (all if empty), the
/// options, and what to use instead.
const OPTIONS: &[(&[&str], &[&str], &str)] = &[
    (&["report"], &["--leaks", "--leak"], "use `heaptide leaks`"),
    (&["report"], &["--peak"], "use `heaptide peak`"),
    (&["report"], &["--tree"], "use `heaptide tree`"),
    (&["report"], &["--timeline"], "use `heaptide timeline`"),
    (&["report"], &["--histogram", "--sizes"], "use `heaptide histogram`"),
    (&["report"], &["--flamegraph", "--flame"], "use `heaptide flamegraph`"),
    (&["report"], &["--diff"], "use `heaptide diff A B`"),
    (&["report"], &["--temporary"], "use `--metric temporary`"),
    (&["report"], &["--stacks"], "use `--by stack`"),
    (&["run"], &["--pid", "-p", "--attach"], ATTACH),
    (PRINTING, &["--output", "-o"], "the output goes to standard output; add `> FILE`"),
    (PRINTING, &["--csv"], "use `heaptide export --format csv`"),
    (PRINTING, &["--html"], "use `heaptide export --format html`"),
    (PRINTING, &["--text"], "text is the default"),
    (&[], &["--json"], "use `--format json`"),
    (&[], &["--limit", "--count", "-n"], "use `--top N`"),
    (&[], &["--pid", "-p"], "use `--process PID`"),
    (&[], &["--filter", "--include"], "use `--focus REGEX`"),
    (&[], &["--exclude"], "use `--ignore REGEX`"),
    (&[], &["--group-by", "--group"], "use `--by KIND`"),
];

/// Commands that write to standard output only.
const PRINTING: &[&str] = &["report", "tree", "peak", "memory", "leaks"];

/// Returns a hint for a command line with such a word; none if there is none. `arguments` begins
/// with the name of the command.
pub fn answer(arguments: &[OsString], error: &clap::Error) -> Option<String> {
    let named = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = named(ContextKind::InvalidSubcommand)?;
            let (_, answer) = COMMANDS.iter().find(|(tried, _)| *tried == word)?;
            Some(format!("unknown command `{word}`; {answer}"))
        }
        ErrorKind::UnknownArgument => {
            let word = named(ContextKind::InvalidArg)?;
            let command = arguments.get(1)?.to_str()?;
            let is_it = |(commands, tried, _): &&(&[&str], &[&str], &str)| {
                tried.contains(&word) && (commands.is_empty() || commands.contains(&command))
            };
            let (.., answer) = OPTIONS.iter().find(is_it)?;
            Some(format!("`heaptide {command}` has no option `{word}`; {answer}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::commands::Options;

    fn answer_to(line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        answer(&words, &Options::try_parse_from(&words).expect_err(line))
    }

    #[test]
    fn what_others_call_it() {
        let answers = [
            ("heaptide summary x", "unknown command `summary`; use `heaptide report`"),
            (
                "heaptide report --leaks",
                "`heaptide report` has no option `--leaks`; use `heaptide leaks`",
            ),
            (
                "heaptide peak x -o y",
                "`heaptide peak` has no option `-o`; the output goes to standard output; add `> FILE`",
            ),
            ("heaptide tree --json", "`heaptide tree` has no option `--json`; use `--format json`"),
        ];
        for (line, expected) in answers {
            assert_eq!(answer_to(line).as_deref(), Some(expected));
        }
        for line in ["heaptide nonsense", "heaptide report --nonsense", "heaptide report --by x"] {
            assert_eq!(answer_to(line), None);
        }
        let attached = answer_to("heaptide run --pid 12").expect("an answer");
        assert!(attached.contains("`heaptide attach PID`"), "{attached}");
    }

    #[test]
    fn no_word_is_one_of_ours_and_every_answer_is() {
        for (word, _) in COMMANDS {
            let line = format!("heaptide {word} x");
            assert!(answer_to(&line).is_some(), "{line}");
        }
        for (commands, options, _) in OPTIONS {
            for (command, option) in
                commands.iter().flat_map(|c| options.iter().map(move |o| (c, o)))
            {
                let line = format!("heaptide {command} {option}");
                assert!(answer_to(&line).is_some(), "{line}");
            }
        }
        let ours = Options::command();
        let answers = COMMANDS.iter().map(|row| row.1).chain(OPTIONS.iter().map(|row| row.2));
        for answer in answers {
            for line in answer.split('`').filter_map(|part| part.strip_prefix("heaptide ")) {
                let name = line.split(' ').next().expect("a command");
                assert!(ours.find_subcommand(name).is_some(), "{answer}");
            }
        }
    }
}
