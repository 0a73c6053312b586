//! Export in heaptrack's format, for heaptrack_gui and heaptrack_print: stacks, and a line for each
//! allocation and free. Sizes are usable bytes.
//!
//! From a trace, the lines are its events. Without one, each stack gets lines that add up to its
//! counters: first the blocks that are live neither at the peak nor at the end, then at the time of
//! the peak the blocks of the peak, then at the end what changed since. The highest sum of live
//! bytes is the peak then, too.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use heaptide_analysis::model::{FrameId, Measures, Process, Sample, StackId};
use heaptide_analysis::trace::{Event, Operation, Replay};
use heaptide_analysis::views::aggregate::by_stack;
use rustc_hash::FxHashMap;

use super::locations::Locations;
use crate::shared::command_line::command_line;
use crate::shared::names::printable;

/// Maximum number of allocations to write without a trace, about 2 GB of text.
pub const ALLOCATIONS_MAX: u64 = 200_000_000;
/// The version of heaptrack and of its format, which all later versions read.
const VERSION: &str = "10000 1";
/// Size of a page as written; resident memory is in pages.
const PAGE: u64 = 4096;
/// Size of the buffer in front of the compressor, in bytes.
const BUFFER: usize = 64 << 10;

/// Whether the output is compressed, which readers know by the name of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packing {
    /// Text.
    None,
    /// A gzip file.
    Gzip,
}

/// Writes a process, with the events of `replay` if it has a trace. Returns restrictions of their
/// completeness for people.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    process: &Process,
    replay: Option<Replay>,
    packing: Packing,
) -> io::Result<Vec<String>> {
    if packing == Packing::None {
        return Writer::new(out, process).all(replay);
    }
    let mut encoder = GzEncoder::new(out, Compression::default());
    let mut buffered = io::BufWriter::with_capacity(BUFFER, &mut encoder);
    let notes = Writer::new(&mut buffered, process).all(replay)?;
    buffered.flush()?;
    drop(buffered);
    encoder.finish()?;
    Ok(notes)
}

/// Blocks and the sum of their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Blocks {
    count: u64,
    bytes: u64,
}

impl Blocks {
    fn new(count: u64, bytes: u64) -> Blocks {
        Blocks { count, bytes }
    }

    /// Returns what remains without these, which may be more.
    fn without(self, other: Blocks) -> Blocks {
        let count = self.count.saturating_sub(other.count);
        Blocks::new(count, self.bytes.saturating_sub(other.bytes))
    }

    /// Returns sizes that add up to the bytes, as equal as possible.
    fn sizes(self) -> impl DoubleEndedIterator<Item = u64> {
        let Blocks { count, bytes } = self;
        let (size, larger) = match count {
            0 => (0, 0),
            _ => (bytes / count, bytes % count),
        };
        (0..count).map(move |number| size + u64::from(number < larger))
    }
}

/// The blocks of a stack by the moments at which they are live.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Lives {
    /// Live neither at the peak nor at the end.
    before: Blocks,
    /// Live at the peak and not at the end.
    freed: Blocks,
    /// Live at both.
    kept: Blocks,
    /// Live at the end and not at the peak.
    later: Blocks,
}

impl Lives {
    /// Divides all blocks of a stack, given those live at the peak and at the end. As many as
    /// possible are live at both.
    fn of(all: Blocks, peak: Blocks, end: Blocks) -> Lives {
        let kept = kept(all, peak, end);
        let (freed, later) = (peak.without(kept), end.without(kept));
        Lives { before: all.without(peak).without(later), freed, kept, later }
    }
}

/// Returns the blocks that are live at the peak and at the end: the largest number with bytes so
/// that no part has bytes without blocks. If the counters contradict each other, as in a profile
/// of racing threads, the lesser of both.
fn kept(all: Blocks, peak: Blocks, end: Blocks) -> Blocks {
    let highest = peak.count.min(end.count);
    let lowest = (peak.count + end.count).saturating_sub(all.count);
    let both = peak.bytes.saturating_add(end.bytes);
    let bytes_of = |count: u64| {
        let mut least = both.saturating_sub(all.bytes);
        let mut most = if count == 0 { 0 } else { peak.bytes.min(end.bytes) };
        for one in [peak, end] {
            least = if one.count == count { least.max(one.bytes) } else { least };
        }
        if all.count + count == peak.count + end.count {
            most = most.min(both.saturating_sub(all.bytes));
        }
        (least <= most).then_some(Blocks::new(count, most))
    };
    let candidates = [highest, highest.saturating_sub(1), lowest + 1, lowest];
    let possible = candidates.into_iter().filter(|count| (lowest..=highest).contains(count));
    let found = possible.filter_map(bytes_of).next();
    found.unwrap_or(Blocks::new(highest, peak.bytes.min(end.bytes)))
}

