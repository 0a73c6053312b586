//! The lines of a source file with their memory, as JSON.

use std::io::{self, Write};

use heaptide_analysis::attribution::Owners;
use heaptide_analysis::model::{Measure, Measures, Recording};
use heaptide_analysis::views::lines::{self, SourceLine};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::json::document;

/// Writes the lines of a file of each selected process as JSON.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    recording: &Recording,
    pid: Option<u32>,
    path: &str,
) -> io::Result<()> {
    document::write(out, recording, pid, |process| {
        let found = lines::of_file(process, &Owners::of(process), path);
        let mut own = Measures::default();
        found.values().for_each(|line| own.add(&line.own));
        let lines = found.into_iter().map(|(line, sums)| LineEntry { line, sums }).collect();
        FileEntry { file: path.to_owned(), own: Sums(own), lines }
    })
}

#[derive(serde::Serialize)]
struct FileEntry {
    file: String,
    own: Sums,
    lines: Vec<LineEntry>,
}

/// A line, or the allocations whose line is unknown, with `line` null.
struct LineEntry {
    line: Option<u32>,
    sums: SourceLine,
}

impl Serialize for LineEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("line", &self.line)?;
        map.serialize_entry("own", &Sums(self.sums.own))?;
        map.serialize_entry("inclusive", &Sums(self.sums.inclusive))?;
        map.end()
    }
}

/// The metrics of a part of a process.
struct Sums(Measures);

impl Serialize for Sums {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for measure in Measure::of_parts() {
            map.serialize_entry(measure.name(), &measure.of(&self.0))?;
        }
        map.end()
    }
}
