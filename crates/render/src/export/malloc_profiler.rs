//! Export of stacks in the formats of MallocProfiler: the summary, histograms and lines that it
//! prints at exit, the lines alone, or each stack function by function.
//!
//! MallocProfiler counts requested bytes, of which Heaptide's counters hold only the allocated sum.
//! A trace provides live bytes and their maximum exactly. Without a trace, live bytes are exact if
//! the blocks of a stack are all live, all freed, or of one size; otherwise they are usable bytes.
//! Their maximum, the last number, then follows from the counters if no block was freed, if there
//! was one block, if all blocks were live at the same time, or if each was freed before the next
//! was allocated; otherwise it is unknown, and the output has [`UNKNOWN`]. The formats cannot
//! represent frees, scopes and labels.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::str::FromStr;

use heaptide_analysis::model::{
    BELOW_THRESHOLD, Frame, FrameId, LaneId, Measures, NOT_BELOW_THRESHOLD, Process, Site,
    SiteKind, StackId, Sum,
};
use heaptide_analysis::text::printable;
use heaptide_analysis::views::highest::{
    Highest, is_in_sums, live_requested_of_allocator, one_size,
};

/// The formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Summary, histograms and a line for each stack.
    Final,
    /// Summary and histograms alone.
    Summary,
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
    /// Whether names are changed as MallocProfiler does by default.
    is_remangled: bool,
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
            is_remangled: false,
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
                ("remangled", "") => choice.is_remangled = true,
                _ => return Err(unreadable()),
            }
        }
        Ok(choice)
    }
}

impl Choice {
    /// Returns whether allocations of a lane are counted.
    pub fn counts(&self, process: &Process, lane: LaneId) -> bool {
        self.thread.is_none_or(|tid| process.tables.lanes[lane.0 as usize].last_tid() == tid)
    }
}

/// What the output has instead of a number that the recording does not determine.
const UNKNOWN: &str = "-";

/// The numbers of a stack: allocations, requested bytes, live bytes and maximum of live bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Stat {
    calls: u64,
    total: u64,
    live: u64,
    /// `None` if unknown.
    max: Option<u64>,
    /// A value that live bytes had or have now, by which stacks without a maximum are sorted.
    seen: u64,
}

impl Stat {
    /// Sums up the sites of a stack. Live bytes are exact where the counters determine them.
    fn of(sites: &[&Site]) -> Stat {
        let sum = Sum::over(sites.iter().copied());
        let live = sites.iter().copied().map(live_of);
        let live = live.fold(0, u64::saturating_add);
        let at_peak = sites.iter().copied().map(at_peak_of).fold(0, u64::saturating_add);
        let (calls, total) = (sum.allocations, sum.requested_bytes);
        Stat { calls, total, live, max: max_of(sites, &sum, live), seen: live.max(at_peak) }
    }

    fn add(&mut self, other: Stat) {
        // The parts can have their maxima at different times.
        self.max = match (self.calls, other.calls) {
            (_, 0) => self.max,
            (0, _) => other.max,
            _ => None,
        };
        self.calls = self.calls.saturating_add(other.calls);
        self.total = self.total.saturating_add(other.total);
        self.live = self.live.saturating_add(other.live);
        self.seen = self.seen.saturating_add(other.seen);
    }

    fn key(self, sort: SortBy) -> u64 {
        match sort {
            SortBy::Calls => self.calls,
            SortBy::Total => self.total,
            SortBy::Live => self.live,
            SortBy::Max => self.max.unwrap_or(self.seen),
        }
    }

    /// Writes the numbers, each preceded by `before`.
    fn write(self, out: &mut dyn Write, before: char) -> io::Result<()> {
        let Stat { calls, total, live, .. } = self;
        let max = self.max_shown();
        writeln!(out, "{before}{calls}{before}{total}{before}{live}{before}{max}")
    }

    fn max_shown(self) -> String {
        self.max.map_or_else(|| UNKNOWN.to_owned(), |max| max.to_string())
    }
}

/// Returns the maximum of live bytes of sites, whose sum is `sum` with `live` bytes live now;
/// `None` if their counters do not determine it.
fn max_of(sites: &[&Site], sum: &Measures, live: u64) -> Option<u64> {
    if sum.frees == 0 {
        return Some(live);
    }
    let mut used = sites.iter().filter(|site| site.measures.allocations > 0);
    let first = used.next()?;
    let (m, is_alone) = (&first.measures, used.next().is_none());
    // After a reset, blocks can be older than the counters.
    let is_whole = sum.live_blocks.checked_add(sum.frees) == Some(sum.allocations);
    let is_plain = sites.iter().all(|site| site.moved.blocks == 0 && is_in_sums(site.kind));
    let one_by_one = is_alone && m.frees == m.allocations && m.temporary == m.frees;
    match () {
        () if !is_whole || !is_plain => None,
        () if sum.at_peak_blocks == sum.allocations => Some(sum.requested_bytes),
        () if sum.allocations == 1 => Some(sum.requested_bytes),
        () if one_by_one => one_size(first),
        () => None,
    }
}

