//! Export of findings as SARIF 2.1.0, which code review tools and editors show beside the code.
//!
//! SARIF has no field for the savings of a change. They are in the message, and as numbers in the
//! properties of a result.

use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use heaptide_advise::{Advice, Certainty, Finding, Place, RULES, Rule};
use heaptide_analysis::model::{Frame, Process};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::Serialize;

use crate::shared::advice::{labels, line, saves, subject};
use crate::shared::distinct_names::Labels;
use crate::shared::frames;
use crate::shared::json_text;
use crate::shared::names::{elide_middle, printable};

/// The version of the format.
const VERSION: &str = "2.1.0";
const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";
/// Bytes of a path that are escaped in a URI.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b']')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');
/// Characters of the name of a function, which is complete: some have tens of thousands.
const NAME: usize = 2000;

/// Writes at most `top` findings of a process. Source paths below `root` are relative to it, as
/// tools expect for a repository.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    process: &Process,
    advice: &Advice,
    root: &Path,
    top: Option<usize>,
) -> io::Result<()> {
    let findings = || advice.findings.iter().take(top.unwrap_or(usize::MAX));
    let labels = labels(process, findings());
    let results = findings().map(|finding| ResultEntry::of(&labels, finding, root));
    let driver = Driver {
        name: "heaptide",
        version: env!("CARGO_PKG_VERSION"),
        rules: RULES.iter().map(RuleEntry::of).collect(),
    };
    let run = Run {
        tool: Tool { driver },
        results: results.collect(),
        // Required; only lines are reported, no columns.
        column_kind: "unicodeCodePoints",
    };
    json_text::write(out, &Log { schema: SCHEMA, version: VERSION, runs: [run] })?;
    out.write_all(b"\n")
}

#[derive(Serialize)]
struct Log {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [Run; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    tool: Tool,
    results: Vec<ResultEntry>,
    column_kind: &'static str,
}

#[derive(Serialize)]
struct Tool {
    driver: Driver,
}

#[derive(Serialize)]
struct Driver {
    name: &'static str,
    version: &'static str,
    rules: Vec<RuleEntry>,
}

#[derive(Serialize)]
struct Message {
    text: String,
}

impl Message {
    fn new(text: impl Into<String>) -> Message {
        Message { text: text.into() }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleEntry {
    id: &'static str,
    short_description: Message,
    full_description: Message,
}

impl RuleEntry {
    fn of(rule: &Rule) -> RuleEntry {
        RuleEntry {
            id: rule.name,
            short_description: Message::new(rule.title),
            full_description: Message::new(rule.about),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResultEntry {
    rule_id: &'static str,
    rule_index: usize,
    level: &'static str,
    message: Message,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    locations: Vec<Location>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stacks: Vec<Stack>,
    properties: Properties,
}

impl ResultEntry {
    fn of(labels: &Labels, finding: &Finding, root: &Path) -> ResultEntry {
        let process = labels.process;
        let subject = subject(labels, finding);
        let evidence = finding.evidence.join("; ");
        let saved = saves(process, &finding.saves);
        let text = format!(
            "{subject} {}: {evidence}. {} Saves up to {saved}.",
            finding.what, finding.advice
        );
        let index = RULES.iter().position(|rule| rule.name == finding.rule);
        let location = |place: &Place| {
            let frame =
                line(process, place).unwrap_or(&process.tables.frames[place.frame.0 as usize]);
            Location::of(process, frame, root)
        };
        let stack = |place: &Place| {
            let frames = process.frames_of(place.owner);
            let frames = frames.map(|id| &process.tables.frames[id.0 as usize]);
            let frames =
                frames.map(|frame| StackFrame { location: Location::of(process, frame, root) });
            Stack { frames: frames.collect() }
        };
        ResultEntry {
            rule_id: finding.rule,
            rule_index: index.unwrap_or_default(),
            level: match finding.certainty {
                Certainty::Certain | Certainty::Likely => "warning",
                Certainty::Possible => "note",
            },
            message: Message::new(printable(&text)),
            locations: finding.place.iter().map(location).collect(),
            stacks: finding.place.iter().map(stack).collect(),
            properties: Properties {
                certainty: finding.certainty.name(),
                saves_peak_bytes: finding.saves.peak_bytes,
                saves_allocations: finding.saves.allocations,
                saves_live_bytes: finding.saves.live_bytes,
                saves_resident_bytes: finding.saves.resident_bytes,
                suppression: finding.suppression(process),
            },
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Properties {
    certainty: &'static str,
    saves_peak_bytes: u64,
    saves_allocations: u64,
    saves_live_bytes: u64,
    saves_resident_bytes: u64,
    suppression: String,
}

#[derive(Serialize)]
struct Stack {
    frames: Vec<StackFrame>,
}

#[derive(Serialize)]
struct StackFrame {
    location: Location,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    #[serde(skip_serializing_if = "Option::is_none")]
    physical_location: Option<PhysicalLocation>,
    logical_locations: [LogicalLocation; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LogicalLocation {
    fully_qualified_name: String,
    kind: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PhysicalLocation {
    artifact_location: ArtifactLocation,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<Region>,
}

#[derive(Serialize)]
struct ArtifactLocation {
    uri: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    start_line: u32,
}

impl Location {
    fn of(process: &Process, frame: &Frame, root: &Path) -> Location {
        let physical_location = frame.file.as_deref().map(|file| PhysicalLocation {
            artifact_location: ArtifactLocation { uri: uri(file, root) },
            region: frame.line.filter(|line| *line > 0).map(|start_line| Region { start_line }),
        });
        let name = match &frame.function {
            Some(name) => elide_middle(name, NAME),
            None => frames::label(process, frame, NAME),
        };
        let name = LogicalLocation { fully_qualified_name: name, kind: "function" };
        Location { physical_location, logical_locations: [name] }
    }
}

/// Returns the URI of a source file, relative to the root if the file is below it.
fn uri(file: &str, root: &Path) -> String {
    let escaped = |path: &Path| utf8_percent_encode(&path.to_string_lossy(), ESCAPED).to_string();
    let path = without_detours(Path::new(file));
    match path.strip_prefix(root) {
        Ok(inside) if root.is_absolute() => escaped(inside),
        _ if path.is_absolute() => format!("file://{}", escaped(&path)),
        _ => escaped(&path),
    }
}

/// Returns a path without `.` and without `..` after a directory name, as compilers emit them.
fn without_detours(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => _ = plain.pop(),
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_below_the_root_are_relative_and_others_are_uris() {
        let uri = |file| uri(file, Path::new("/src/app"));
        assert_eq!(uri("/src/app/lib/a b.c"), "lib/a%20b.c");
        assert_eq!(uri("/src/application/a.c"), "file:///src/application/a.c");
        assert_eq!(uri("/src/app/build/../lib/./a.c"), "lib/a.c");
        assert_eq!(uri("../lib/größe.c"), "../lib/gr%C3%B6%C3%9Fe.c");
        assert_eq!(super::uri("/a.c", Path::new("")), "file:///a.c");
    }
}
