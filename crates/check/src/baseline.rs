//! Baselines: values of an earlier run in a small text file, suitable for line-based diffs.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use heaptide_command::error::Error;
use heaptide_command::output;
use serde::{Deserialize, Serialize};

use crate::values::{OwnerValue, Value};

/// The version of the format.
const VERSION: u32 = 1;
/// The most owners of a value in the file, the largest first.
const OWNERS_MAX: usize = 100;
/// The minimal fraction of the total for an owner; smaller values vary between runs of unchanged
/// code.
const OWNER_PART: u64 = 1000;
/// The largest file to read, in bytes.
const BYTES_MAX: u64 = 16 << 20;

/// Values by the names of limits, such as `peak` or `scope parse: allocations`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Baseline {
    values: BTreeMap<String, Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Identifies the kind of file.
    heaptide_baseline: u32,
    limits: BTreeMap<String, Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    total: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    owners: BTreeMap<String, u64>,
}

impl Baseline {
    /// Adds a value.
    pub fn insert(&mut self, name: String, value: Value) {
        self.values.insert(name, value);
    }

    /// Returns the value with a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// Replaces values with the same names, and adds the others.
    pub fn extend(&mut self, newer: Baseline) {
        self.values.extend(newer.values);
    }

    /// Reads a file; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is no baseline.
    pub fn read(path: &Path) -> Result<Option<Baseline>, Error> {
        let text = match heaptide_analysis::files::input::read(path, BYTES_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::file(path, "read the baseline", error)),
        };
        let refused = |what: String| {
            let path = path.display();
            Error::new(format!(
                "{path}: expected a baseline, as `heaptide check --update` writes it: {what}"
            ))
        };
        let file: File = serde_json::from_slice(&text).map_err(|e| refused(e.to_string()))?;
        if file.heaptide_baseline != VERSION {
            let found = file.heaptide_baseline;
            return Err(refused(format!("found version {found}, expected {VERSION}")));
        }
        let owner = |(name, value)| (name, OwnerValue { value, place: None });
        let value = |(name, entry): (String, Entry)| {
            let owners = entry.owners.into_iter().map(owner).collect();
            (name, Value { total: entry.total, owners, ..Value::default() })
        };
        Ok(Some(Baseline { values: file.limits.into_iter().map(value).collect() }))
    }

    /// Writes the file, replacing an existing one. On failure, the existing file stays.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let entry = |(name, value): (&String, &Value)| (name.clone(), Entry::of(value));
        let limits = self.values.iter().map(entry).collect();
        let file = File { heaptide_baseline: VERSION, limits };
        let mut text = serde_json::to_string_pretty(&file).map_err(Error::library)?;
        text.push('\n');
        output::write(path, true, |out| out.write_all(text.as_bytes()))
    }
}

impl Entry {
    fn of(value: &Value) -> Entry {
        let mut owners: Vec<(&String, u64)> =
            value.owners.iter().map(|(name, owner)| (name, owner.value)).collect();
        owners.sort_by_key(|(_, value)| std::cmp::Reverse(*value));
        owners.truncate(OWNERS_MAX);
        owners.retain(|(_, of_owner)| *of_owner >= value.total / OWNER_PART);
        let owners = owners.into_iter().map(|(name, value)| (name.clone(), value)).collect();
        Entry { total: value.total, owners }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use heaptide_fixtures::Scratch;

    fn value(total: u64, owners: &[(&str, u64)]) -> Value {
        let owner = |(name, value): &(&str, u64)| {
            ((*name).to_owned(), OwnerValue { value: *value, place: None })
        };
        Value { total, owners: owners.iter().map(owner).collect(), ..Value::default() }
    }

    #[test]
    fn a_written_baseline_reads_back_equal() {
        let scratch = Scratch::new("baseline");
        let path = scratch.join("main.json");
        assert_eq!(Baseline::read(&path).expect("no error"), None);
        let mut baseline = Baseline::default();
        baseline.insert("peak".to_owned(), value(5000, &[("f", 4000), ("g", 990), ("h", 4)]));
        baseline.insert("scope a: allocations".to_owned(), value(7, &[]));
        baseline.write(&path).expect("written");
        let text = fs::read_to_string(&path).expect("the file");
        assert_eq!(text.lines().count(), 15, "one line a value:\n{text}");
        let read = Baseline::read(&path).expect("valid").expect("there");
        let peak = read.get("peak").expect("the peak");
        assert_eq!(peak, &value(5000, &[("f", 4000), ("g", 990)]), "h is less than 0.1 %");
        assert_eq!(read.get("scope a: allocations").expect("it").total, 7);
        assert!(read.get("frees").is_none());
    }

    #[test]
    fn invalid_baselines_are_rejected_with_a_location() {
        let scratch = Scratch::new("no_baseline");
        for (text, reason) in [
            ("{", "EOF while parsing"),
            ("{\"heaptide_baseline\": 2, \"limits\": {}}", "found version 2, expected 1"),
            ("{\"heaptide_baseline\": 1, \"limits\": {\"peak\": {}}}", "missing field `total`"),
            ("{\"heaptide_baseline\": 1, \"limits\": {}, \"more\": 1}", "unknown field `more`"),
        ] {
            let path = scratch.write("main.json", text.as_bytes());
            let error = Baseline::read(&path).expect_err("refused").to_string();
            assert!(error.contains("main.json: expected a baseline"), "{error}");
            assert!(error.contains(reason), "{error}");
        }
    }
}
