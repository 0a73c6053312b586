//! Applies filters and rules to a recording, and explains an empty result.

use std::io;
use std::path::Path;

use heaptide_analysis::files::input;
use heaptide_analysis::model::{Attribution, OwnPattern, Process, Recording};
use heaptide_analysis::selection::filter::{Filter, Only};
use heaptide_analysis::selection::hide::LaneGroup;
use heaptide_analysis::selection::pattern::Pattern;
use heaptide_analysis::selection::rules::{Rules, SETS};

use crate::error::Error;
use crate::outcome::Stop;
use crate::project::Project;
use crate::selection::{Reader, Selection};

/// The largest file of rules to read, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The parsed filters and rules of a selection.
pub struct Chosen {
    rules: Rules,
    filter: Filter,
    /// The filters as typed.
    words: String,
    hide: Vec<Pattern>,
    groups: Vec<LaneGroup>,
    attribution: Attribution,
}

impl Chosen {
    /// Parses the filters and rules of a selection.
    pub fn new(selection: &Selection, reader: Reader) -> Result<Chosen, Error> {
        let project = Project::here()?;
        let only = [(selection.live_only, Only::Live), (selection.temporary_only, Only::Temporary)];
        let named = if reader == Reader::Person && selection.rules.is_empty() && !selection.raw {
            Named { option: format!("{}: rules", project.name()), rules: project.rules() }
        } else {
            Named { option: "--rules".to_owned(), rules: selection.rules.clone() }
        };
        let rules = named.read()?;
        let mut ignore = patterns("--ignore", &selection.ignore)?;
        ignore.extend_from_slice(rules.ignored());
        let filter = Filter {
            focus: patterns("--focus", &selection.focus)?,
            ignore,
            min_size: selection.min_size,
            max_size: selection.max_size,
            only: only.into_iter().filter(|(asked, _)| *asked).map(|(_, only)| only).collect(),
        };
        let hide = patterns("--hide", &selection.hide)?;
        let groups = groups(&selection.group_threads)?;
        let words = words(selection, &named, &rules);
        let own = own(&selection.own, &project)?;
        let attribution = Attribution { is_raw: selection.raw, own };
        Ok(Chosen { rules, filter, words, hide, groups, attribution })
    }

    /// Applies them to every process.
    pub fn apply(&self, recording: &mut Recording) {
        recording.processes.iter_mut().for_each(|process| self.apply_to(process));
    }

    /// Applies them to a process.
    pub fn apply_to(&self, process: &mut Process) {
        process.attribution.clone_from(&self.attribution);
        if !self.groups.is_empty() {
            process.group_lanes(&self.groups);
        }
        if !self.rules.is_empty() {
            process.rewrite(&self.rules);
        }
        if !self.filter.is_empty() {
            self.filter.apply(process, &self.words);
        }
        if !self.hide.is_empty() {
            process.hide(&self.hide);
        }
    }

    /// Removes processes without a site that passes the filters. The result is negative if none is
    /// left, or if the selected one is removed.
    pub fn drop_empty(&self, recording: &mut Recording, pid: Option<u32>) -> Result<(), Stop> {
        match self.nothing(recording, pid) {
            Some(says) => Err(Stop::negative(says)),
            None => {
                let is_kept =
                    |process: &Process| self.filter.is_empty() || !process.tables.sites.is_empty();
                recording.processes.retain(is_kept);
                Ok(())
            }
        }
    }

    /// Returns a line that states that no site of the processes, or of the selected one, passes the
    /// filters; `None` if one does, or if there are no filters or no processes.
    pub fn nothing(&self, recording: &Recording, pid: Option<u32>) -> Option<String> {
        let asked = |process: &&Process| pid.is_none_or(|pid| pid == process.identity.pid);
        let mut processes = recording.processes.iter().filter(asked).peekable();
        processes.peek().filter(|_| !self.filter.is_empty())?;
        let path = recording.path.display();
        let of = pid.map(|pid| format!(" of process {pid}")).unwrap_or_default();
        let words = &self.words;
        let is_nothing = processes.all(|process| process.tables.sites.is_empty());
        is_nothing.then(|| format!("{path}: no allocations{of} match {words}"))
    }
}