/// Returns the live bytes of a site, in requested bytes if these are known. A pool's chunk has the
/// bytes that the pool has not handed out, and those that it has are in its blocks.
fn live_of(site: &Site) -> u64 {
    if site.kind == SiteKind::PoolBlock {
        return site.measures.live_bytes;
    }
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

/// Writes the stacks of a process, with exact values if its whole trace was replayed for the lanes
/// of [`Choice::counts`].
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    process: &Process,
    form: Form,
    choice: &Choice,
    highest: Option<&Highest>,
) -> io::Result<()> {
    let Stats { stacks, small, large } = stats(process, choice, highest);
    match form {
        Form::Details => return details(out, process, &stacks, choice),
        Form::Final | Form::Summary => {
            let mut sum = small;
            sum.add(large);
            stacks.iter().for_each(|(_, stat)| sum.add(*stat));
            let by_trace = highest.and_then(|of| of.process.highest);
            sum.max = match (by_trace, choice.thread) {
                (Some(bytes), _) => Some(bytes.requested),
                (None, None) => Some(process.totals.peak_bytes),
                (None, Some(_)) => sum.max,
            };
            head(out, process, sum)?;
            if form == Form::Summary {
                return Ok(());
            }
        }
        Form::Dump => {}
    }
    for (stack, stat) in stacks {
        let path = process.path_of(stack);
        let mut names: Vec<String> =
            path.into_iter().map(|frame| plain(&process.label(frame))).collect();
        if choice.is_remangled {
            remangle(&mut names);
        }
        write!(out, "_mpTrace_;{} ", names.join(";"))?;
        stat.write(out, choice.separator)?;
    }
    for (size, stat, is_usual) in
        [("Small", small, !choice.is_reverse), ("Large", large, choice.is_reverse)]
    {
        if is_usual || stat.calls > 0 {
            write!(out, "_mpTrace_;{size}Allocations ")?;
            stat.write(out, choice.separator)?;
        }
    }
    Ok(())
}

/// The numbers of a process.
struct Stats {
    /// Stacks in output order.
    stacks: Vec<(StackId, Stat)>,
    /// Blocks below the stack threshold, and by default those that have no stack for other reasons.
    small: Stat,
    /// Blocks that are not below the threshold, where only blocks below it have stacks.
    large: Stat,
}

fn stats(process: &Process, choice: &Choice, highest: Option<&Highest>) -> Stats {
    let mut sites: Vec<&Site> = process.tables.sites.iter().collect();
    sites.sort_by_key(|site| site.stack);
    let mut of_stack: BTreeMap<u32, Stat> = BTreeMap::new();
    for sites in sites.chunk_by(|a, b| a.stack == b.stack) {
        let stack = sites[0].stack.0;
        let counted = sites.iter().copied().filter(|site| choice.counts(process, site.lane));
        let counted: Vec<&Site> = counted.collect();
        if counted.is_empty() {
            continue;
        }
        let mut stat = Stat::of(&counted);
        if let Some(live) = highest.and_then(|of| of.stacks.get(stack as usize)) {
            let live_bytes = Sum::over(counted).live_bytes;
            stat.live = live.requested_of(live_bytes).unwrap_or(stat.live);
            stat.max = live.highest.map(|highest| highest.requested).or(stat.max);
        } else if process.sampling.is_some() {
            stat.max = None; // the counters are estimates
        }
        of_stack.insert(stack, stat);
    }
    let [mut small, mut large] = [BELOW_THRESHOLD, NOT_BELOW_THRESHOLD].map(|mark| {
        let marked: Vec<u32> =
            of_stack.keys().copied().filter(|&stack| is_marked(process, stack, mark)).collect();
        let mut sum = none();
        marked.iter().filter_map(|stack| of_stack.remove(stack)).for_each(|stat| sum.add(stat));
        sum
    });
    let without = of_stack.remove(&0).unwrap_or_else(none);
    if choice.is_reverse { &mut large } else { &mut small }.add(without);
    let mut stacks: Vec<(StackId, Stat)> = of_stack
        .into_iter()
        .filter(|(_, stat)| stat.live > 0 || stat.calls > 0 && !choice.live_only)
        .map(|(stack, stat)| (StackId(stack), stat))
        .collect();
    stacks.sort_by_key(|(_, stat)| stat.key(choice.sort));
    Stats { stacks, small, large }
}

