//! The part of a process that a limit applies to: a scope, an owner, a thread, or all of it.

use std::fmt;

use heaptide_analysis::attribution::Owners;
use heaptide_analysis::model::{Mode, Process};
use heaptide_analysis::selection::pattern::{Kind, Pattern};

/// Conditions on allocations, all of which must hold. Without conditions it is the whole process.
#[derive(Clone, Debug, Default)]
pub struct Part {
    scope: Option<Name>,
    owner: Option<Name>,
    thread: Option<Name>,
}

/// A pattern, and its source text.
#[derive(Clone, Debug)]
struct Name {
    text: String,
    pattern: Pattern,
}

impl Part {
    /// Creates a part from regular expressions, which match anywhere in a name.
    ///
    /// Errors: an expression is invalid.
    pub fn new(
        scope: Option<&str>,
        owner: Option<&str>,
        thread: Option<&str>,
    ) -> Result<Part, String> {
        let name = |what: &str, kind: Kind, text: Option<&str>| {
            text.map(|text| match Pattern::of(kind, text) {
                Ok(pattern) => Ok(Name { text: text.to_owned(), pattern }),
                Err(error) => Err(format!("{what} {error}")),
            })
            .transpose()
        };
        Ok(Part {
            scope: name("scope", Kind::Scope, scope)?,
            owner: name("owner", Kind::Function, owner)?,
            thread: name("thread", Kind::Lane, thread)?,
        })
    }

    /// Returns whether it is the whole process.
    pub fn is_all(&self) -> bool {
        self.scope.is_none() && self.owner.is_none() && self.thread.is_none()
    }

    /// Returns whether the part consists of threads alone, regardless of scope and owner.
    pub fn is_of_threads(&self) -> bool {
        self.scope.is_none() && self.owner.is_none() && self.thread.is_some()
    }

    /// Returns why a process recorded in this mode has no such parts; `None` if it has.
    pub fn missing_in(&self, mode: Mode) -> Option<&'static str> {
        match mode {
            Mode::Counters if self.scope.is_some() => Some("--scope requires --mode scopes"),
            Mode::Counters | Mode::Scopes if self.owner.is_some() => {
                Some("--owner requires --mode stacks")
            }
            _ => None,
        }
    }

    /// Returns, for each site of a process, whether it belongs to this part.
    pub fn sites(&self, process: &Process, owners: &Owners) -> Vec<bool> {
        let mut sites = vec![true; process.tables.sites.len()];
        for name in [&self.scope, &self.thread].into_iter().flatten() {
            let hits = name.pattern.hits(process);
            sites.iter_mut().zip(hits).for_each(|(site, hit)| *site &= hit);
        }
        if let Some(name) = &self.owner {
            let frames = name.pattern.frames(process);
            for (keep, site) in sites.iter_mut().zip(&process.tables.sites) {
                let owner = owners.frame(process, site.stack);
                *keep &= owner.is_some_and(|frame| frames[frame.0 as usize]);
            }
        }
        sites
    }

    /// Returns, for each lane of a process that was recorded without sites, whether it belongs to
    /// this part.
    pub fn lanes(&self, process: &Process) -> Vec<bool> {
        match &self.thread {
            Some(name) => name.pattern.lanes(process),
            None => vec![true; process.tables.lanes.len()],
        }
    }
}

impl fmt::Display for Part {
    /// Writes `scope parse, thread worker`; empty for the whole process.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [("scope", &self.scope), ("owner", &self.owner), ("thread", &self.thread)];
        let given = names.iter().filter_map(|(kind, name)| Some((kind, name.as_ref()?)));
        for (at, (kind, name)) in given.enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{kind} {}", name.text)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_in_a_part_have_a_line() {
        let part = Part::new(Some("^parse$"), None, Some("worker")).expect("valid");
        assert_eq!(part.to_string(), "scope ^parse$, thread worker");
        assert!(Part::default().is_all() && Part::default().to_string().is_empty());
        let error = Part::new(None, Some("("), None).unwrap_err();
        assert_eq!(error, "owner `(`: unclosed group, at character 1");
    }

    #[test]
    fn parts_require_recorded_data() {
        let owner = Part::new(None, Some("f"), None).expect("valid");
        assert!(
            owner.missing_in(Mode::Scopes).is_some() && owner.missing_in(Mode::Stacks).is_none()
        );
        let thread = Part::new(None, None, Some("f")).expect("valid");
        assert!(thread.missing_in(Mode::Counters).is_none());
    }
}
