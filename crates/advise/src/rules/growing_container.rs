//! Containers that only grow, by what keeps their blocks: from one search of the memory of the
//! process to the next.
//!
//! The saving is the growth, an upper bound: with a limit, a part of it stays.

use std::cmp::Reverse;

use heaptide_analysis::attribution::Owners;
use heaptide_analysis::model::retained::{Declared, Kept, Node, Root, RootKind, Search};
use heaptide_analysis::model::{Process, SearchedAt};
use heaptide_analysis::quantity::{bytes, count, counted, duration};
use heaptide_analysis::views::retained::site;
use rustc_hash::FxHashMap;

use crate::finding::{Certainty, Finding, Saves};
use crate::material::{Group, Material};
use crate::rule::{Judged, Rule};
use crate::rules::growing::{Name as Line, name_of};

pub(super) const RULE: Rule = Rule {
    name: "growing-container",
    title: "Containers that only grow",
    about: "What a variable or a thread keeps alive grows from each search of the memory of the \
            process to the next, and hardly any of its blocks are freed meanwhile. The cause can \
            be a cache without a limit, or a list that is only appended to. Bound it, or remove \
            what is no longer needed.",
    judge,
};

/// Fewer searches show no change.
const SEARCHES_MIN: usize = 2;
/// The maximal number of frees, in percent of allocations between the searches, of code that only
/// adds to a container. Containers free blocks when they grow by reallocation.
const FREED_PERCENT_MAX: u64 = 10;
/// The maximal number of findings: of more containers that grow at the same time, those that grow
/// most explain it.
const FINDINGS_MAX: usize = 5;

fn judge(material: &Material) -> Judged {
    let searches = searches(material);
    if searches.len() < SEARCHES_MIN {
        return Judged::NeedsRequest("two searches: `heaptide ctl REC retain`, twice or more");
    }
    let points: Vec<Point> = searches.into_iter().map(Point::of).collect();
    let mut grown: Vec<Grown> = match points.last() {
        Some(last) => last.keepers.keys().filter_map(|name| grown(&points, name)).collect(),
        None => Vec::new(),
    };
    // At its end, a program has destroyed containers that grew before, or adds no more to them.
    if let [before @ .., last] = &points[..]
        && last.is_end()
        && before.len() >= SEARCHES_MIN
        && let Some(newest) = before.last()
    {
        let is_missing = |name: &&Name| !grown.iter().any(|of| of.name == **name);
        let names: Vec<&Name> = newest.keepers.keys().filter(is_missing).collect();
        let ended = names.into_iter().filter(|name| {
            let kept = last.kept(name);
            kept.bytes == 0 || kept == newest.kept(name)
        });
        grown.extend(ended.filter_map(|name| self::grown(before, name)).collect::<Vec<_>>());
    }
    grown.sort_by_key(|of| (Reverse(of.bytes()), of.name));
    let findings = grown.iter().filter_map(|grown| finding(material, grown));
    Judged::Found(findings.take(FINDINGS_MAX).collect())
}

/// Returns the searches of a process in the order of time: those with snapshots, and that at its
/// end.
fn searches<'a>(material: &Material<'a>) -> Vec<(&'a Process, &'a Search)> {
    let all = material.history.processes.iter().chain([material.process]);
    let mut searches: Vec<(&Process, &Search)> =
        all.filter_map(|process| Some((process, process.search.as_deref()?))).collect();
    // What Python keeps is behind its own variables, and is freed when it ends.
    searches.retain(|(_, search)| search.when.at != SearchedAt::PythonEnds);
    searches.sort_by_key(|(_, search)| search.when.time_ns);
    searches
}

/// A root, in a form that can be compared between searches.
type Name<'a> = (RootKind, &'a str, Option<&'a str>, Option<&'a Declared>);

/// What a root keeps.
#[derive(Default)]
struct Contents {
    kept: Kept,
    sites: FxHashMap<u32, Kept>,
}

/// A search.
struct Point<'a> {
    process: &'a Process,
    search: &'a Search,
    keepers: FxHashMap<Name<'a>, Contents>,
}

impl<'a> Point<'a> {
    fn of((process, search): (&'a Process, &'a Search)) -> Point<'a> {
        let mut keepers: FxHashMap<Name, Contents> = FxHashMap::default();
        for keeper in &search.retained.keepers {
            let Node::Root(root) = keeper.node else { continue };
            let Some(name) = search.retained.roots.get(root).and_then(name) else { continue };
            let contents = keepers.entry(name).or_default();
            contents.kept.plus(keeper.kept);
            for &(site, kept) in &keeper.sites {
                contents.sites.entry(site).or_default().plus(kept);
            }
        }
        Point { process, search, keepers }
    }

    fn is_end(&self) -> bool {
        self.search.when.at == SearchedAt::Exit
    }

    fn kept(&self, name: &Name) -> Kept {
        self.keepers.get(name).map_or(Kept::default(), |of| of.kept)
    }
}

/// Returns the name of a root that can keep a container.
fn name(root: &Root) -> Option<Name<'_>> {
    let is_of_program =
        matches!(root.kind, RootKind::Variable | RootKind::ThreadLocal | RootKind::Stack);
    is_of_program.then_some((
        root.kind,
        &*root.name,
        root.module.as_deref(),
        root.declared.as_ref(),
    ))
}

/// A root that keeps more at each search.
struct Grown<'a> {
    name: Name<'a>,
    points: &'a [Point<'a>],
    first: &'a Contents,
    last: &'a Contents,
}

