//! What is chosen of a recording by filters and rules, and what is said if that is nothing.

use heaptide_analysis::filter::{Filter, Only};
use heaptide_analysis::model::{Process, Recording};
use heaptide_analysis::pattern::Pattern;

use crate::error::Error;
use crate::options::Selection;

/// The filters and rules of a selection, read.
pub struct Chosen {
    filter: Filter,
    /// The filters as they were typed.
    words: String,
    hide: Vec<Pattern>,
}

impl Chosen {
    /// Reads them.
    pub fn of(selection: &Selection) -> Result<Chosen, Error> {
        let only = [(selection.live_only, Only::Live), (selection.temporary_only, Only::Temporary)];
        let filter = Filter {
            focus: patterns("--focus", &selection.focus)?,
            ignore: patterns("--ignore", &selection.ignore)?,
            min_size: selection.min_size,
            max_size: selection.max_size,
            only: only.into_iter().filter(|(asked, _)| *asked).map(|(_, only)| only).collect(),
        };
        let hide = patterns("--hide", &selection.hide)?;
        Ok(Chosen { filter, words: words(selection), hide })
    }

    /// Applies them to every process; those of which nothing is left are gone. It is an answer if
    /// that is so of all, or of the one asked for.
    pub fn apply(&self, recording: &mut Recording, pid: Option<u32>) -> Result<(), Error> {
        let asked = |process: &Process| pid.is_none_or(|pid| pid == process.pid);
        let had = recording.processes.iter().any(asked);
        for process in &mut recording.processes {
            if !self.filter.is_empty() {
                self.filter.apply(process, &self.words);
            }
            if !self.hide.is_empty() {
                process.hide(&self.hide);
            }
        }
        if self.filter.is_empty() {
            return Ok(());
        }
        recording.processes.retain(|process| !process.sites.is_empty());
        if had && !recording.processes.iter().any(asked) {
            let path = recording.path.display();
            let of = pid.map(|pid| format!(" of process {pid}")).unwrap_or_default();
            let words = &self.words;
            return Err(Error::no(format!("{path}: {words} leaves nothing{of}")));
        }
        Ok(())
    }
}

fn patterns(option: &str, texts: &[String]) -> Result<Vec<Pattern>, Error> {
    let parse = |text: &String| {
        text.parse::<Pattern>().map_err(|error| Error::new(format!("{option} {error}")))
    };
    texts.iter().map(parse).collect()
}

/// The filters as they were typed, in the order of the help.
fn words(selection: &Selection) -> String {
    let mut words = Vec::new();
    for (option, texts) in [("--focus", &selection.focus), ("--ignore", &selection.ignore)] {
        words.extend(texts.iter().map(|text| format!("{option} {}", quoted(text))));
    }
    for (option, size) in [("--min-size", selection.min_size), ("--max-size", selection.max_size)] {
        words.extend(size.map(|bytes| format!("{option} {bytes}")));
    }
    let only =
        [("--live-only", selection.live_only), ("--temporary-only", selection.temporary_only)];
    words.extend(only.into_iter().filter(|(_, asked)| *asked).map(|(word, _)| word.to_owned()));
    words.join(" ")
}

/// A text as it can be typed.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-:./=,@%+^".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}
