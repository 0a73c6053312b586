//! A page with a heat map of ranks and owners: the value of each owner in each rank, compared with
//! the median of all ranks. The page is self-contained.

use std::io::{self, Write};

use crate::json;
use crate::page::STYLE;
use crate::shared::ranks::Ranks;

/// The page, with placeholders in double braces.
const PAGE: &str = include_str!("page.html");
const SCRIPT: &str = include_str!("heat_map.js");
const OWN_STYLE: &str = include_str!("heat_map.css");
/// Default number of owners, which are rows of the map.
const OWNERS: usize = 40;

/// Writes the page, with at most `top` owners.
///
/// Errors: those of `out`.
pub fn write(out: &mut dyn Write, ranks: &Ranks, top: Option<usize>) -> io::Result<()> {
    let mut data = Vec::new();
    json::ranks::write(&mut data, ranks, Some(top.unwrap_or(OWNERS)))?;
    let data = String::from_utf8_lossy(&data).replace('<', "\\u003c");
    let title = serde_json::to_string(&ranks.title)?.replace('<', "\\u003c");
    let mut rest = PAGE;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').unwrap_or((after, ""));
        out.write_all(before.as_bytes())?;
        out.write_all(match name {
            "style" => STYLE.as_bytes(),
            "own-style" => OWN_STYLE.as_bytes(),
            "script" => SCRIPT.as_bytes(),
            "title" => title.as_bytes(),
            "data" => data.as_bytes(),
            _ => b"",
        })?;
        rest = after;
    }
    out.write_all(rest.as_bytes())
}
