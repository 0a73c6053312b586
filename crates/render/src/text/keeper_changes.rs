//! What keeps more or less memory than at an earlier search, and what more is lost.

use std::io::{self, Write};

use heaptide_analysis::model::retained::RootKind;
use heaptide_analysis::model::{Measure, Process};
use heaptide_analysis::views::keeper_changes::{
    KeeperChange, KeeperChanges, KeeperName, KeptChange,
};

use crate::shared::change::signed;
use crate::shared::command_line::command_line;
use crate::shared::names::elide_middle;
use crate::shared::quantity::{counted, duration};
use crate::shared::sentence::capitalised;
use crate::text::columns::{Columns, last, right};
use crate::text::retained::place_of;
use crate::text::screen::{Screen, Style};

/// Default number of rows of each table.
const ROWS: usize = 10;
/// Functions that are shown for each keeper.
const OWNERS: usize = 3;
/// Maximum characters of a name.
const NAME: usize = 60;

/// Writes the page; `top` is the number of rows of each table, if given.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut Screen,
    process: &Process,
    changes: &KeeperChanges,
    top: Option<usize>,
) -> io::Result<()> {
    let rows = top.unwrap_or(ROWS);
    sentences(out, changes)?;
    heading(out, process, changes)?;
    keepers(out, changes, rows)?;
    lost(out, changes, rows)
}

fn sentences(out: &mut Screen, changes: &KeeperChanges) -> io::Result<()> {
    match changes.keepers.first() {
        Some(keeper) => {
            let (bytes, least) = (keeper.change.bytes(), least(keeper));
            let size = out.bytes(bytes.before.abs_diff(bytes.after));
            let more = if bytes.amount() > 0 { "more" } else { "less" };
            let owner = keeper.owners.first().map_or_else(String::new, |(owner, change)| {
                let part = change.bytes().amount().unsigned_abs();
                let whole = bytes.amount().unsigned_abs();
                let part = match (keeper.owners.len(), part >= whole - whole / 2) {
                    (1, _) => "",
                    (_, true) => "mostly ",
                    (_, false) => "partly ",
                };
                format!(", {part}blocks by {}", quoted(owner.as_deref()))
            });
            let name = named(&keeper.name);
            let is_growth = bytes.amount() > 0;
            let between_ns = changes.between_ns.filter(|&ns| ns > 0 && is_growth);
            let rate = between_ns.map_or_else(String::new, |ns| {
                let per_second = bytes.amount().unsigned_abs() * 1_000_000_000 / u128::from(ns);
                let per_second = u64::try_from(per_second).unwrap_or(u64::MAX);
                format!(", by {} per second", out.bytes(per_second))
            });
            let keeps = if keeper.name.kind.is_some() { "keeps" } else { "keep" };
            writeln!(out, "{name} {keeps} {least}{size} {more} than before{rate}{owner}.")?;
        }
        None => writeln!(out, "Nothing keeps more or less than before.")?,
    }
    let bytes = changes.lost.bytes();
    if let (1.., Some((owner, _))) = (bytes.amount(), changes.lost_owners.first()) {
        let more = out.bytes(bytes.before.abs_diff(bytes.after));
        let by = quoted(owner.as_deref());
        writeln!(out, "{more} more are lost than before, most by {by}.")?;
    }
    writeln!(out)
}

/// Names a keeper at the start of a sentence.
fn named(keeper: &KeeperName) -> String {
    let name = elide_middle(&keeper.name, NAME);
    match (&keeper.declared, &keeper.module) {
        _ if keeper.kind.is_none() => format!("Blocks by `{name}`"),
        (Some(declared), _) => format!("`{name}` ({})", place_of(declared)),
        (None, Some(module)) if keeper.kind == Some(RootKind::Variable) => {
            format!("`{name}` [{module}]")
        }
        (None, Some(module)) => format!("{} [{module}]", capitalised(keeper.name.clone())),
        (None, None) => capitalised(keeper.name.clone()),
    }
}

