//! `heaptide write`: reports that a program requests with `heaptide_write()` or `HEAPTIDE_REPORT`.
//! The recorder in the program starts it with the profile of the program.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use heaptide_command::error::Error;
use heaptide_command::outcome::Outcome;
use heaptide_command::output;
use nix::unistd::dup2_stdout;

use crate::commands::export::ExportFormat;

/// `heaptide write`.
#[derive(Args, Debug)]
pub struct WriteOptions {
    /// What to write: text, json, dot, folded, stacks, snapshot, query:CALQL, another format of
    /// `heaptide export`, or a command; its options follow
    #[arg(long, value_name = "FORMAT", allow_hyphen_values = true)]
    pub format: String,
    /// File to write or to replace, - for standard output
    #[arg(short, long, value_name = "FILE", allow_hyphen_values = true)]
    pub output: PathBuf,
    /// Recording to read, or a profile in it
    #[arg(value_name = "REC")]
    pub recording: PathBuf,
}

/// The prefix of a query, which extends to the end of the text.
const QUERY: &str = "query:";
/// The format that copies the recording.
const SNAPSHOT: &str = "snapshot";
/// Commands that a format can name: those that read a recording and print.
const COMMANDS: [&str; 10] = [
    "report",
    "tree",
    "flamegraph",
    "peak",
    "memory",
    "leaks",
    "histogram",
    "timeline",
    "export",
    "info",
];

/// Writes the report. `perform` runs another command with these words and returns its result.
pub fn write(options: &WriteOptions, perform: impl FnOnce(Vec<OsString>) -> Outcome) -> Outcome {
    let (file, recording) = (&*options.output, &*options.recording);
    if options.format.trim() == SNAPSHOT {
        let words = ["merge", "--force", "--output"].map(OsString::from);
        let paths = [file.as_os_str(), "--".as_ref(), recording.as_os_str()];
        return perform(words.into_iter().chain(paths.map(OsString::from)).collect());
    }
    let words = words(&options.format, recording)?;
    if output::is_stdout(file) {
        return perform(words);
    }
    output::replace(file, true, |open| print_to(open, file, || perform(words)))
}

/// Checks that a format exists, before there is anything to write.
///
/// Errors: the format does not exist, or its query is invalid.
pub fn check(format: &str) -> Result<(), Error> {
    if format.trim() == SNAPSHOT {
        return Ok(());
    }
    if let Some(query) = format.trim_start().strip_prefix(QUERY) {
        let parsed = heaptide_query::parse(query);
        return parsed
            .map(drop)
            .map_err(|error| Error::new(format!("`{format}`: {}", error.message)));
    }
    words(format, Path::new(""))?;
    let name = format.split_whitespace().next().unwrap_or_default();
    let is_known = ["text", "json", "dot"].contains(&name) || COMMANDS.contains(&name);
    if is_known || ExportFormat::from_str(name, false).is_ok() {
        return Ok(());
    }
    Err(Error::new(format!(
        "`{name}`: no such format, expected text, json, snapshot, query:CALQL, a format of \
         `heaptide export`, or {}",
        COMMANDS.join(", ")
    )))
}

/// Returns the command line that writes the format.
///
/// Errors: the format does not exist.
fn words(format: &str, recording: &Path) -> Result<Vec<OsString>, Error> {
    let words = match format.trim_start().strip_prefix(QUERY) {
        Some(query) => vec!["query".to_owned(), "--".to_owned(), query.to_owned()],
        None => {
            let unreadable = || Error::new(format!("format `{format}`: missing closing quote"));
            let given = shlex::split(format).ok_or_else(unreadable)?;
            let (name, options) = given.split_first().ok_or_else(|| Error::new("no format"))?;
            let command: &[&str] = match &**name {
                "text" => &["report"],
                "json" => &["report", "--format", "json"],
                "dot" => &["export", "--scopes", "--format", "dot"],
                name if COMMANDS.contains(&name) => &[name],
                name => &["export", "--format", name],
            };
            let command = command.iter().map(|&word| word.to_owned());
            command.chain(options.iter().cloned()).chain(["--".to_owned()]).collect()
        }
    };
    let first = ["--no-pager".to_owned()];
    let words = first.into_iter().chain(words).map(OsString::from);
    Ok(words.chain([recording.as_os_str().to_owned()]).collect())
}

/// Runs `print` with standard output redirected to a file.
fn print_to(file: &File, path: &Path, print: impl FnOnce() -> Outcome) -> Outcome {
    let failed = |error: io::Error| Error::file(path, "write it", error);
    dup2_stdout(file).map_err(|error| failed(error.into()))?;
    print()?;
    io::stdout().flush().map_err(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(format: &str) -> String {
        let words = words(format, Path::new("a.heaptide")).expect("a format");
        let words: Vec<&str> = words.iter().map(|word| word.to_str().expect("text")).collect();
        words.join("|")
    }

    #[test]
    fn formats_and_their_commands() {
        assert_eq!(line("text"), "--no-pager|report|--|a.heaptide");
        assert_eq!(
            line("text --by 'scope' --top 3"),
            "--no-pager|report|--by|scope|--top|3|--|a.heaptide"
        );
        assert_eq!(line("json"), "--no-pager|report|--format|json|--|a.heaptide");
        assert_eq!(line("dot"), "--no-pager|export|--scopes|--format|dot|--|a.heaptide");
        assert_eq!(line("speedscope"), "--no-pager|export|--format|speedscope|--|a.heaptide");
        assert_eq!(line("tree --scopes"), "--no-pager|tree|--scopes|--|a.heaptide");
        let query = "query:SELECT 'a b' FORMAT json";
        assert_eq!(line(query), "--no-pager|query|--|SELECT 'a b' FORMAT json|a.heaptide");
        assert!(words("text 'x", Path::new("a")).is_err() && words(" ", Path::new("a")).is_err());
    }

    #[test]
    fn formats_are_checked_before_there_is_a_recording() {
        let known = ["text --top 3", "json", "snapshot", "tree --scopes", "malloc-tag"];
        assert!(known.iter().all(|format| check(format).is_ok()));
        assert!(check("query:SELECT owner,sum(live_bytes) GROUP BY owner").is_ok());
        for wrong in ["jsonn", "", "text 'x", "query:SELECT sum(", "run"] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }
}
