//! The prompt: reads statements over several lines until `;`, with history, completion, and
//! commands that list tables and functions.

use std::borrow::Cow;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use heaptide_command::error::Error;
use heaptide_command::message::{message, report};
use heaptide_command::output;
use heaptide_command::sql::SqlFormat;
use heaptide_query::tables::Source;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Context, Editor, Helper};

use crate::columns;
use crate::functions::FUNCTIONS;
use crate::session::Session;
use crate::statements::{self, Statement};

/// The most statements in the history.
const STATEMENTS_MAX: usize = 10_000;

const HELP: &str = "\
statements end with ; and may span lines
\\d         lists the tables
\\d TABLE   lists the columns of a table
\\df        lists the functions of heaptide
\\q         quits, like Ctrl-D
";

/// Runs the prompt until the end of input. Errors of statements are printed, and the prompt
/// continues.
///
/// Errors: the terminal cannot be used.
pub fn prompt(session: &Session, format: SqlFormat) -> Result<(), Error> {
    let failed = |error: ReadlineError| Error::new(format!("cannot open the prompt: {error}"));
    let config = Config::builder().max_history_size(STATEMENTS_MAX).map_err(failed)?;
    let config = config.history_ignore_space(true).auto_add_history(true).build();
    let mut editor = Editor::<Words, FileHistory>::with_config(config).map_err(failed)?;
    editor.set_helper(Some(Words::all()));
    let history = history();
    if let Some(path) = &history {
        let _ = editor.load_history(path); // initially there is none
    }
    message("\\? lists the commands");
    loop {
        match editor.readline("heaptide> ") {
            Ok(text) => {
                let going_on = entered(session, format, text.trim())?;
                if let Some(path) = &history {
                    let _ = editor.append_history(path); // without a history the prompt still works
                }
                if !going_on {
                    return Ok(());
                }
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Runs what was entered; returns whether the prompt continues.
fn entered(session: &Session, format: SqlFormat, text: &str) -> Result<bool, Error> {
    let mut words = text.trim_end_matches(';').split_whitespace();
    match (words.next(), words.next()) {
        (Some("\\q" | "exit" | "quit"), None) => return Ok(false),
        (Some("\\?" | "help"), None) => page(HELP)?,
        (Some("\\df"), None) => page(&functions())?,
        (Some("\\d"), None) => page(&tables())?,
        (Some("\\d"), Some(name)) => match Source::named(name) {
            Some(table) => page(&columns::described(table))?,
            None => message(format_args!("unknown table `{name}`; \\d lists the tables")),
        },
        (Some(word), _) if word.starts_with('\\') => {
            message(format_args!("unknown command `{word}`; \\? lists the commands"));
        }
        _ => {
            for statement in statements::split(text) {
                answer(session, format, &statement)?;
            }
        }
    }
    Ok(true)
}

fn answer(session: &Session, format: SqlFormat, statement: &Statement) -> Result<(), Error> {
    match crate::answer::print(session, statement, format) {
        Ok(()) => Ok(()),
        Err(error) if error.is_broken_pipe() => Err(error),
        Err(error) => {
            report(&error);
            Ok(())
        }
    }
}

fn page(text: &str) -> Result<(), Error> {
    output::print_text(|out| out.write_all(text.as_bytes()))
}

fn tables() -> String {
    let line = |table: &Source| format!("{:11} {}\n", table.name, table.says);
    Source::all().iter().map(line).collect()
}

fn functions() -> String {
    FUNCTIONS.iter().map(|function| format!("{:28} {}\n", function.call, function.says)).collect()
}

/// Returns the file of the history, in the user's state directory.
fn history() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let directory = state.filter(|path| path.is_absolute()).or_else(home)?.join("heaptide");
    let made: io::Result<()> = fs::create_dir_all(&directory);
    made.ok().map(|()| directory.join("sql_history"))
}

/// Completes words, and detects when a statement is complete.
struct Words(Vec<String>);

/// SQL keywords to complete.
const KEYWORDS: &str = "SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT DISTINCT JOIN LEFT USING ON \
    WITH UNION ALL CASE WHEN THEN ELSE END CAST AS AND OR NOT IN IS NULL LIKE ILIKE BETWEEN DESC \
    EXPLAIN ANALYZE count sum min max avg median approx_percentile_cont unnest array_distinct \
    array_length date_bin";

impl Words {
    fn all() -> Words {
        let mut words: Vec<String> = KEYWORDS.split_whitespace().map(str::to_owned).collect();
        words.extend(FUNCTIONS.iter().map(|function| function.name().to_owned()));
        for table in Source::all() {
            words.push(table.name.to_owned());
            words.extend(columns::of(table).iter().map(|column| column.name.to_owned()));
        }
        words.sort();
        words.dedup();
        Words(words)
    }
}

impl Helper for Words {}

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        end: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let of_a_word = |c: char| c.is_alphanumeric() || c == '_';
        let start = line[..end].rfind(|c| !of_a_word(c)).map_or(0, |at| at + 1);
        let begun = line[start..end].to_lowercase();
        let fits = |word: &&String| !begun.is_empty() && word.to_lowercase().starts_with(&begun);
        Ok((start, self.0.iter().filter(fits).cloned().collect()))
    }
}

impl Hinter for Words {
    type Hint = String;
}

impl Highlighter for Words {
    fn highlight_candidate<'c>(
        &self,
        candidate: &'c str,
        _completion: rustyline::CompletionType,
    ) -> Cow<'c, str> {
        Cow::Borrowed(candidate)
    }
}

impl Validator for Words {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        Ok(if whole(context.input()) {
            ValidationResult::Valid(None)
        } else {
            ValidationResult::Incomplete
        })
    }
}

/// Returns whether the input is complete: a command of the prompt, or a statement with `;`.
fn whole(text: &str) -> bool {
    let text = text.trim();
    let is_word = text.starts_with('\\') || matches!(text, "" | "exit" | "quit" | "help");
    is_word || statements::ends(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_continue_until_the_semicolon() {
        assert!(whole("") && whole("\\d sites") && whole("quit") && whole("SELECT 1;"));
        assert!(!whole("SELECT 1") && !whole("SELECT ';") && !whole("SELECT 1; SELECT 2"));
    }
}
