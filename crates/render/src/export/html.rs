//! A page for a browser, in one file: totals, timeline, flame graphs and tables. It loads nothing
//! from anywhere, and what programs call their functions is never markup.

mod data;
mod flames;
mod tables;

use std::io::{self, Write};

use heaptide_analysis::model::{Measure, Process};

use crate::shared::command_line::command_line;

/// The page, with names in braces where the parts go.
const PAGE: &str = include_str!("html/page.html");
const STYLE: &str = include_str!("html/page.css");
const SCRIPT: [&str; 6] = [
    include_str!("html/base.js"),
    include_str!("html/timeline.js"),
    include_str!("html/memory.js"),
    include_str!("html/flames.js"),
    include_str!("html/tables.js"),
    include_str!("html/start.js"),
];

/// Writes the page of a process, which opens with a measure; with the first that has a value if
/// that one has none or is not shown.
///
/// Branches of the flame graphs and rows of the tables that are too small to see are put together
/// or left out, which the page says: with 160,000 sites it has a few megabytes.
///
/// Errors: those of `out`.
pub fn write(out: &mut dyn Write, process: &Process, measure: Measure) -> io::Result<()> {
    let data = serde_json::to_string(&data::Page::of(process, measure))?;
    let title = command_line(process, 80);
    let part = |name: &str| match name {
        "title" => escape(&title),
        "style" => STYLE.to_owned(),
        // No text in it can end the element that it is in.
        "data" => data.replace('<', "\\u003c"),
        "script" => SCRIPT.concat(),
        _ => String::new(),
    };
    for piece in PAGE.split("{{") {
        match piece.split_once("}}") {
            Some((name, rest)) => write!(out, "{}{rest}", part(name))?,
            None => out.write_all(piece.as_bytes())?,
        }
    }
    Ok(())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
