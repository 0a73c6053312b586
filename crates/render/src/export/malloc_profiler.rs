//! Export of stacks in the formats of MallocProfiler: the summary, histograms and lines that it
//! prints at exit, the lines alone, or each stack function by function.
//!
//! MallocProfiler counts requested bytes, of which Heaptide's counters hold only the allocated sum.
//! A trace provides live bytes and their maximum exactly. Without a trace, live bytes are exact if
//! the blocks of a stack are all live, all freed, or of one size; otherwise they are usable bytes.
//! The last number is then the larger of live bytes now and live bytes at peak usage of the
//! process. The formats cannot represent frees, scopes and labels.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::str::FromStr;

use heaptide_analysis::model::{Frame, FrameId, LaneId, Process, Site, StackId, Sum};
use heaptide_analysis::text::printable;
use heaptide_analysis::views::highest::{
    Highest, is_in_sums, live_requested_of_allocator, one_size,
};

/// The formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Summary, histograms and a line for each stack.
    Final,
    /// The lines alone.
    Dump,
    /// Each stack with a line for each function.
    Details,
}

/// Order of stacks; the largest come last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SortBy {
    Calls,
    Total,
    Live,
    Max,
}

/// Options of the formats: words `NAME=VALUE`; `from=` takes the rest of the text.
///
/// ```
/// use heaptide_render::export::malloc_profiler::Choice;
/// assert!("separator=36 sort=live live thread=12".parse::<Choice>().is_ok());
/// assert!("from=a b".parse::<Choice>().is_ok() && "sort=x".parse::<Choice>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Separator between the numbers of a line.
    separator: char,
    sort: SortBy,
    /// Only allocations of this thread.
    thread: Option<u32>,
    /// Only stacks with live blocks.
    live_only: bool,
    /// Whether blocks without a stack are the large ones.
    is_reverse: bool,
    /// Only stacks with a function whose name contains this text; they are cut off there.
    from: String,
}

impl Default for Choice {
    fn default() -> Choice {
        Choice {
            separator: '$',
            sort: SortBy::Max,
            thread: None,
            live_only: false,
            is_reverse: false,
            from: String::new(),
        }
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Choice, String> {
        let mut choice = Choice::default();
        let (words, from) = text.split_once("from=").unwrap_or((text, ""));
        from.clone_into(&mut choice.from);
        for word in words.split_whitespace() {
            let unreadable = || format!("`{word}`: expected NAME=VALUE");
            match word.split_once('=').unwrap_or((word, "")) {
                ("separator", code) => {
                    let code: u32 = code.parse().map_err(|_| unreadable())?;
                    choice.separator = char::from_u32(code).ok_or_else(unreadable)?;
                }
                ("sort", "calls") => choice.sort = SortBy::Calls,
                ("sort", "total") => choice.sort = SortBy::Total,
                ("sort", "live") => choice.sort = SortBy::Live,
                ("sort", "max") => choice.sort = SortBy::Max,
                ("thread", id) => choice.thread = Some(id.parse().map_err(|_| unreadable())?),
                ("live", "") => choice.live_only = true,
                ("reverse", "") => choice.is_reverse = true,
                _ => return Err(unreadable()),
            }
        }
        Ok(choice)
    }
}

/// The numbers of a stack: allocations, requested bytes, live bytes and maximum of live bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Stat {
    calls: u64,
    total: u64,
    live: u64,
    max: u64,
}

impl Stat {
    /// Sums up the sites of a stack. Live bytes are exact where the counters determine them.
    fn of(sites: &[&Site]) -> Stat {
        let sum = Sum::over(sites.iter().copied());
        let live = sites.iter().copied().map(live_of);
        let live = live.fold(0, u64::saturating_add);
        let at_peak = sites.iter().copied().map(at_peak_of).fold(0, u64::saturating_add);
        let (calls, total) = (sum.allocations, sum.requested_bytes);
        Stat { calls, total, live, max: live.max(at_peak) }
    }

    fn add(&mut self, other: Stat) {
        self.calls = self.calls.saturating_add(other.calls);
        self.total = self.total.saturating_add(other.total);
        self.live = self.live.saturating_add(other.live);
        self.max = self.max.saturating_add(other.max);
    }

    fn key(self, sort: SortBy) -> u64 {
        match sort {
            SortBy::Calls => self.calls,
            SortBy::Total => self.total,
            SortBy::Live => self.live,
            SortBy::Max => self.max,
        }
    }

    /// Writes the numbers, each preceded by `before`.
    fn write(self, out: &mut dyn Write, before: char) -> io::Result<()> {
        let Stat { calls, total, live, max } = self;
        writeln!(out, "{before}{calls}{before}{total}{before}{live}{before}{max}")
    }
}

/// Returns the live bytes of a site, in requested bytes if these are known.
fn live_of(site: &Site) -> u64 {
    live_requested_of_allocator(site).unwrap_or(site.measures.live_bytes)
}

/// Returns the bytes of a site at peak usage of the process, in requested bytes if these are known.
fn at_peak_of(site: &Site) -> u64 {
    let measures = &site.measures;
    let blocks = measures.at_peak_blocks;
    match one_size(site) {
        _ if blocks == 0 || !is_in_sums(site.kind) => 0,
        _ if blocks == measures.allocations => measures.requested_bytes,
        Some(size) => blocks.saturating_mul(size),
        None => measures.at_peak_bytes,
    }
}