/// An allocation of a stack and size, as the format numbers them.
#[derive(Clone, Copy)]
struct Info {
    number: u64,
    /// Another number of the same stack and size. heaptrack counts a block as temporary if the
    /// number of its free is that of the last allocation; this one has never been allocated.
    twin: Option<u64>,
}

struct Writer<'a> {
    out: &'a mut dyn Write,
    process: &'a Process,
    locations: Locations,
    strings: FxHashMap<String, u64>,
    instructions: FxHashMap<u64, u64>,
    /// By stack.
    traces: FxHashMap<u32, u64>,
    /// By usable bytes and stack.
    infos: FxHashMap<(u64, u32), Info>,
    numbers: u64,
    /// The number of the last allocation; none after a free.
    last: Option<u64>,
    now_ms: u64,
    samples: std::slice::Iter<'a, Sample>,
}

impl<'a> Writer<'a> {
    fn new(out: &'a mut dyn Write, process: &'a Process) -> Writer<'a> {
        Writer {
            out,
            process,
            locations: Locations::of(process),
            strings: FxHashMap::default(),
            instructions: FxHashMap::default(),
            traces: FxHashMap::default(),
            infos: FxHashMap::default(),
            numbers: 0,
            last: None,
            now_ms: 0,
            samples: process.time.samples.iter(),
        }
    }

    fn all(mut self, replay: Option<Replay>) -> io::Result<Vec<String>> {
        writeln!(self.out, "v {VERSION}")?;
        writeln!(self.out, "X {}", command_line(self.process, usize::MAX))?;
        writeln!(self.out, "I {PAGE:x} 0")?;
        let notes = match replay {
            Some(replay) => self.events(replay)?,
            None => {
                self.counters()?;
                Vec::new()
            }
        };
        self.at(self.process.lifetime.duration_ns)?;
        Ok(notes)
    }

    fn events(&mut self, mut replay: Replay) -> io::Result<Vec<String>> {
        let mut batch = Vec::new();
        while replay.fill(&mut batch) {
            for event in &batch {
                self.event(event)?;
            }
        }
        Ok(replay.notes())
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        let process = self.process;
        let site = |index: u32| process.tables.sites.get(index as usize);
        let Some(of) = site(event.site) else { return Ok(()) };
        // Blocks of a pool are parts of its chunks; other named memory is no block.
        if of.kind.is_pool_block() || !of.kind.is_in_totals() {
            return Ok(());
        }
        self.at(event.time_ns)?;
        match event.operation {
            Operation::Allocate => self.begin(event.usable, of.stack),
            // Its allocation was dropped from the trace.
            Operation::Free if event.allocated_number == 0 => Ok(()),
            Operation::Free => self.end(event.usable, of.stack, event.temporary),
            Operation::Relabel | Operation::Unlabel => match site(event.site_before) {
                Some(before) if before.stack != of.stack => {
                    self.end(event.usable, before.stack, false)?;
                    self.begin(event.usable, of.stack)
                }
                _ => Ok(()),
            },
            Operation::Fail | Operation::Begin | Operation::End | Operation::Mark => Ok(()),
        }
    }

    fn counters(&mut self) -> io::Result<()> {
        // What a pool handed out on a stack is bytes without a block of the allocator: it is one.
        let blocks = |n: u64, bytes: u64| Blocks::new(n.max(u64::from(bytes > 0)), bytes);
        let lives = |m: &Measures| {
            let peak = blocks(m.at_peak_blocks, m.at_peak_bytes);
            let end = blocks(m.live_blocks, m.live_bytes);
            let count = m.allocations.max(u64::from(peak.count.max(end.count) > 0));
            let bytes = m.usable_bytes.max(peak.bytes).max(end.bytes);
            Lives::of(Blocks::new(count, bytes), peak, end)
        };
        let process = self.process;
        let has_any =
            |row: &Measures| [row.allocations, row.at_peak_bytes, row.live_bytes] != [0; 3];
        let rows = by_stack(process).filter(|(_, row)| has_any(row));
        let mut rows: Vec<(StackId, Lives, u64)> =
            rows.map(|(stack, row)| (stack, lives(&row), row.temporary)).collect();
        // A temporary block of the peak is the last one of it, and freed first.
        let has_more = |of: &Lives, temporary: u64| temporary > of.before.count;
        rows.sort_by_key(|(_, of, temporary)| of.freed.count > 0 && has_more(of, *temporary));
        for &(stack, Lives { before, .. }, temporary) in &rows {
            for (size, number) in before.sizes().zip(0..) {
                self.begin(size, stack)?;
                self.end(size, stack, number < temporary)?;
            }
        }
        self.at(process.peak_time_ns)?;
        for &(stack, Lives { freed, kept, .. }, _) in &rows {
            for size in kept.sizes().chain(freed.sizes()) {
                self.begin(size, stack)?;
            }
        }
        self.at(process.lifetime.duration_ns)?;
        for &(stack, of, temporary) in rows.iter().rev() {
            for size in of.freed.sizes().rev() {
                self.end(size, stack, has_more(&of, temporary))?;
            }
        }
        for &(stack, Lives { later, .. }, _) in &rows {
            for size in later.sizes() {
                self.begin(size, stack)?;
            }
        }
        Ok(())
    }

    /// Lets time pass, and writes the resident memory of samples up to then.
    fn at(&mut self, time_ns: u64) -> io::Result<()> {
        while let Some(sample) = self.samples.as_slice().first().filter(|s| s.time_ns <= time_ns) {
            let _ = self.samples.next();
            self.tick(sample.time_ns)?;
            if sample.resident_bytes > 0 {
                writeln!(self.out, "R {:x}", sample.resident_bytes / PAGE)?;
            }
        }
        self.tick(time_ns)
    }

    fn tick(&mut self, time_ns: u64) -> io::Result<()> {
        let ms = time_ns / 1_000_000;
        if ms <= self.now_ms {
            return Ok(());
        }
        self.now_ms = ms;
        writeln!(self.out, "c {ms:x}")
    }

    fn begin(&mut self, bytes: u64, stack: StackId) -> io::Result<()> {
        let Info { number, .. } = self.info(bytes, stack)?;
        self.last = Some(number);
        writeln!(self.out, "+ {number:x}")
    }

    fn end(&mut self, bytes: u64, stack: StackId, is_temporary: bool) -> io::Result<()> {
        let info = self.info(bytes, stack)?;
        let number = match info.twin {
            _ if is_temporary || self.last != Some(info.number) => info.number,
            Some(twin) => twin,
            None => {
                let trace = self.trace(stack)?;
                let twin = self.number(bytes, trace)?;
                self.infos.insert((bytes, stack.0), Info { twin: Some(twin), ..info });
                twin
            }
        };
        self.last = None;
        writeln!(self.out, "- {number:x}")
    }

    fn info(&mut self, bytes: u64, stack: StackId) -> io::Result<Info> {
        let key = (bytes, stack.0);
        if let Some(&known) = self.infos.get(&key) {
            return Ok(known);
        }
        let trace = self.trace(stack)?;
        // Number 0 stays unused: readers confuse it with "no allocation".
        if self.numbers == 0 {
            self.number(bytes, trace)?;
        }
        let info = Info { number: self.number(bytes, trace)?, twin: None };
        self.infos.insert(key, info);
        Ok(info)
    }

    /// Writes an allocation of a size and stack. Returns its number.
    fn number(&mut self, bytes: u64, trace: u64) -> io::Result<u64> {
        writeln!(self.out, "a {bytes:x} {trace:x}")?;
        self.numbers += 1;
        Ok(self.numbers - 1)
    }

    /// Writes the callers of a stack and the stack, unless they were written. Returns its number.
    fn trace(&mut self, StackId(stack): StackId) -> io::Result<u64> {
        let (mut new, mut at) = (Vec::new(), stack);
        let mut parent = loop {
            match self.traces.get(&at) {
                Some(&known) if at != 0 || stack == 0 => break known,
                _ if at == 0 && stack != 0 => break 0,
                _ => new.push(at),
            }
            if at == 0 {
                break 0;
            }
            at = self.locations.caller(at);
        };
        while let Some(node) = new.pop() {
            let instruction = self.instruction(self.locations.location(node))?;
            writeln!(self.out, "t {instruction:x} {parent:x}")?;
            parent = self.traces.len() as u64 + 1;
            self.traces.insert(node, parent);
        }
        Ok(parent)
    }

    /// Writes a location and its frames, innermost first; 0 for allocations without a stack.
    fn instruction(&mut self, location: u64) -> io::Result<u64> {
        if let Some(&known) = self.instructions.get(&location) {
            return Ok(known);
        }
        let frames: Vec<FrameId> = self.locations.frames(location).collect();
        let tables = &self.process.tables;
        let first = frames.first().map(|frame| &tables.frames[frame.0 as usize]);
        let module = first.and_then(|frame| frame.module);
        let module = module.map(|module| &tables.modules[module.0 as usize].path);
        let module = module.map_or(Ok(0), |path| self.string(path))?;
        let mut line = format!("i {:x} {module:x}", first.map_or(0, |frame| frame.offset));
        for id in &frames {
            let function = self.string(&self.process.label(*id))?;
            let frame = &tables.frames[id.0 as usize];
            let file = frame.file.as_deref().map_or(Ok(0), |file| self.string(file))?;
            line += &format!(" {function:x} {file:x} {:x}", frame.line.unwrap_or(0));
        }
        if frames.is_empty() {
            line += &format!(" {:x} 0 0", self.string("(no stack)")?);
        }
        writeln!(self.out, "{line}")?;
        let number = self.instructions.len() as u64 + 1;
        self.instructions.insert(location, number);
        Ok(number)
    }

    /// Writes a text unless it was written. Returns its number.
    fn string(&mut self, text: &str) -> io::Result<u64> {
        if let Some(&known) = self.strings.get(text) {
            return Ok(known);
        }
        writeln!(self.out, "s {}", printable(text))?;
        let number = self.strings.len() as u64 + 1;
        self.strings.insert(text.to_owned(), number);
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lives(all: (u64, u64), peak: (u64, u64), end: (u64, u64)) -> [(u64, u64); 4] {
        let [all, peak, end] = [all, peak, end].map(|(count, bytes)| Blocks::new(count, bytes));
        let Lives { before, freed, kept, later } = Lives::of(all, peak, end);
        for part in [before, freed, kept, later] {
            assert_eq!(part.sizes().sum::<u64>(), part.bytes);
            assert_eq!(part.sizes().count() as u64, part.count);
        }
        let sum = |parts: &[Blocks]| {
            let sum = |of: fn(&Blocks) -> u64| parts.iter().map(of).sum();
            Blocks::new(sum(|b| b.count), sum(|b| b.bytes))
        };
        assert_eq!(sum(&[before, freed, kept, later]), all);
        assert_eq!((sum(&[freed, kept]), sum(&[kept, later])), (peak, end));
        [before, freed, kept, later].map(|Blocks { count, bytes }| (count, bytes))
    }

    #[test]
    fn parts_of_a_stack_add_up_to_its_counters() {
        assert_eq!(lives((5, 500), (3, 300), (0, 0))[..2], [(2, 200), (3, 300)]);
        assert_eq!(lives((5, 500), (3, 300), (2, 150))[2], (2, 150), "all of the end");
        // What is left at the end has more bytes than the peak.
        assert_eq!(lives((4, 400), (2, 50), (2, 350))[2..], [(1, 50), (1, 300)]);
        assert_eq!(lives((4, 400), (1, 350), (2, 50))[1..], [(1, 350), (0, 0), (2, 50)]);
        assert_eq!(lives((3, 1001), (3, 1001), (3, 1001))[2], (3, 1001));
        assert_eq!(lives((3, 310), (2, 210), (2, 110))[2], (1, 10), "one of them is live at both");
        assert_eq!(lives((1, 8), (0, 0), (1, 8))[3], (1, 8));
    }

    #[test]
    fn contradicting_counters_give_what_there_is() {
        let all = Blocks::new(1, 8);
        let found = Lives::of(all, Blocks::new(3, 24), Blocks::new(2, 100));
        assert_eq!((found.kept, found.before), (Blocks::new(2, 24), Blocks::default()));
    }
}
