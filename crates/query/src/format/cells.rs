//! Texts of an answer in cells of a width, and inside the quotes of JSON.

use std::io::{self, Write};

use heaptide_analysis::text::{is_unprintable, printable};

use crate::query::Format;
use crate::table::Table;

/// The widest a column gets; a `column-width` that is not above 0 is no bound.
pub(crate) fn widest(format: &Format, otherwise: usize) -> usize {
    match format.arguments.get("column-width").and_then(|width| width.parse::<i32>().ok()) {
        Some(width) if width > 0 => width as usize,
        Some(_) => usize::MAX,
        None => otherwise,
    }
}

/// Characters of a text.
pub(crate) fn length(text: &str) -> usize {
    text.chars().count()
}

/// The text with its middle left out if it is longer than `width`.
fn clamped(text: &str, width: usize) -> String {
    if text.len() <= width {
        return text.to_owned();
    }
    let all: Vec<char> = text.chars().collect();
    match width {
        _ if all.len() <= width => text.to_owned(),
        0..4 => all[..width].iter().collect(),
        _ => {
            let side = width / 2 - 1;
            let mut short: String = all[..side].iter().collect();
            short.push_str("~~");
            short.extend(&all[all.len() - side..]);
            short
        }
    }
}

/// A cell of a line; numbers stand on the right.
pub(crate) fn cell(line: &mut String, text: &str, width: usize, is_number: bool) {
    let text = clamped(&printable(text), width);
    let space = " ".repeat(width.min(1 << 16).saturating_sub(length(&text)));
    if is_number {
        line.extend([&*space, &*text, " "])
    } else {
        line.extend([&*text, &*space, " "])
    }
}

/// What holds for all records, a line each.
pub(crate) fn globals(out: &mut dyn Write, format: &Format, answer: &Table) -> io::Result<()> {
    if !format.arguments.contains_key("print-globals") {
        return Ok(());
    }
    let width = answer.globals.iter().map(|(name, _)| length(name)).max().unwrap_or(0).min(24);
    for (name, value) in &answer.globals {
        let mut line = String::new();
        cell(&mut line, name, width, false);
        writeln!(out, "{line}: {}", clamped(&printable(value), 52))?;
    }
    Ok(())
}

/// A text inside the quotes of JSON.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => escaped.extend(['\\', c]),
            '\n' => escaped.push_str("\\n"),
            '\t' => escaped.push_str("\\t"),
            c if is_unprintable(c) => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped
}