/// Writes the stacks of a process, with exact values if its trace was replayed.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    process: &Process,
    form: Form,
    choice: &Choice,
    highest: Option<&Highest>,
) -> io::Result<()> {
    let (stacks, without) = stats(process, choice, highest);
    match form {
        Form::Details => return details(out, process, &stacks, choice),
        Form::Final => {
            let peak = highest.map_or(process.totals.peak_bytes, |of| of.process.highest.requested);
            head(out, process, &stacks, without, peak)?;
        }
        Form::Dump => {}
    }
    for (stack, stat) in stacks {
        let path = process.path_of(stack);
        let names: Vec<String> =
            path.into_iter().map(|frame| plain(&process.label(frame))).collect();
        write!(out, "_mpTrace_;{} ", names.join(";"))?;
        stat.write(out, choice.separator)?;
    }
    let size = if choice.is_reverse { "Large" } else { "Small" };
    write!(out, "_mpTrace_;{size}Allocations ")?;
    without.write(out, choice.separator)
}

/// Returns the numbers of each stack in output order, and those of blocks without a stack.
fn stats(
    process: &Process,
    choice: &Choice,
    highest: Option<&Highest>,
) -> (Vec<(StackId, Stat)>, Stat) {
    let lanes = &process.tables.lanes;
    let last = |LaneId(id): LaneId| lanes[id as usize].last_tid();
    let counts = |lane| choice.thread.is_none_or(|tid| last(lane) == tid);
    let mut sites: Vec<&Site> = process.tables.sites.iter().collect();
    sites.sort_by_key(|site| site.stack);
    let mut of_stack: BTreeMap<u32, Stat> = BTreeMap::new();
    for sites in sites.chunk_by(|a, b| a.stack == b.stack) {
        let stack = sites[0].stack.0;
        let counted: Vec<&Site> = sites.iter().copied().filter(|site| counts(site.lane)).collect();
        if counted.is_empty() {
            continue;
        }
        let mut stat = Stat::of(&counted);
        // The trace has one value per stack for all threads, which does not apply to a single
        // thread.
        let live = highest.and_then(|of| of.stacks.get(stack as usize));
        if let Some(live) = live.filter(|_| counted.len() == sites.len()) {
            let live_bytes = Sum::over(counted).live_bytes;
            stat.live = live.requested_of(live_bytes).unwrap_or(stat.live);
            stat.max = live.highest.requested;
        }
        of_stack.insert(stack, stat);
    }
    let without = of_stack.remove(&0).unwrap_or_default();
    let mut stacks: Vec<(StackId, Stat)> = of_stack
        .into_iter()
        .filter(|(_, stat)| stat.calls > 0 && (stat.live > 0 || !choice.live_only))
        .map(|(stack, stat)| (StackId(stack), stat))
        .collect();
    stacks.sort_by_key(|(_, stat)| stat.key(choice.sort));
    (stacks, without)
}

/// Writes the summary of the process, and the number of blocks in each power of two.
fn head(
    out: &mut dyn Write,
    process: &Process,
    stacks: &[(StackId, Stat)],
    without: Stat,
    peak_bytes: u64,
) -> io::Result<()> {
    const CLASSES: usize = 64;
    let (pid, threads) = (process.identity.pid, process.tables.lanes.len());
    let mut sum = without;
    stacks.iter().for_each(|(_, stat)| sum.add(*stat));
    sum.max = peak_bytes;
    write!(out, "MemStat Global Summary for {pid}/{threads}:")?;
    sum.write(out, ' ')?;
    let (mut total, mut live) = ([0u64; CLASSES], [0u64; CLASSES]);
    for class in &process.tables.histogram {
        let bits = (u64::BITS - class.size_min.leading_zeros()) as usize;
        if bits < CLASSES {
            total[bits] = class.requested;
            live[bits] = class.usable.saturating_sub(class.freed);
        }
    }
    for (name, counts) in [("MemTot", total), ("MemLive", live)] {
        write!(out, "{name} Global Hist for {pid}/{threads}: ")?;
        counts.iter().try_for_each(|count| write!(out, "{count},"))?;
        writeln!(out)?;
    }
    Ok(())
}

/// Writes each stack function by function, innermost first.
fn details(
    out: &mut dyn Write,
    process: &Process,
    stacks: &[(StackId, Stat)],
    choice: &Choice,
) -> io::Result<()> {
    for &(stack, stat) in stacks {
        let frames: Vec<FrameId> = process.frames_of(stack).collect();
        let is_last = |&frame: &FrameId| process.label(frame).contains(&choice.from);
        let length = match frames.iter().position(is_last) {
            _ if choice.from.is_empty() => frames.len(),
            Some(last) => last + 1,
            None => continue,
        };
        let Stat { calls, total, live, max } = stat;
        writeln!(out, "Stat {calls} {total} {live} {max} at")?;
        for (number, &frame) in frames[..length].iter().enumerate() {
            let name = process.label(frame);
            let Frame { file, line, .. } = &process.tables.frames[frame.0 as usize];
            let file = file.as_deref().unwrap_or("");
            let line = line.map_or_else(String::new, |line| line.to_string());
            writeln!(out, "#{number} {} {}:{line}", printable(&name), printable(file))?;
        }
    }
    Ok(())
}

/// Returns a name without the character that separates names.
fn plain(name: &str) -> String {
    printable(name).replace(';', ":")
}
