//! Export of sites as CSV (RFC 4180): a row for each stack, scope path, label and lane, with all
//! metrics. For pandas, DuckDB and spreadsheets; no cell can be a formula.

use std::io::{self, Write};

use heaptide_analysis::attribution::Owners;
use heaptide_analysis::model::{FrameId, Measure, Process, Site};

use crate::shared::frames::module_path;
use crate::shared::names::printable;

/// Columns before the metrics.
const COLUMNS: [&str; 18] = [
    "pid",
    "image",
    "program",
    "lane",
    "scope",
    "label",
    "kind",
    "size",
    "call",
    "stack",
    "function",
    "file",
    "line",
    "module",
    "owner",
    "owner_file",
    "owner_line",
    "depth",
];
/// Columns after the metrics.
const MOVED: [&str; 4] =
    ["moved_blocks", "moved_usable_bytes", "moved_requested_bytes", "lent_bytes"];

/// Writes the sites of a process after a line of column names.
///
/// `stack` and `scope` are outermost first, with `;` between parts. `function`, `file`, `line` and
/// `module` describe the innermost frame; `owner` and its place describe the owner of the
/// stack. The sums over the rows of the kinds `heap` and `pool_chunk` are the totals, after
/// `moved_blocks` and `moved_…_bytes` are subtracted from allocations, frees and bytes.
///
/// Errors: those of `out`.
pub fn write(out: &mut dyn Write, process: &Process) -> io::Result<()> {
    let owners = Owners::of(process);
    let mut rows = csv::Writer::from_writer(out);
    let names = measures().map(Measure::name);
    rows.write_record(COLUMNS.into_iter().chain(names).chain(MOVED))?;
    let program = cell(&process.identity.program);
    let pid = [process.identity.pid.to_string(), process.identity.image.to_string(), program];
    for site in &process.tables.sites {
        let moved = site.moved;
        let moved =
            [moved.blocks, moved.usable_bytes, moved.requested_bytes, site.lent_bytes].into_iter();
        let numbers = measures().map(|measure| measure.of(&site.measures)).chain(moved);
        let texts = texts(process, &owners, site).map(|text| cell(&text));
        let texts = pid.iter().cloned().chain(texts);
        rows.write_record(texts.chain(numbers.map(|number| number.to_string())))?;
    }
    rows.flush()
}

/// Returns all metrics except the peak, which only totals have.
fn measures() -> impl Iterator<Item = Measure> {
    Measure::all().iter().copied().filter(|measure| *measure == measure.of_sites())
}

/// Returns the columns from the lane to the depth.
fn texts(process: &Process, owners: &Owners, site: &Site) -> [String; 15] {
    let path = process.path_of(site.stack);
    let stack = path.iter().map(|&frame| part(&process.label(frame))).collect::<Vec<_>>();
    let scopes = process.scope_path(site.scope);
    let scopes = scopes.into_iter().map(|scope| part(&scope.name())).collect::<Vec<_>>();
    let label = site.label.map(|label| process.tables.labels[label.0 as usize].name.to_string());
    let [function, file, line] = place(process, path.last().copied());
    let module =
        path.last().map(|frame| module_path(process, &process.tables.frames[frame.0 as usize]));
    let [owner, its_file, its_line] = place(process, owners.frame(process, site.stack));
    [
        process.tables.lanes[site.lane.0 as usize].name.clone(),
        scopes.join(";"),
        label.unwrap_or_default(),
        site.kind.name().to_owned(),
        site.size.map(|size| size.to_string()).unwrap_or_default(),
        site.call.map(|call| call.name().to_owned()).unwrap_or_default(),
        stack.join(";"),
        function,
        file,
        line,
        module.unwrap_or_default().to_owned(),
        owner,
        its_file,
        its_line,
        path.len().to_string(),
    ]
}

/// Returns function, file and line; empty texts if unknown.
fn place(process: &Process, frame: Option<FrameId>) -> [String; 3] {
    let Some(id) = frame else {
        return [const { String::new() }; 3];
    };
    let frame = &process.tables.frames[id.0 as usize];
    let line = frame.line.map(|line| line.to_string());
    let file = frame.file.as_deref().unwrap_or_default().to_owned();
    [process.label(id).into_owned(), file, line.unwrap_or_default()]
}

/// Returns a text in one line. Prefixes it with `'` if spreadsheets would read it as a formula.
///
/// ```
/// use heaptide_render::export::csv::cell;
/// assert_eq!((cell("=1+1"), cell("main")), ("'=1+1".into(), "main".into()));
/// ```
pub fn cell(text: &str) -> String {
    let text = printable(text);
    if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text.into_owned() }
}

/// Escapes a part of a path.
fn part(text: &str) -> String {
    text.replace(';', ":")
}