impl Grown<'_> {
    fn bytes(&self) -> u64 {
        self.last.kept.bytes.saturating_sub(self.first.kept.bytes)
    }
}

/// Returns what a root keeps at the first and the last search, if that is more at each of them.
fn grown<'a>(points: &'a [Point<'a>], name: &Name<'a>) -> Option<Grown<'a>> {
    let contents: Option<Vec<&Contents>> =
        points.iter().map(|point| point.keepers.get(name)).collect();
    let contents = contents?;
    let grows = |pair: &[&Contents]| {
        let [before, after] = [pair[0].kept, pair[1].kept];
        after.bytes > before.bytes && after.blocks > before.blocks
    };
    let (&first, &last) = (contents.first()?, contents.last()?);
    let is_grown = contents.len() >= SEARCHES_MIN && contents.windows(2).all(grows);
    is_grown.then_some(Grown { name: *name, points, first, last })
}

/// Allocations and frees by the code whose blocks a root keeps, between the first and the last
/// search.
#[derive(Default)]
struct Turnover {
    allocations: u64,
    frees: u64,
}

impl Turnover {
    fn of(grown: &Grown) -> Turnover {
        let mut turnover = Turnover::default();
        let [Some(first), Some(last)] = [grown.points.first(), grown.points.last()] else {
            return turnover;
        };
        for &number in grown.last.sites.keys() {
            let Some(after) = site(last.process, number) else { continue };
            let before = site(first.process, number).map(|site| site.measures);
            let before = before.unwrap_or_default();
            let allocations = after.measures.allocations.saturating_sub(before.allocations);
            turnover.allocations = turnover.allocations.saturating_add(allocations);
            let frees = after.measures.frees.saturating_sub(before.frees);
            turnover.frees = turnover.frees.saturating_add(frees);
        }
        turnover
    }

    fn only_adds(&self) -> bool {
        self.frees <= self.allocations / 100 * FREED_PERCENT_MAX
    }
}

fn finding(material: &Material, grown: &Grown) -> Option<Finding> {
    let turnover = Turnover::of(grown);
    if !material.is_much(grown.bytes()) || !turnover.only_adds() {
        return None;
    }
    let lines = by_line(grown);
    let of_group = |group: &Group| {
        let frame = material.frame(group.frame);
        let line = (frame.function.as_deref()?, frame.file.as_deref(), frame.line);
        lines.get(&line).copied()
    };
    let most = material.groups.iter().max_by_key(|group| of_group(group))?;
    if of_group(most).unwrap_or(0) == 0 || material.is_python(most) {
        return None;
    }
    let place = material.place(&most.rows, |m| m.usable_bytes)?;
    let freed = match turnover.frees {
        0 => "none of them".to_owned(),
        frees => format!("{} of them", count(frees)),
    };
    Some(Finding {
        rule: RULE.name,
        place: Some(place),
        what: format!("adds blocks to what {} keeps, which only grows", root(&grown.name)),
        evidence: vec![
            sizes(grown)?,
            format!(
                "the code that fills it allocated {} meanwhile and freed {freed}",
                counted(turnover.allocations, "block"),
            ),
        ],
        advice: "Bound what it keeps, or remove what is no longer needed.".to_owned(),
        saves: Saves { live_bytes: grown.bytes(), ..Saves::default() },
        certainty: Certainty::Likely,
    })
}

/// Returns the bytes by which each line of code grew. The tables of a search have other numbers of
/// stacks than those of the process.
fn by_line<'a>(grown: &Grown<'a>) -> FxHashMap<Line<'a>, u64> {
    let mut lines = FxHashMap::default();
    let Some(Point { process, .. }) = grown.points.last() else { return lines };
    let owners = Owners::of(process);
    for (&number, kept) in &grown.last.sites {
        let Some(site) = site(process, number) else { continue };
        let Some(line) = name_of(process, &owners, site.stack) else { continue };
        let before = grown.first.sites.get(&number).map_or(0, |kept| kept.bytes);
        *lines.entry(line).or_insert(0u64) += kept.bytes.saturating_sub(before);
    }
    lines
}

/// States how much a root kept at the first and at the last search.
fn sizes(grown: &Grown) -> Option<String> {
    let (first, last) = (grown.points.first()?, grown.points.last()?);
    let between = last.search.when.time_ns.saturating_sub(first.search.when.time_ns);
    let kept =
        |of: &Contents| format!("{} in {}", bytes(of.kept.bytes), counted(of.kept.blocks, "block"));
    let each = if grown.points.len() > SEARCHES_MIN { ", more each time" } else { "" };
    let searches = count(grown.points.len() as u64);
    let (before, after, time) = (kept(grown.first), kept(grown.last), duration(between));
    Some(format!("{searches} searches within {time}: it keeps {before}, then {after}{each}"))
}

/// Names a root within a sentence.
fn root((kind, name, module, declared): &Name) -> String {
    match (kind, declared, module) {
        (RootKind::Variable, Some(Declared { file, line }), _) => {
            format!("`{name}` ({}:{line})", file.rsplit('/').next().unwrap_or(file))
        }
        (RootKind::Variable, None, Some(module)) => format!("`{name}` [{module}]"),
        (RootKind::Variable, None, None) => format!("`{name}`"),
        (_, _, Some(module)) => format!("the {name} [{module}]"),
        _ => format!("the {name}"),
    }
}
