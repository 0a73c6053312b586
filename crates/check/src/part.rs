//! The part of a process that a limit is on: a scope, an owner, a thread, or all of it.

use std::fmt;

use heaptide_analysis::attribution::Owners;
use heaptide_analysis::model::{Mode, Process};
use heaptide_analysis::selection::pattern::{Kind, Pattern};

/// What allocations have in common: all of these. Without any, all allocations are meant.
#[derive(Clone, Debug, Default)]
pub struct Part {
    scope: Option<Name>,
    owner: Option<Name>,
    thread: Option<Name>,
}

/// A pattern, and the expression that it was made of.
#[derive(Clone, Debug)]
struct Name {
    text: String,
    pattern: Pattern,
}

impl Part {
    /// A part by regular expressions, which match anywhere in a name.
    ///
    /// Errors: one is not valid.
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

    /// Whether it is all of a process.
    pub fn is_all(&self) -> bool {
        self.scope.is_none() && self.owner.is_none() && self.thread.is_none()
    }

    /// Whether it is what some threads did, whatever that was.
    pub fn is_of_threads(&self) -> bool {
        self.scope.is_none() && self.owner.is_none() && self.thread.is_some()
    }

    /// Why a process that was recorded in this mode does not have such parts; none if it has.
    pub fn missing_in(&self, mode: Mode) -> Option<&'static str> {
        match mode {
            Mode::Counters if self.scope.is_some() => Some("--scope requires --mode scopes"),
            Mode::Counters | Mode::Scopes if self.owner.is_some() => {
                Some("--owner requires --mode stacks")
            }
            _ => None,
        }
    }

    /// For each site of a process, whether it is of this part.
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

    /// For each lane of a process that was recorded without sites, whether it is of this part.
    pub fn lanes(&self, process: &Process) -> Vec<bool> {
        match &self.thread {
            Some(name) => name.pattern.lanes(process),
            None => vec![true; process.tables.lanes.len()],
        }
    }
}

impl fmt::Display for Part {
    /// `scope parse, thread worker`; empty if all allocations are meant.
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
    fn a_part_has_a_name_and_its_mistakes_a_line() {
        let part = Part::new(Some("^parse$"), None, Some("worker")).expect("valid");
        assert_eq!(part.to_string(), "scope ^parse$, thread worker");
        assert!(Part::default().is_all() && Part::default().to_string().is_empty());
        let error = Part::new(None, Some("("), None).unwrap_err();
        assert_eq!(error, "owner `(`: unclosed group, at character 1");
    }

    #[test]
    fn parts_need_what_was_recorded() {
        let owner = Part::new(None, Some("f"), None).expect("valid");
        assert!(
            owner.missing_in(Mode::Scopes).is_some() && owner.missing_in(Mode::Stacks).is_none()
        );
        let thread = Part::new(None, None, Some("f")).expect("valid");
        assert!(thread.missing_in(Mode::Counters).is_none());
    }
}
