//! The environment of the program: that of the command, unchanged in bytes and order, except for
//! the few entries that enable recording.
//!
//! `HEAPTIDE_RUN` lists the changes, so that a `heaptide run` inside of the program removes the
//! settings of the outer one and keeps those of the user.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use heaptide_format::settings::Setting;

/// The list of changes: `NAME:LENGTH:FINGERPRINT` for each, separated by commas. FINGERPRINT, in
/// hexadecimal, is that of the first LENGTH bytes of the value.
const CHANGES: &str = Setting::Run.variable();
/// The libraries that the loader loads first.
pub const PRELOAD: &str = "LD_PRELOAD";

/// Entries of an environment, in any form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Environment {
    entries: Vec<OsString>,
    /// The future contents of [`CHANGES`].
    changes: String,
}

impl Environment {
    /// Creates it from these entries, without the changes of an outer `heaptide run`.
    pub fn new(entries: &[OsString]) -> Environment {
        let mut environment = Environment { entries: entries.to_vec(), changes: String::new() };
        environment.take_back_changes();
        environment
    }

    /// Returns the value of a variable, like getenv.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.entries.iter().find_map(|entry| value(entry, name))
    }

    /// Sets a variable: replaces its first entry, or appends one.
    pub fn set(&mut self, name: &str, value: &OsStr) {
        let first = self.position(name);
        let is_news = self.get(name) != Some(value);
        let mut index = 0;
        self.entries.retain(|entry| {
            index += 1;
            self::value(entry, name).is_none() || Some(index - 1) == first
        });
        self.put(first, entry(name, value));
        if is_news {
            self.note(name, value);
        }
    }

    /// Makes the loader load libraries before the others that are listed. The loader and the
    /// program's children may use different ones of several entries, so all entries get the
    /// libraries.
    pub fn preload(&mut self, libraries: &OsStr) {
        let mut is_there = false;
        for entry in &mut self.entries {
            if let Some(others) = value(entry, PRELOAD) {
                let mut all = libraries.to_owned();
                if !others.is_empty() {
                    all.push(":");
                    all.push(others);
                }
                *entry = self::entry(PRELOAD, &all);
                is_there = true;
            }
        }
        if !is_there {
            self.entries.push(entry(PRELOAD, libraries));
        }
        self.note(PRELOAD, libraries);
    }

    /// Returns the entries, and the list of changes.
    pub fn finish(mut self) -> Vec<OsString> {
        if !self.changes.is_empty() {
            let changes = entry(CHANGES, OsStr::new(&self.changes));
            self.put(self.position(CHANGES), changes);
        }
        self.entries
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.entries.iter().position(|entry| value(entry, name).is_some())
    }

    fn put(&mut self, place: Option<usize>, entry: OsString) {
        match place.and_then(|place| self.entries.get_mut(place)) {
            Some(old) => *old = entry,
            None => self.entries.push(entry),
        }
    }

    fn note(&mut self, name: &str, value: &OsStr) {
        let comma = if self.changes.is_empty() { "" } else { "," };
        let (length, print) = (value.len(), fingerprint(value.as_bytes()));
        let _ = write!(self.changes, "{comma}{name}:{length}:{print:x}"); // to a string: never fails
    }

    /// Reverts the changes of an outer run that are still in effect.
    fn take_back_changes(&mut self) {
        let Some(changes) = self.get(CHANGES).map(|list| list.to_string_lossy().into_owned())
        else {
            return;
        };
        self.entries.retain(|entry| value(entry, CHANGES).is_none());
        for change in changes.split(',').filter_map(Change::parse) {
            let entries = std::mem::take(&mut self.entries);
            self.entries = entries.into_iter().filter_map(|entry| change.undo(entry)).collect();
        }
    }
}

/// A change that an outer run made.
struct Change<'a> {
    name: &'a str,
    length: usize,
    fingerprint: u64,
}

impl Change<'_> {
    fn parse(text: &str) -> Option<Change<'_>> {
        let mut parts = text.split(':');
        let (name, length, fingerprint) = (parts.next()?, parts.next()?, parts.next()?);
        let fingerprint = u64::from_str_radix(fingerprint, 16).ok()?;
        Some(Change { name, length: length.parse().ok()?, fingerprint })
    }

    /// Returns the entry without the change; `None` if nothing remains.
    fn undo(&self, entry: OsString) -> Option<OsString> {
        let made = |value: &OsStr| {
            let made = value.as_bytes().get(..self.length);
            made.is_some_and(|made| fingerprint(made) == self.fingerprint)
        };
        let Some(value) = value(&entry, self.name).filter(|value| made(value)) else {
            return Some(entry);
        };
        match value.as_bytes().get(self.length..) {
            None | Some([]) => None,
            // Libraries after ours were there before.
            Some([b':', others @ ..]) if self.name == PRELOAD => {
                Some(self::entry(self.name, OsStr::from_bytes(others)))
            }
            Some(_) => Some(entry),
        }
    }
}

