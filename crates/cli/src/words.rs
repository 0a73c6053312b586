//! Commands and options that users of other tools try: some are translated, for others a hint
//! names what to use instead.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, ValueEnum};
use heaptide_analysis::text::printable;
use nix::unistd::{AccessFlags, access};

use crate::commands::{ExportFormat, Options};

/// Commands of other tools.
const COMMANDS: &[(&str, &str)] = &[
    ("callgraph", "use `heaptide tree` or `heaptide export --format dot`"),
    ("graph", "use `heaptide flamegraph` or `heaptide tree`"),
    ("html", "use `heaptide export --format html`"),
    ("list", "`heaptide info` lists the processes, modules and snapshots of a recording"),
    ("parse", "use `heaptide export`"),
    ("script", "use `heaptide export`"),
    ("snapshot", "use `heaptide ctl REC snapshot`"),
    ("status", "use `heaptide ctl REC status`"),
    ("table", "use `heaptide report --by function`"),
    ("trace", "use `heaptide run --mode trace`"),
];

const ATTACH: &str = "use `heaptide attach PID`";

/// Options in front of the command, and what to use instead.
const FIRST_OPTIONS: &[(&[&str], &str)] = &[
    (&["--pid", "-p", "--attach"], ATTACH),
    (&["--output", "-o", "--mode", "--quiet", "-q"], "use `heaptide run [OPTIONS] PROGRAM`"),
    (&["--analyze", "-a", "--print", "--summary"], "use `heaptide report`"),
    (&["--tool", "--leak-check"], "use `heaptide run PROGRAM`, then `heaptide leaks`"),
];

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
    (&["run", "attach"], &["--pid", "-p", "--attach"], ATTACH),
    (&["detach"], &["--pid", "-p"], "use `heaptide detach PID`"),
    (&["top"], &["--pid", "-p"], "use `heaptide top PID`"),
    (&["view"], &["--pid", "-p"], "use `heaptide view PID`"),
    (&["run"], &["--live"], "use `heaptide top` while the program runs"),
    (&["run"], &["--out", "--outfile"], "use `--output REC`"),
    (&["run"], &["--follow-fork", "--trace-children"], "child processes are recorded by default"),
    (&["run"], &["--native", "-g", "--call-graph"], "native stacks are recorded by default"),
    (&["run"], &["--interval"], "use `--snapshot-every TIME`"),
    (&["run"], &["--time", "--duration"], "use `heaptide attach --for TIME PID`"),
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

/// Returns the command line that is meant. `heaptide ./app` runs the program, and `report` with a
/// format of `export` exports. `arguments` begins with the name of the command.
pub fn meant(arguments: &[OsString]) -> Vec<OsString> {
    let mut words = arguments.to_vec();
    let first = words.get(1).cloned().unwrap_or_default();
    if first == "help" {
        words.remove(1);
        words.push(OsString::from("--help"));
    } else if first == "--" || is_program(&first) {
        words.insert(1, OsString::from("run"));
    } else if matches!(first.to_str(), Some("report" | "tree")) && exports(&words) {
        words[1] = OsString::from("export");
    }
    words
}

/// Returns whether a word is the path of a program that can be run, not a command.
fn is_program(word: &OsStr) -> bool {
    word.as_bytes().contains(&b'/') && is_executable(Path::new(word))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, AccessFlags::X_OK).is_ok()
}

/// Returns whether a command line has a format of `export` that `report` and `tree` do not have.
fn exports(words: &[OsString]) -> bool {
    let formats = words.iter().zip(words.iter().skip(1).map(Some).chain([None]));
    let mut formats = formats.filter_map(|(word, next)| match word.to_str()? {
        "--format" => next?.to_str(),
        word => word.strip_prefix("--format="),
    });
    formats.any(|name| {
        !["text", "json"].contains(&name) && ExportFormat::from_str(name, false).is_ok()
    })
}

/// Returns a hint for a command line with such a word; none if there is none. `arguments` begins
/// with the name of the command. Lines after the first have no prefix.
pub fn answer(arguments: &[OsString], error: &clap::Error) -> Option<String> {
    let named = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    };
    let command = command(arguments);
    match error.kind() {
        ErrorKind::InvalidSubcommand if command.is_none() => {
            let word = named(ContextKind::InvalidSubcommand)?;
            let answer = COMMANDS.iter().find(|(tried, _)| *tried == word);
            let answer = answer.map(|(_, answer)| (*answer).to_owned()).or_else(|| other(word))?;
            Some(format!("unknown command `{}`; {answer}", printable(word)))
        }
        ErrorKind::UnknownArgument => {
            let word = named(ContextKind::InvalidArg)?;
            let Some(command) = command else {
                let (_, answer) = FIRST_OPTIONS.iter().find(|(tried, _)| tried.contains(&word))?;
                return Some(format!("`heaptide` has no option `{word}`; {answer}"));
            };
            let is_it = |(commands, tried, _): &&(&[&str], &[&str], &str)| {
                tried.contains(&word) && (commands.is_empty() || commands.contains(&&*command))
            };
            let (.., answer) = OPTIONS.iter().find(is_it)?;
            Some(format!("`heaptide {command}` has no option `{word}`; {answer}"))
        }
        ErrorKind::InvalidValue => {
            let value = named(ContextKind::InvalidValue)?;
            let is_format = named(ContextKind::InvalidArg)?.starts_with("--format ");
            let is_exported = is_format && ExportFormat::from_str(value, false).is_ok();
            let command = command.filter(|_| is_exported)?;
            let answer = format!("use `heaptide export --format {value}`");
            Some(format!("`heaptide {command}` has no format `{value}`; {answer}"))
        }
        ErrorKind::MissingRequiredArgument if command.as_deref() == Some("export") => {
            Some(format!("`heaptide export` requires --format with one of\n{}", formats()))
        }
        _ => None,
    }
}

