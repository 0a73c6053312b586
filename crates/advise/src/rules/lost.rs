//! Blocks to which no pointer leads, as a search of the memory of the process found.
//!
//! The saving is the memory of all lost blocks of a line. The lines that allocated blocks to which
//! only lost blocks lead have no findings of their own: these are lost with the others.

use std::cmp::Reverse;

use heaptide_analysis::model::retained::{Kept, Search, State, Unread};
use heaptide_analysis::model::{SearchedAt, StackId};
use heaptide_analysis::quantity::{bytes, counted};
use heaptide_analysis::views::retained::site;
use rustc_hash::FxHashMap;

use crate::finding::{Certainty, Finding, Saves};
use crate::material::{Group, Material, Row};
use crate::rule::{Judged, NEEDS_SEARCH, Rule};

pub(super) const RULE: Rule = Rule {
    name: "lost",
    title: "Blocks to which no pointer leads",
    about: "A search of the memory of the process found no pointer to these blocks, so it can \
            neither use nor free them. Free each block before the last pointer to it is \
            overwritten or goes out of scope.",
    judge,
};

/// The number of lines of code that are reported however little they lost: a lost block is a fault
/// of the program, and not only memory. Of other lines, a small part is not worth a change.
const LINES_MIN: usize = 3;

fn judge(material: &Material) -> Judged {
    let Some(search) = material.process.search.as_deref() else {
        return Judged::NeedsRequest(NEEDS_SEARCH);
    };
    let lost = Lost::of(material, search);
    let mut lines: Vec<(&usize, &Line)> =
        lost.lines.iter().filter(|(_, line)| line.direct.blocks > 0).collect();
    lines.sort_by_key(|(at, line)| (Reverse(line.all().bytes), **at));
    let is_alone = lines.len() == 1 && lost.elsewhere.direct.blocks == 0;
    let findings = lines.into_iter().enumerate().filter_map(|(number, (at, line))| {
        if number >= LINES_MIN && !material.is_much(line.all().bytes) {
            return None;
        }
        let (mut finding, group) = (finding(material, search, line, &material.groups[*at])?, *at);
        if number == 0 {
            let mut others = lost.others(group);
            finding.evidence.extend(others.sentence(material));
            if is_alone {
                // All other lost blocks are reached only from these.
                others.kept.plus(line.all());
                finding.saves.live_bytes = others.kept.bytes;
            }
        }
        Some(finding)
    });
    Judged::Found(findings.collect())
}

/// Returns the number of lost blocks of each group that has some.
pub(super) fn blocks(material: &Material) -> FxHashMap<usize, u64> {
    let Some(search) = material.process.search.as_deref() else { return FxHashMap::default() };
    let lines = Lost::of(material, search).lines.into_iter();
    lines.map(|(at, line)| (at, line.all().blocks)).collect()
}

/// Lost blocks of a line of code.
#[derive(Default)]
struct Line {
    /// Those to which no other lost block leads.
    direct: Kept,
    /// Those to which only lost blocks lead.
    indirect: Kept,
    /// The bytes of both, by stack.
    stacks: FxHashMap<StackId, u64>,
}

impl Line {
    fn all(&self) -> Kept {
        let mut all = self.direct;
        all.plus(self.indirect);
        all
    }

    fn add(&mut self, stack: StackId, state: State, kept: Kept) {
        match state {
            State::Lost => self.direct.plus(kept),
            _ => self.indirect.plus(kept),
        }
        *self.stacks.entry(stack).or_default() += kept.bytes;
    }
}

/// Lost blocks of a process.
struct Lost {
    /// By the index of their group.
    lines: FxHashMap<usize, Line>,
    /// Those of code for which there are no findings.
    elsewhere: Line,
}

impl Lost {
    fn of(material: &Material, search: &Search) -> Lost {
        let groups = material.groups_of_stacks();
        let mut lost = Lost { lines: FxHashMap::default(), elsewhere: Line::default() };
        for row in search.retained.sites.iter().filter(|row| row.state.is_lost()) {
            // A selection excludes the others.
            let Some(site) = site(material.process, row.site) else { continue };
            let line = match groups.get(&site.stack) {
                Some(&group) => lost.lines.entry(group).or_default(),
                None => &mut lost.elsewhere,
            };
            line.add(site.stack, row.state, row.kept);
        }
        lost
    }