fn patterns(option: &str, texts: &[String]) -> Result<Vec<Pattern>, Error> {
    let parse = |text: &String| {
        text.parse::<Pattern>().map_err(|error| Error::new(format!("{option} {error}")))
    };
    texts.iter().map(parse).collect()
}

/// Parses groups of threads, `io=^io-,workers=^wrk`: a comma without a following name belongs to
/// the expression.
fn groups(texts: &[String]) -> Result<Vec<LaneGroup>, Error> {
    let refuse = |what: &str| Error::new(format!("--group-threads {what}"));
    let name = |part: &str| -> Option<usize> {
        let end = part.find('=')?;
        let is_name = |c: char| c.is_alphanumeric() || " _.:/-".contains(c);
        (end > 0 && part[..end].chars().all(is_name)).then_some(end)
    };
    let mut groups = Vec::new();
    for text in texts {
        let mut parts: Vec<(&str, String)> = Vec::new();
        for part in text.split(',') {
            match (name(part), parts.last_mut()) {
                (Some(end), _) => parts.push((&part[..end], part[end + 1..].to_owned())),
                (None, Some((_, expression))) => {
                    expression.push(',');
                    expression.push_str(part);
                }
                (None, None) => {
                    return Err(refuse(&format!("`{text}`: expected NAME=REGEX,…")));
                }
            }
        }
        for (name, expression) in parts {
            let pattern = format!("thread:{expression}").parse::<Pattern>();
            let pattern = pattern.map_err(|error| refuse(&error.to_string()))?;
            groups.push(LaneGroup { name: name.to_owned(), pattern });
        }
    }
    Ok(groups)
}

/// Returns the patterns of the program's own code, from the options and the project file.
fn own(texts: &[String], project: &Project) -> Result<Vec<OwnPattern>, Error> {
    let mut own = Vec::new();
    let of_project = project.own.iter().map(|text| (project.name(), text));
    for (place, text) in texts.iter().map(|text| ("--own".to_owned(), text)).chain(of_project) {
        let pattern: Pattern =
            text.parse().map_err(|error| Error::new(format!("{place}: {error}")))?;
        let pattern = pattern.into_own().ok_or_else(|| {
            let what = "own code has functions, modules and files; expected `function:REGEX`, \
                        `module:REGEX` or `file:REGEX`";
            Error::new(format!("{place}: `{text}`: {what}"))
        })?;
        own.push(pattern);
    }
    Ok(own)
}

/// Names of rule files and built-in sets, and the option or file that contains them.
struct Named {
    option: String,
    rules: Vec<String>,
}

impl Named {
    /// Reads the rules, one after the other.
    fn read(&self) -> Result<Rules, Error> {
        let mut all = Rules::default();
        for name in &self.rules {
            let rules = match Rules::built_in(name) {
                Some(rules) => rules,
                None => rules_of_file(&self.option, Path::new(name))?,
            };
            all.append(rules);
        }
        Ok(all)
    }
}

fn rules_of_file(option: &str, path: &Path) -> Result<Rules, Error> {
    let text = input::read(path, FILE_BYTES_MAX).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let sets = SETS.map(|(name, _)| name).join(" ");
            let path = path.display();
            Error::new(format!("{option} {path}: no such file or built-in set; sets are {sets}"))
        }
        _ => Error::file(path, "read rules", error),
    })?;
    let text = String::from_utf8(text).map_err(|_| {
        let path = path.display();
        Error::new(format!("{path}: cannot read rules: not UTF-8 text"))
    })?;
    Rules::parse(&text).map_err(|error| Error::new(format!("{}:{error}", path.display())))
}

/// Returns the filters as typed, in the order of the help.
fn words(selection: &Selection, named: &Named, rules: &Rules) -> String {
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
    if !rules.ignored().is_empty() {
        words.push(format!("{} {}", named.option, named.rules.join(",")));
    }
    words.join(" ")
}

/// Quotes a text for a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-:./=,@%+^".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
