//! Common parts of the JSON of all views: the recording, and the process of each entry.

use std::io::{self, Write};
use std::path::Path;

use heaptide_analysis::model::{Process, Recording};
use serde::ser::Serialize;

use crate::json::entries::{EndEntry, SCHEMA, SamplingEntry};
use crate::shared::json_text;
use crate::shared::quantity::seconds;

/// Writes a view of the selected processes as one JSON object and a newline.
///
/// Errors: those of `out`.
pub(crate) fn write<'a, V: Serialize>(
    out: &mut dyn Write,
    recording: &'a Recording,
    pid: Option<u32>,
    view: impl Fn(&'a Process) -> V,
) -> io::Result<()> {
    let chosen = recording.processes.iter().filter(|p| pid.is_none_or(|pid| pid == p.identity.pid));
    let parts = chosen.map(|p| Part { process: About::of(p), view: view(p) });
    document(out, &recording.path, parts.collect())
}

/// Writes a view of one process as one JSON object and a newline.
///
/// Errors: those of `out`.
pub(crate) fn write_one<V: Serialize>(
    out: &mut dyn Write,
    recording: &Recording,
    process: &Process,
    view: V,
) -> io::Result<()> {
    write_running(out, &recording.path, process, view)
}

/// Writes a view of a running process, given with the path of its profile or recording, likewise.
///
/// Errors: those of `out`.
pub(crate) fn write_running<V: Serialize>(
    out: &mut dyn Write,
    path: &Path,
    process: &Process,
    view: V,
) -> io::Result<()> {
    document(out, path, vec![Part { process: About::of(process), view }])
}

fn document<V: Serialize>(
    out: &mut dyn Write,
    path: &Path,
    processes: Vec<Part<V>>,
) -> io::Result<()> {
    let document = Document {
        schema: SCHEMA,
        recording: path.to_string_lossy().into_owned(),
        heaptide: env!("CARGO_PKG_VERSION"),
        processes,
    };
    json_text::write(out, &document)?;
    out.write_all(b"\n")
}

#[derive(serde::Serialize)]
struct Document<V> {
    schema: u32,
    recording: String,
    heaptide: &'static str,
    processes: Vec<V>,
}

#[derive(serde::Serialize)]
struct Part<'a, V> {
    #[serde(flatten)]
    process: About<'a>,
    #[serde(flatten)]
    view: V,
}

/// Identification of a process.
#[derive(serde::Serialize)]
struct About<'a> {
    pid: u32,
    image: u32,
    program: &'a str,
    command: &'a [String],
    duration_s: f64,
    duration_is_known: bool,
    end: EndEntry,
    part: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sampling: Option<SamplingEntry>,
}

impl About<'_> {
    fn of(process: &Process) -> About<'_> {
        About {
            pid: process.identity.pid,
            image: process.identity.image,
            program: &process.identity.program,
            command: &process.identity.command,
            duration_s: seconds(process.lifetime.duration_ns),
            duration_is_known: process.lifetime.duration_is_known,
            end: EndEntry::of(process.lifetime.end),
            part: process.completeness.part.as_deref(),
            sampling: SamplingEntry::of(process),
        }
    }
}