/// Returns the numbers of no block.
fn none() -> Stat {
    Stat { max: Some(0), ..Stat::default() }
}

/// Returns whether a stack consists of a mark instead of functions.
fn is_marked(process: &Process, stack: u32, mark: &str) -> bool {
    let mut frames = process.frames_of(StackId(stack));
    let frame = frames.next().map(|id| &process.tables.frames[id.0 as usize]);
    frame.is_some_and(|frame| frame.function.as_deref() == Some(mark)) && frames.next().is_none()
}

/// Writes the summary of the process, and the number of blocks in each power of two.
fn head(out: &mut dyn Write, process: &Process, sum: Stat) -> io::Result<()> {
    const CLASSES: usize = 64;
    let (pid, threads) = (process.identity.pid, process.tables.lanes.len());
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
        let Stat { calls, total, live, .. } = stat;
        let max = stat.max_shown();
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

/// Changes names of functions, outermost first, like MallocProfiler's default remangler: without
/// parameters and allocators; a stack ends at the first function of a large library, which is
/// replaced by the name of the library. `mallocProfiler.h` has the same for dumps by the program.
fn remangle(names: &mut Vec<String>) {
    const LIBRARIES: [(&str, &str); 8] = [
        ("__cxx11::basic_regex", "regex"),
        ("TFormula", "TFormula"),
        ("TClass", "TClass"),
        ("TCling", "TCling"),
        ("cling::", "cling"),
        ("clang", "clang"),
        ("llvm::", "llvm"),
        ("boost::spirit", "spirit"),
    ];
    for (place, name) in names.iter_mut().enumerate() {
        let end = start_of_parameters(name).unwrap_or(name.len());
        let short = without_allocators(&name[..end]);
        if let Some((_, library)) = LIBRARIES.iter().find(|(part, _)| short.contains(part)) {
            (*library).clone_into(name);
            names.truncate(place + 1);
            return;
        }
        *name = short;
    }
}

/// Returns where the parameters of a function begin in its name, if it has parameters.
fn start_of_parameters(name: &str) -> Option<usize> {
    let end = name.rfind(')')?;
    let mut depth = 0;
    let (start, _) = name[..=end].bytes().enumerate().rev().find(|(_, byte)| {
        depth += i32::from(*byte == b')') - i32::from(*byte == b'(');
        depth == 0
    })?;
    // These parentheses are part of the name.
    let is_call = name[..start].ends_with("operator") && !name[start..].starts_with("()(");
    let is_name = name[start..].starts_with("(anonymous namespace)") || is_call;
    (start > 0 && !is_name).then_some(start)
}

/// Removes the allocators from the names of containers.
fn without_allocators(name: &str) -> String {
    const ALLOCATOR: &str = ", std::allocator<";
    let mut rest = name;
    let mut short = String::new();
    while let Some((before, after)) = rest.split_once(ALLOCATOR) {
        short += before;
        let mut depth = 1;
        let end = after.bytes().position(|byte| {
            depth += i32::from(byte == b'<') - i32::from(byte == b'>');
            depth == 0
        });
        rest = end.map_or("", |end| &after[end + 1..]);
    }
    short + rest
}

/// Returns a name without the character that separates names.
fn plain(name: &str) -> String {
    printable(name).replace(';', ":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remangled(names: &[&str]) -> Vec<String> {
        let mut names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        remangle(&mut names);
        names
    }

    #[test]
    fn names_have_no_parameters_and_allocators() {
        let names = [
            ("main", "main"),
            ("std::map<int, A>::at(int const&)", "std::map<int, A>::at"),
            ("f(void (*)(int))", "f"),
            ("A::operator()(int) const", "A::operator()"),
            ("A::operator()", "A::operator()"),
            ("(anonymous namespace)", "(anonymous namespace)"),
            ("(anonymous namespace)::g(int)", "(anonymous namespace)::g"),
            (
                "std::vector<std::pair<int, A>, std::allocator<std::pair<int, A> > >::f(int)",
                "std::vector<std::pair<int, A> >::f",
            ),
            ("größe(int)", "größe"),
            ("cut, std::allocator<std::pair<int", "cut"),
        ];
        for (name, expected) in names {
            assert_eq!(remangled(&[name]), [expected]);
        }
    }

    #[test]
    fn stacks_end_at_functions_of_large_libraries() {
        let stack = ["main()", "f(TClass*)", "TClass::GetClass(char const*)", "g(int)"];
        assert_eq!(remangled(&stack), ["main", "f", "TClass"]);
        assert_eq!(remangled(&["llvm::raw_ostream::write(char)", "malloc"]), ["llvm"]);
    }
}
