//! The page for a browser: totals, timeline, flame graphs and tables of a process. As a file it has
//! its data inside and loads nothing from anywhere; `heaptide view` serves it without data, which
//! it then asks for. What programs call their functions is never markup.

mod columns;
mod head;
mod tables;

use std::io::{self, Write};

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use heaptide_analysis::model::{Measure, Process};
use heaptide_analysis::views::owners_over_time::OwnersOverTime;

use crate::shared::command_line::command_line;
use head::{Head, OwnersChart};

/// Owners that the chart over time has colours for.
pub const OWNERS: usize = 10;
/// The page, with names in braces where the parts go.
const PAGE: &str = include_str!("page.html");
pub(crate) const STYLE: &str = include_str!("page.css");
const SCRIPT: [&str; 14] = [
    include_str!("base.js"),
    include_str!("data.js"),
    include_str!("model.js"),
    include_str!("state.js"),
    include_str!("trees.js"),
    include_str!("rows.js"),
    include_str!("timeline.js"),
    include_str!("memory.js"),
    include_str!("flames.js"),
    include_str!("menu.js"),
    include_str!("tables.js"),
    include_str!("stacks.js"),
    include_str!("server.js"),
    include_str!("start.js"),
];

/// Writes the page of a process with its data, which opens with a measure; with the first that has
/// a value if that one has none or is not shown. `over_time` is there if there is a trace.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    process: &Process,
    measure: Measure,
    over_time: Option<&OwnersOverTime>,
) -> io::Result<()> {
    let (columns, list) = tables::columns(process);
    let head = serde_json::to_string(&Head::of(process, measure, list, over_time))?;
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::default());
    packed.write_all(&columns)?;
    let packed = packed.finish()?;
    fill(out, &command_line(process, 80), "'none'", &|out, name| match name {
        // No text in it can end the element that it is in.
        "head" => out.write_all(head.replace('<', "\\u003c").as_bytes()),
        "columns" => write!(out, "{}", Base64Display::new(&packed, &STANDARD)),
        _ => Ok(()),
    })
}

/// The page without data, for a server that answers its requests.
pub fn shell(title: &str) -> String {
    let mut page = Vec::new();
    // Writing to memory does not fail.
    let _ = fill(&mut page, title, "'self'", &|_, _| Ok(()));
    String::from_utf8_lossy(&page).into_owned()
}

/// The data of a process as the page reads it: the length of a head as four bytes, lowest first;
/// the head, which is JSON; and columns of numbers, which the head lists.
///
/// Errors: none but for want of memory.
pub fn data(process: &Process, measure: Measure) -> io::Result<Vec<u8>> {
    let (columns, list) = tables::columns(process);
    let head = serde_json::to_vec(&Head::of(process, measure, list, None))?;
    let mut bytes = Vec::with_capacity(4 + head.len() + columns.len());
    bytes.extend_from_slice(&(head.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(&columns);
    Ok(bytes)
}

/// What the page draws of owners over time, as JSON, for a server that is asked for it after the
/// data.
///
/// Errors: none but for want of memory.
pub fn owners_over_time(process: &Process, over_time: &OwnersOverTime) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&OwnersChart::of(process, over_time))?)
}

/// Writes the page; `part` writes what has no fixed text.
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