/// Returns the name of the command in a command line, also if an alias is given.
fn command(arguments: &[OsString]) -> Option<String> {
    let command = Options::command();
    let words = arguments.iter().skip(1).filter_map(|word| word.to_str());
    let mut found = words.filter_map(|word| command.find_subcommand(word));
    found.next().map(|command| Command::get_name(command).to_owned())
}

/// Returns what to use for a first word that is no command of any tool.
fn other(word: &str) -> Option<String> {
    let (path, shown) = (Path::new(word), printable(word));
    let is_pid = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let is_recording = path.extension().is_some_and(|end| end == "heaptide" || end == "profile");
    if is_pid {
        return Some(format!("use `heaptide attach {word}` or `heaptide report {word}`"));
    }
    if is_recording && path.exists() {
        return Some(format!("use `heaptide report {shown}`"));
    }
    if word.contains('/') {
        return (!path.exists()).then(|| format!("no file `{shown}` was found"));
    }
    in_path(word).map(|_| format!("use `heaptide run {shown}` to record this program"))
}

/// Returns the path of a program that a shell would find.
fn in_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let mut found = env::split_paths(&path).map(|directory| directory.join(name));
    found.find(|path| is_executable(path))
}

/// Returns a line for each format of `export`.
fn formats() -> String {
    let values = ExportFormat::value_variants().iter().filter_map(ExportFormat::to_possible_value);
    let line = |value: clap::builder::PossibleValue| {
        let help = value.get_help().map(ToString::to_string).unwrap_or_default();
        format!("  {:<15} {help}", value.get_name())
    };
    let lines = values.filter(|value| !value.is_hide_set()).map(line);
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use heaptide_fixtures::Scratch;

    use super::*;

    fn answer_to(line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        answer(&words, &Options::try_parse_from(&words).expect_err(line))
    }

    #[test]
    fn what_others_call_it() {
        let answers = [
            ("heaptide table x", "unknown command `table`; use `heaptide report --by function`"),
            (
                "heaptide 4711",
                "unknown command `4711`; use `heaptide attach 4711` or `heaptide report 4711`",
            ),
            ("heaptide sh x", "unknown command `sh`; use `heaptide run sh` to record this program"),
            ("heaptide ./no/app", "unknown command `./no/app`; no file `./no/app` was found"),
            ("heaptide -p 12", "`heaptide` has no option `-p`; use `heaptide attach PID`"),
            (
                "heaptide -o x ./app",
                "`heaptide` has no option `-o`; use `heaptide run [OPTIONS] PROGRAM`",
            ),
            (
                "heaptide --color never summary --leaks",
                "`heaptide report` has no option `--leaks`; use `heaptide leaks`",
            ),
            (
                "heaptide leaks --format html",
                "`heaptide leaks` has no format `html`; use `heaptide export --format html`",
            ),
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
    fn commands_of_other_tools_work() {
        let of = |line: &str| command(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        for (line, expected) in [
            ("heaptide record ./app", "run"),
            ("heaptide profile ./app", "run"),
            ("heaptide summary x", "report"),
            ("heaptide stat x", "report"),
            ("heaptide compare a b", "diff"),
            ("heaptide live", "top"),
            ("heaptide open x", "view"),
            ("heaptide convert x --format html", "export"),
            ("heaptide leak x", "leaks"),
            ("heaptide flame x", "flamegraph"),
        ] {
            assert_eq!(of(line).as_deref(), Some(expected), "{line}");
            assert!(Options::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
    }

    #[test]
    fn a_program_is_run_and_a_format_of_export_is_exported() {
        let scratch = Scratch::new("words");
        let text = scratch.write("text", b"");
        let text = text.to_str().expect("UTF-8");
        let text_line = format!("heaptide {text} --x");
        for (line, expected) in [
            ("heaptide /bin/sh -c true", "heaptide run /bin/sh -c true"),
            ("heaptide -- sh -c true", "heaptide run -- sh -c true"),
            ("heaptide report a --format html", "heaptide export a --format html"),
            ("heaptide tree --format=dot", "heaptide export --format=dot"),
            ("heaptide report --format json", "heaptide report --format json"),
            ("heaptide report --format nonsense", "heaptide report --format nonsense"),
            ("heaptide report --format", "heaptide report --format"),
            ("heaptide run /bin/sh", "heaptide run /bin/sh"),
            ("heaptide help", "heaptide --help"),
            ("heaptide help run", "heaptide run --help"),
            // Neither a directory nor a file without permission is a program.
            ("heaptide /tmp", "heaptide /tmp"),
            (&text_line, &text_line),
            ("heaptide", "heaptide"),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(meant(&words).join(OsStr::new(" ")), *expected);
        }
    }

    #[test]
    fn export_without_a_format_lists_the_formats() {
        let answer = answer_to("heaptide export app.heaptide").expect("an answer");
        assert!(answer.starts_with("`heaptide export` requires --format with one of\n  folded "));
        assert!(answer.contains("\n  html            Self-contained web page\n"), "{answer}");
        assert!(!answer.contains("malloc-tag-dot"), "{answer}");
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
        let answers = answers.chain(FIRST_OPTIONS.iter().map(|row| row.1));
        for answer in answers {
            for line in answer.split('`').filter_map(|part| part.strip_prefix("heaptide ")) {
                let name = line.split(' ').next().expect("a command");
                assert!(ours.find_subcommand(name).is_some(), "{answer}");
            }
        }
    }
}
