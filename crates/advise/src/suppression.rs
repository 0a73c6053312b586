//! Suppressions of known findings: a rule, and a pattern of a function, module or file.

use std::fmt;
use std::str::FromStr;

use heaptide_analysis::model::{Process, StackId};
use heaptide_analysis::selection::pattern::{Kind, Pattern, exactly};

use crate::finding::Finding;
use crate::rules::RULES;

/// A rule, and the functions whose findings are suppressed.
#[derive(Clone, Debug)]
pub struct Suppression {
    text: String,
    /// `None` for every rule.
    rule: Option<&'static str>,
    /// `None` for every location.
    pattern: Option<Pattern>,
}

/// The word for every rule.
const ANY: &str = "all";

/// Why a text is no valid suppression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadSuppression(String);

impl fmt::Display for BadSuppression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadSuppression {}

impl FromStr for Suppression {
    type Err = BadSuppression;

    /// Syntax: `RULE`, or `RULE:[KIND:]REGEX`, where the kind is function, module or file.
    ///
    /// ```
    /// use heaptide_advise::Suppression;
    /// assert!("temporary:^parse$".parse::<Suppression>().is_ok());
    /// assert!("all:module:libfoo".parse::<Suppression>().is_ok());
    /// let wrong = "temporry:^parse$".parse::<Suppression>().unwrap_err();
    /// assert!(wrong.to_string().starts_with("unknown rule `temporry`; expected one of all "));
    /// ```
    fn from_str(text: &str) -> Result<Suppression, BadSuppression> {
        let (word, pattern) = match text.split_once(':') {
            Some((word, pattern)) => (word, Some(pattern)),
            None => (text, None),
        };
        let known = RULES.iter().map(|rule| rule.name).find(|name| *name == word);
        if known.is_none() && word != ANY {
            let names: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
            let names = names.join(" ");
            return Err(BadSuppression(format!(
                "unknown rule `{word}`; expected one of {ANY} {names}"
            )));
        }
        let pattern = pattern.map(str::parse::<Pattern>).transpose();
        let pattern = pattern.map_err(|error| BadSuppression(error.to_string()))?;
        let is_of_frames = |pattern: &Pattern| {
            matches!(pattern.kind(), Kind::Function | Kind::Module | Kind::File)
        };
        if !pattern.as_ref().is_none_or(is_of_frames) {
            return Err(BadSuppression(format!(
                "`{text}`: a finding has functions, modules and files; expected \
                 RULE:[function:|module:|file:]REGEX"
            )));
        }
        Ok(Suppression { text: text.to_owned(), rule: known, pattern })
    }
}

impl fmt::Display for Suppression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Suppressions in the order in which they are tried.
#[derive(Clone, Debug, Default)]
pub struct Suppressions(Vec<Suppression>);

impl Suppressions {
    /// Creates an empty list.
    pub fn none() -> Suppressions {
        Suppressions::default()
    }

    /// Creates a list of these.
    pub fn new(suppressions: Vec<Suppression>) -> Suppressions {
        Suppressions(suppressions)
    }

    /// Returns their number.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the text of each.
    pub fn texts(&self) -> impl Iterator<Item = &str> + Clone {
        self.0.iter().map(|suppression| suppression.text.as_str())
    }

    pub(crate) fn matched(&self, process: &Process) -> Matched<'_> {
        let frames = |suppression: &Suppression| {
            suppression.pattern.as_ref().map(|pattern| pattern.frames(process))
        };
        Matched { suppressions: &self.0, frames: self.0.iter().map(frames).collect() }
    }
}

/// Suppressions, with the frames of a process that each pattern matches.
pub(crate) struct Matched<'a> {
    suppressions: &'a [Suppression],
    frames: Vec<Option<Vec<bool>>>,
}

impl Matched<'_> {
    /// Returns the first suppression that applies to a finding: its rule matches, and its pattern
    /// matches a frame of the heaviest stack.
    pub(crate) fn by(&self, process: &Process, finding: &Finding) -> Option<usize> {
        let stack = finding.place.as_ref().map_or(StackId(0), |place| place.stack);
        let mut all = self.suppressions.iter().zip(&self.frames);
        all.position(|(suppression, frames)| {
            suppression.rule.is_none_or(|rule| rule == finding.rule)
                && frames.as_ref().is_none_or(|frames| {
                    process.frames_of(stack).any(|frame| frames[frame.0 as usize])
                })
        })
    }
}

impl Finding {
    /// Returns a suppression for this finding: its rule, and the full name of its owner.
    ///
    /// A function without a name has the name that [`Process::label`] returns.
    pub fn suppression(&self, process: &Process) -> String {
        match &self.place {
            Some(place) => {
                format!("{}:{}", self.rule, exactly(&process.label(place.frame)))
            }
            None => self.rule.to_owned(),
        }
    }
}
