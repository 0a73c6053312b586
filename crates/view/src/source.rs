//! Lines of source files that frames refer to.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use heaptide_analysis::files::input;
use heaptide_analysis::model::Process;
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::store::{For, Part};
use heaptide_http::Refusal;

/// The largest source file to read, in bytes.
const FILE_MAX: u64 = 16 << 20;
/// The default number of lines before and after the frame's line.
const AROUND: u32 = 20;
/// The maximum number of such lines.
const AROUND_MAX: u32 = 500;
/// The most bytes of a line to show.
const LINE_MAX: usize = 2000;

/// A request for the source of a frame.
#[derive(Deserialize)]
pub(crate) struct Asked {
    process: u32,
    frame: u32,
    snapshot: Option<u32>,
    #[serde(default)]
    filter: String,
    /// The version of the tables that the frame refers to.
    version: Option<u64>,
    around: Option<u32>,
}

/// Lines of the file.
#[derive(Serialize)]
pub(crate) struct Lines {
    file: String,
    /// The number of the first line, from 1.
    first: u32,
    lines: Vec<String>,
    /// The line of the frame.
    line: u32,
    /// Whether the file is newer than the recording.
    changed: bool,
}

/// Returns the lines around that of a frame.
pub(crate) async fn source(
    State(app): State<Arc<App>>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Json<Lines>, Refusal> {
    let Query(asked) = asked.map_err(Refusal::bad)?;
    let part =
        Part { process: asked.process, snapshot: asked.snapshot, span: None, filter: asked.filter };
    let chosen = app.store.chosen(&part, For::Page).await?;
    if asked.version.is_some_and(|version| version != chosen.loaded.version) {
        return Err(Refusal::conflict("the tables have changed; load them again"));
    }
    let around = asked.around.unwrap_or(AROUND).min(AROUND_MAX);
    let catalog = app.catalog.clone();
    let read = move || {
        let (_, numbered) = catalog.process(asked.process)?;
        let pid = numbered.running().map(|running| running.pid);
        lines(chosen.loaded.process()?, pid, asked.frame, around)
    };
    tokio::task::spawn_blocking(read).await.map_err(Refusal::failed)?.map(Json)
}

/// Reads the lines around that of a frame.
fn lines(process: &Process, pid: Option<u32>, frame: u32, around: u32) -> Result<Lines, Refusal> {
    let missing = |line: String| Refusal::missing(line);
    let frame = process.tables.frames.get(frame as usize);
    let frame = frame.ok_or_else(|| missing("no frame has this number".to_owned()))?;
    let (Some(file), Some(line)) = (&frame.file, frame.line) else {
        return Err(missing("the source file of this frame is unknown".to_owned()));
    };
    let (place, bytes) = read(pid, file).map_err(|error| missing(format!("{file}: {error}")))?;
    let text = String::from_utf8_lossy(&bytes);
    let first = line.saturating_sub(around).max(1);
    let last = line.saturating_add(around);
    let shown = text.lines().skip(first as usize - 1).take((last - first) as usize + 1);
    let lines: Vec<String> = shown.map(cut).collect();
    if (lines.len() as u32) <= line.saturating_sub(first) {
        let count = text.lines().count();
        return Err(missing(format!("{file}: has {count} lines, not line {line}")));
    }
    let modified = place.metadata().and_then(|found| found.modified()).ok();
    let modified = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let changed = modified
        .is_some_and(|time| time.as_nanos() > u128::from(process.lifetime.start_realtime_ns));
    Ok(Lines { file: file.to_string(), first, lines, line, changed })
}

/// Reads a source file: at its path, or in the root directory of the process, which may be in a
/// container.
fn read(pid: Option<u32>, file: &str) -> io::Result<(PathBuf, Vec<u8>)> {
    let path = PathBuf::from(file);
    if !path.is_absolute() {
        let what = "not an absolute path, so its directory is unknown";
        return Err(io::Error::other(what));
    }
    let error = match input::read(&path, FILE_MAX) {
        Ok(bytes) => return Ok((path, bytes)),
        Err(error) => error,
    };
    let root = pid.map(|pid| PathBuf::from(format!("/proc/{pid}/root"))).ok_or(error)?;
    let inside = root.join(path.strip_prefix("/").unwrap_or(&path));
    let bytes = input::read(&inside, FILE_MAX)?;
    Ok((inside, bytes))
}

fn cut(line: &str) -> String {
    let end = line.char_indices().map(|(at, _)| at).find(|&at| at >= LINE_MAX);
    end.map_or_else(|| line.to_owned(), |end| format!("{}…", &line[..end]))
}