/// Names a function within a sentence.
fn quoted(owner: Option<&str>) -> String {
    let name = |owner| format!("`{}`", elide_middle(owner, NAME));
    owner.map_or_else(|| "code without a stack".to_owned(), name)
}

/// Returns the beginning of a change that is a bound.
fn least(keeper: &KeeperChange) -> &'static str {
    if keeper.is_bound { "at least " } else { "" }
}

fn heading(out: &mut Screen, process: &Process, changes: &KeeperChanges) -> io::Result<()> {
    let command = command_line(process, out.fit(NAME));
    let [before, after] = [changes.all.before, changes.all.after]
        .map(|kept| format!("{} in {}", out.bytes(kept.bytes), counted(kept.blocks, "block")));
    let later =
        changes.between_ns.map_or_else(String::new, |ns| format!(" {} later", duration(ns)));
    writeln!(out, "{command}: {before} live before, {after}{later}")
}

/// The columns of both tables.
fn columns(title: &'static str) -> Columns<4> {
    Columns([right(11, "change"), right(10, "now"), right(11, "blocks"), last(title)])
}

fn row(out: &mut Screen, change: &KeptChange, is_bound: bool, what: String) -> io::Result<()> {
    let is_exact = !is_bound;
    let bytes = signed_bytes(out, change);
    let blocks = signed(Measure::LiveBlocks, change.blocks());
    let cells = [
        if is_exact { bytes } else { format!("≥{bytes}") },
        out.bytes(change.after.bytes),
        if is_exact { blocks } else { String::new() },
        what,
    ];
    columns("").row(out, cells)
}

/// Returns a change of bytes with its sign.
fn signed_bytes(out: &Screen, change: &KeptChange) -> String {
    let bytes = change.bytes();
    let size = out.bytes(bytes.before.abs_diff(bytes.after));
    let sign = if bytes.amount() < 0 { '-' } else { '+' };
    format!("{sign}{size}")
}

fn keepers(out: &mut Screen, changes: &KeeperChanges, rows: usize) -> io::Result<()> {
    if changes.keepers.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    columns("kept by, with the functions whose blocks changed most").heading(out)?;
    for keeper in changes.keepers.iter().take(rows) {
        row(out, &keeper.change, keeper.is_bound, label(out, &keeper.name))?;
        for (owner, change) in keeper.owners.iter().take(OWNERS) {
            let name = owner.as_deref().unwrap_or("code without a stack");
            let blocks = signed(Measure::LiveBlocks, change.blocks());
            let name = elide_middle(name, out.fit(NAME));
            let cells = [signed_bytes(out, change), String::new(), blocks, format!("  by {name}")];
            columns("").row(out, cells)?;
        }
    }
    if changes.shared.before != changes.shared.after {
        let what = "several of these together".to_owned();
        row(out, &changes.shared, false, what)?;
    }
    Ok(())
}

fn label(out: &Screen, keeper: &KeeperName) -> String {
    let name = elide_middle(&keeper.name, out.fit(NAME));
    let place = match (&keeper.declared, &keeper.module) {
        _ if keeper.kind.is_none() => return format!("blocks by {name}"),
        (Some(declared), _) => place_of(declared),
        (None, Some(module)) => format!("[{module}]"),
        (None, None) => return name,
    };
    format!("{}  {}", Style::Own.of(name), Style::Minor.of(place))
}

fn lost(out: &mut Screen, changes: &KeeperChanges, rows: usize) -> io::Result<()> {
    if changes.lost_owners.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nLost: no pointer leads to these blocks")?;
    columns("function").heading(out)?;
    for (owner, change) in changes.lost_owners.iter().take(rows) {
        let name = owner.as_deref().unwrap_or("code without a stack");
        row(out, change, false, elide_middle(name, out.fit(NAME)))?;
    }
    Ok(())
}