/// Returns the value of an entry if it has this name.
fn value<'a>(entry: &'a OsStr, name: &str) -> Option<&'a OsStr> {
    let value = entry.as_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
    Some(OsStr::from_bytes(value))
}

fn entry(name: &str, value: &OsStr) -> OsString {
    OsString::from_vec([name.as_bytes(), b"=", value.as_bytes()].concat())
}

/// FNV-1a, 64 bits.
fn fingerprint(bytes: &[u8]) -> u64 {
    let (basis, prime) = (0xcbf2_9ce4_8422_2325, 0x0000_0100_0000_01b3);
    bytes.iter().fold(basis, |hash: u64, &byte| (hash ^ u64::from(byte)).wrapping_mul(prime))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entries: &[&str]) -> Environment {
        Environment::new(&entries.iter().map(OsString::from).collect::<Vec<_>>())
    }

    /// Returns the entries without the list of changes.
    fn finished(environment: Environment) -> Vec<String> {
        let entries = environment.finish().into_iter().map(|e| e.into_string().expect("UTF-8"));
        entries.filter(|entry| !entry.starts_with("HEAPTIDE_RUN=")).collect()
    }

    #[test]
    fn an_environment_without_changes_stays_the_same() {
        let entries = ["Z=1", "A=2", "A=3", "no equals sign", "", "=odd", "LD_PRELOAD=x.so"];
        assert_eq!(of(&entries).finish(), entries);
    }

    #[test]
    fn settings_replace_existing_variables() {
        let mut environment = of(&["A=1", "MODE=old", "B=2", "MODE=older"]);
        environment.set("MODE", OsStr::new("new"));
        environment.set("OUTPUT", OsStr::new("/r"));
        assert_eq!(environment.get("MODE"), Some(OsStr::new("new")));
        assert_eq!(finished(environment), ["A=1", "MODE=new", "B=2", "OUTPUT=/r"]);
    }

    #[test]
    fn the_library_is_prepended_to_every_list_of_libraries() {
        let mut environment = of(&["LD_PRELOAD=a.so b.so", "A=1", "LD_PRELOAD="]);
        environment.preload(OsStr::new("ours.so"));
        let expected = ["LD_PRELOAD=ours.so:a.so b.so", "A=1", "LD_PRELOAD=ours.so"];
        assert_eq!(finished(environment), expected);
        let mut environment = of(&["A=1"]);
        environment.preload(OsStr::new("ours.so"));
        assert_eq!(finished(environment), ["A=1", "LD_PRELOAD=ours.so"]);
    }

    /// Returns the environment of a program of an outer run, for which the user set these entries.
    fn inside(entries: &[&str]) -> Vec<OsString> {
        let mut outer = of(entries);
        outer.preload(OsStr::new("/lib.so:/monitor,odd.so"));
        outer.set("HEAPTIDE_FOLLOW", OsStr::new("12"));
        outer.set("HEAPTIDE_OUTPUT", OsStr::new("/a,b:c=d"));
        outer.set("HEAPTIDE_MODE", OsStr::new("scopes"));
        outer.finish()
    }

    #[test]
    fn an_inner_run_gets_the_users_settings_of_the_outer_one() {
        let entries = ["LD_PRELOAD=own.so", "A=1", "HEAPTIDE_BY_SIZE=on", "HEAPTIDE_MODE=scopes"];
        assert_eq!(Environment::new(&inside(&entries)).finish(), entries);
        assert_eq!(Environment::new(&inside(&["A=1"])).finish(), ["A=1"]);
    }

    #[test]
    fn later_changes_by_a_program_are_kept() {
        let changed = |entry: OsString| match entry.to_str() {
            Some("HEAPTIDE_FOLLOW=12") => "HEAPTIDE_FOLLOW=123".into(),
            Some(preload) if preload.starts_with("LD_PRELOAD=") => "LD_PRELOAD=/else.so".into(),
            _ => entry,
        };
        let entries: Vec<OsString> = inside(&["A=1"]).into_iter().map(changed).collect();
        let expected = ["A=1", "LD_PRELOAD=/else.so", "HEAPTIDE_FOLLOW=123"];
        assert_eq!(Environment::new(&entries).finish(), expected);
    }

    #[test]
    fn an_invalid_list_changes_nothing() {
        for list in ["", ",", "A", "A:1", "A:x:y", "A:99:0", "A:18446744073709551615:0"] {
            let entries = ["A=1".to_owned(), format!("HEAPTIDE_RUN={list}")];
            let entries = entries.map(OsString::from);
            assert_eq!(Environment::new(&entries).finish(), ["A=1"], "{list}");
        }
    }
}
