//! The page for a browser: totals, timeline, flame graphs and tables of a process. As a file it has
//! its data inside and loads nothing from anywhere; `heaptide view` serves it without data, which
//! it then asks for. What programs call their functions is never markup.

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

pub use findings::Findings;

/// Owners that the chart over time has colours for.
pub const OWNERS: usize = 10;
/// The page, with names in braces where the parts go.
const PAGE: &str = include_str!("page.html");
pub(crate) const STYLE: &str = include_str!("page.css");
const SCRIPT: [&str; 18] = [
    include_str!("base.js"),
    include_str!("data.js"),
    include_str!("model.js"),
    include_str!("state.js"),
    include_str!("trees.js"),
    include_str!("rows.js"),
    include_str!("timeline.js"),
    include_str!("areas.js"),
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

/// What a trace adds to a page in a file.
#[derive(Clone, Copy, Debug)]
pub struct Traced<'a> {
    /// Live bytes over time by owner.
    pub over_time: &'a OwnersOverTime,
    /// Lifetimes of blocks.
    pub lifetimes: &'a Lifetimes,
}

/// Writes the page of a process with its data and what is found in it. It opens with a measure;
/// with the first that has a value if that one has none or is not shown.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    process: &Process,
    measure: Measure,
    traced: Option<Traced<'_>>,
    findings: &Findings,
) -> io::Result<()> {
    let (columns, list) = tables::columns(process, traced.map(|traced| traced.lifetimes));
    let over_time = traced.map(|traced| traced.over_time);
    let head = serde_json::to_string(&Head::of(process, measure, list, over_time, Some(findings)))?;
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
/// Errors: none but for lack of memory.
pub fn data(process: &Process, measure: Measure) -> io::Result<Vec<u8>> {
    let (columns, list) = tables::columns(process, None);
    let head = serde_json::to_vec(&Head::of(process, measure, list, None, None))?;
    Ok(framed(&head, &columns))
}

/// The lifetimes of blocks as more columns of the data, in the same form: for a server that is
/// asked for them when they are shown.
///
/// Errors: none but for lack of memory.
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

/// A head and columns in one.
fn framed(head: &[u8], columns: &[u8]) -> Vec<u8> {
    let length = (head.len() as u32).to_le_bytes();
    [&length, head, columns].concat()
}

/// What the page draws of owners over time, as JSON, for a server that is asked for it after the
/// data.
///
/// Errors: none but for lack of memory.
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