    /// Returns the blocks of lines other than this that lost none directly.
    fn others(&self, group: usize) -> Others {
        let mut others = Others::default();
        let lines = self.lines.iter().filter(|(at, _)| **at != group).map(|(_, line)| line);
        for line in lines.chain([&self.elsewhere]).filter(|line| line.direct.blocks == 0) {
            others.kept.plus(line.indirect);
            let stack = line.stacks.iter().max_by_key(|(stack, of)| (**of, Reverse(**stack)));
            let most = stack.map(|(stack, _)| (line.indirect.bytes, Reverse(*stack)));
            others.most = others.most.max(most);
        }
        others
    }
}

/// Blocks that are lost with those of another line.
#[derive(Default)]
struct Others {
    kept: Kept,
    /// The bytes of the line with most of them, and its largest stack.
    most: Option<(u64, Reverse<StackId>)>,
}

impl Others {
    fn sentence(&self, material: &Material) -> Option<String> {
        let (_, Reverse(stack)) = self.most?;
        let blocks = blocks_of(self.kept);
        let most = material.name_of_owner(stack);
        let most = most.map_or_else(String::new, |name| format!(", most by {name}"));
        let is_one = self.kept.blocks == 1;
        let are = if is_one { "is" } else { "are" };
        Some(format!("{blocks} of other lines {are} lost with such blocks{most}"))
    }
}

fn finding(material: &Material, search: &Search, line: &Line, group: &Group) -> Option<Finding> {
    let is_lost = |row: &&Row| line.stacks.contains_key(&row.stack);
    let rows: Vec<Row> = group.rows.iter().filter(is_lost).copied().collect();
    let all = line.all();
    let place =
        material.place_by(&rows, |row| line.stacks.get(&row.stack).copied().unwrap_or(0))?;
    let mut evidence = vec![states(search, line)];
    let total = search.retained.lost();
    if total.blocks > all.blocks {
        evidence.push(format!("the process lost {} in all", blocks_of(total)));
    }
    let is_complete = search.retained.unread == Unread::default() && search.retained.busy == 0;
    if !is_complete {
        evidence.push("a part of its memory could not be searched".to_owned());
    }
    let advice = if material.is_python(group) {
        "Release each reference to them: code in C may lack a Py_DECREF."
    } else {
        "Free each block before its last pointer is overwritten or goes out of scope."
    };
    let are = if all.blocks == 1 { "is" } else { "are" };
    Some(Finding {
        rule: RULE.name,
        what: format!(
            "allocates {} that {are} lost: no pointer leads to {}",
            counted(all.blocks, "block"),
            if all.blocks == 1 { "it" } else { "them" },
        ),
        evidence,
        advice: advice.to_owned(),
        saves: Saves {
            live_bytes: all.bytes,
            peak_bytes: all.bytes.min(place.measures.at_peak_bytes),
            ..Saves::default()
        },
        certainty: if is_complete { Certainty::Certain } else { Certainty::Likely },
        place: Some(place),
    })
}

/// States how many blocks of a line are lost directly, and how many with others.
fn states(search: &Search, line: &Line) -> String {
    let when = match search.when.at {
        SearchedAt::Exit => "when the program exited",
        SearchedAt::PythonEnds => "when Python began to end",
        SearchedAt::Running => "when the program was searched",
    };
    let direct = blocks_of(line.direct);
    let from_others = match line.indirect.blocks {
        0 => String::new(),
        _ => format!(", and only lost blocks to {}", blocks_of(line.indirect)),
    };
    format!("{when}, nothing led to {direct}{from_others}")
}

/// Describes blocks with the sum of their bytes.
fn blocks_of(kept: Kept) -> String {
    format!("{} of {}", counted(kept.blocks, "block"), bytes(kept.bytes))
}
