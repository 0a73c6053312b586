//! The page for a browser: totals, timeline, flame graphs and tables of a process. As a file it
//! contains its data and loads nothing. `heaptide view` serves it without data, which the page then
//! requests. Names from programs are never interpreted as markup.

mod beside;
mod columns;
mod findings;
mod head;
mod tables;

use std::io::{self, Write};

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use heaptide_analysis::model::{Measure, Process};
use heaptide_analysis::views::lifetimes::Lifetimes;
use heaptide_analysis::views::owners_over_time::OwnersOverTime;
use serde::Serialize;

use crate::shared::command_line::command_line;
use columns::{Column, Columns};
use head::{Head, OwnersChart};

pub use beside::{Beside, SourceTexts, Traced};
pub use findings::Findings;

/// Number of owners with a colour in the chart over time.
pub const OWNERS: usize = 10;
/// The page, with placeholders in double braces.
const PAGE: &str = include_str!("page.html");
pub(crate) const STYLE: &str = include_str!("page.css");
const SCRIPT: [&str; 19] = [
    include_str!("base.js"),
    include_str!("data.js"),
    include_str!("model.js"),
    include_str!("state.js"),
    include_str!("trees.js"),
    include_str!("rows.js"),
    include_str!("timeline.js"),
    include_str!("areas.js"),
    include_str!("owners.js"),
    include_str!("brush.js"),
    include_str!("findings.js"),
    include_str!("boxes.js"),
    include_str!("flames.js"),
    include_str!("menu.js"),
    include_str!("tables.js"),
    include_str!("lifetimes.js"),
    include_str!("stacks.js"),
    include_str!("server.js"),
    include_str!("start.js"),
];

/// Writes the page of a process with its data and findings. It initially displays `measure`, or the
/// first metric with a value if `measure` has none or is not selectable.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    process: &Process,
    measure: Measure,
    beside: &Beside<'_>,
) -> io::Result<()> {
    let (columns, list) = tables::columns(process, beside.traced.map(|traced| traced.lifetimes));
    let head = serde_json::to_string(&Head::of(process, measure, list, Some(beside)))?;
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::default());
    packed.write_all(&columns)?;
    let packed = packed.finish()?;
    fill(out, &command_line(process, 80), "'none'", &|out, name| match name {
        // Escapes `<`, so that no text can close the element.
        "head" => out.write_all(head.replace('<', "\\u003c").as_bytes()),
        "columns" => write!(out, "{}", Base64Display::new(&packed, &STANDARD)),
        _ => Ok(()),
    })
}

/// Returns the page without data, for a server that answers its requests.
pub fn shell(title: &str) -> String {
    let mut page = Vec::new();
    // Writing to memory cannot fail.
    let _ = fill(&mut page, title, "'self'", &|_, _| Ok(()));
    String::from_utf8_lossy(&page).into_owned()
}

/// Returns the data of a process for the page: the length of the head as four bytes, little-endian;
/// the head in JSON; and columns of numbers, which the head lists.
///
/// Errors: none except lack of memory.
pub fn data(process: &Process, measure: Measure) -> io::Result<Vec<u8>> {
    let (columns, list) = tables::columns(process, None);
    let head = serde_json::to_vec(&Head::of(process, measure, list, None))?;
    Ok(framed(&head, &columns))
}

/// Returns the lifetimes of blocks as additional columns in the same format, which a server sends
/// when the page displays them.
///
/// Errors: none except lack of memory.
pub fn lifetimes(lifetimes: &Lifetimes) -> io::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct More {
        columns: Vec<Column>,
    }
    let mut columns = Columns::default();
    tables::lifetimes(&mut columns, lifetimes);
    let (columns, list) = columns.finish();
    Ok(framed(&serde_json::to_vec(&More { columns: list })?, &columns))
}

/// Concatenates the length of the head, the head and the columns.
fn framed(head: &[u8], columns: &[u8]) -> Vec<u8> {
    let length = (head.len() as u32).to_le_bytes();
    [&length, head, columns].concat()
}

/// Returns the owners over time as JSON, which a server sends on request after the data.
///
/// Errors: none except lack of memory.
pub fn owners_over_time(process: &Process, over_time: &OwnersOverTime) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&OwnersChart::of(process, over_time))?)
}

/// Writes the page; `part` writes the placeholders without a fixed text.
fn fill(
    out: &mut dyn Write,
    title: &str,
    connect: &str,
    part: &dyn Fn(&mut dyn Write, &str) -> io::Result<()>,
) -> io::Result<()> {
    for piece in PAGE.split("{{") {
        let Some((name, rest)) = piece.split_once("}}") else {
            out.write_all(piece.as_bytes())?;
            continue;
        };
        match name {
            "title" => out.write_all(escape(title).as_bytes())?,
            "connect" => out.write_all(connect.as_bytes())?,
            "style" => out.write_all(STYLE.as_bytes())?,
            "script" => SCRIPT.iter().try_for_each(|script| out.write_all(script.as_bytes()))?,
            name => part(out, name)?,
        }
        out.write_all(rest.as_bytes())?;
    }
    Ok(())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
