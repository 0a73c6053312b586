//! Export in memray's format, for its reporters: blocks and bytes of each stack and thread at the
//! peak and at the end, and live bytes over time. Sizes are usable bytes.
//!
//! The format is that of `memray run --aggregate`, version 13, which memray 1.20 reads; other
//! versions of memray read only their own. All integers are little-endian. Native functions are
//! written like those of Python, because memray reads names of the former from the modules.

use std::io::{self, Write};

use heaptide_analysis::model::{Frame, FrameId, Process, PythonObjects, Site, SiteKind, Sum};
use rustc_hash::FxHashMap;

use crate::shared::command_line::command_line;
use crate::shared::leb128;
use crate::shared::names::printable;

const MAGIC: &[u8] = b"memray\0";
const VERSION: u32 = 13;
/// Python 3.11, which determines the form of [`LINES`].
const PYTHON_VERSION: u32 = 0x030b_00f0;
/// The value of `FileFormat` for sums instead of events.
const AGGREGATED: u8 = 1;
/// The value of `PythonAllocatorType` for an allocator of no name.
const OTHER_ALLOCATOR: u8 = 4;
/// A table of lines with one entry, for the first instruction: no columns, the first line.
const LINES: [u8; 2] = [0x80 | 13 << 3, 0];

/// Kinds of records.
const SNAPSHOT: u8 = 1;
const ALLOCATION: u8 = 2;
const STACK: u8 = 3;
const FRAME: u8 = 4;
const THREAD_NAME: u8 = 10;
const THREAD: u8 = 12;
const FUNCTION: u8 = 14;
const END: u8 = 15;

/// Values of `Allocator`.
const MALLOC: u64 = 6;
const MMAP: u64 = 14;

/// Writes a process.
///
/// Errors: those of `out`.
pub fn write(out: &mut dyn Write, process: &Process) -> io::Result<()> {
    let stacks = Stacks::of(process);
    header(out, process, stacks.frames.len() as u64)?;
    let start_ms = start_ms(process);
    for sample in &process.time.samples {
        out.write_all(&[SNAPSHOT])?;
        words(out, &[start_ms + ms(sample.time_ns), sample.resident_bytes, sample.live_bytes])?;
    }
    for lane in &process.tables.lanes {
        out.write_all(&[THREAD])?;
        words(out, &[lane.last_tid().into()])?;
        out.write_all(&[THREAD_NAME])?;
        text(out, &lane.name)?;
    }
    stacks.write(out, process)?;
    for site in &process.tables.sites {
        allocation(out, process, &stacks, site)?;
    }
    out.write_all(&[END])
}

fn header(out: &mut dyn Write, process: &Process, frames: u64) -> io::Result<()> {
    let start_ms = start_ms(process);
    let pid = process.identity.pid;
    out.write_all(MAGIC)?;
    out.write_all(&VERSION.to_le_bytes())?;
    out.write_all(&PYTHON_VERSION.to_le_bytes())?;
    let has_native_traces = 0;
    out.write_all(&[has_native_traces, AGGREGATED])?;
    let end_ms = start_ms + ms(process.lifetime.duration_ns);
    words(out, &[process.totals.allocations, frames, start_ms, end_ms])?;
    text(out, &command_line(process, usize::MAX))?;
    out.write_all(&pid.to_le_bytes())?;
    // The id of the main thread, and how many of its outermost frames readers omit.
    words(out, &[pid.into(), 0])?;
    let has_objects = process.completeness.python_objects == Some(PythonObjects::Blocks);
    let tracks_lifetimes = 0;
    out.write_all(&[OTHER_ALLOCATOR, has_objects.into(), tracks_lifetimes])?;
    // Directories of modules: that of the library, and two lists.
    out.write_all(&[0; 3])
}

/// Writes the blocks of a site at the peak and at the end, if there are any.
fn allocation(
    out: &mut dyn Write,
    process: &Process,
    stacks: &Stacks,
    site: &Site,
) -> io::Result<()> {
    let sum = Sum::over([site]);
    let counts = [sum.at_peak_blocks, sum.live_blocks, sum.at_peak_bytes, sum.live_bytes];
    if counts == [0; 4] {
        return Ok(());
    }
    let allocator = if matches!(site.kind, SiteKind::Mapped(_)) { MMAP } else { MALLOC };
    let tid = process.tables.lanes[site.lane.0 as usize].last_tid().into();
    let (native_frame, generation) = (0, 0);
    out.write_all(&[ALLOCATION])?;
    words(out, &[tid, allocator, native_frame, stacks.of_node[site.stack.0 as usize], generation])?;
    words(out, &counts)
}

/// Stacks and frames, as the format numbers them.
struct Stacks {
    /// By number.
    frames: Vec<FrameId>,
    /// The frame and the caller of each stack; that with number 0 is no stack.
    calls: Vec<(u64, u64)>,
    /// The number of a stack, by stack node.
    of_node: Vec<u64>,
}

impl Stacks {
    /// Readers number stacks by their order, and give equal ones the same number.
    fn of(process: &Process) -> Stacks {
        let mut numbers: FxHashMap<u32, u64> = FxHashMap::default();
        let mut known: FxHashMap<(u64, u64), u64> = FxHashMap::default();
        let mut stacks = Stacks { frames: Vec::new(), calls: vec![(0, 0)], of_node: vec![0] };
        for node in process.tables.stacks.iter().skip(1) {
            let frame = *numbers.entry(node.frame.0).or_insert_with(|| {
                stacks.frames.push(node.frame);
                stacks.frames.len() as u64 - 1
            });
            let call = (frame, stacks.of_node[node.parent.0 as usize]);
            let number = *known.entry(call).or_insert_with(|| {
                stacks.calls.push(call);
                stacks.calls.len() as u64 - 1
            });
            stacks.of_node.push(number);
        }
        stacks
    }

    fn write(&self, out: &mut dyn Write, process: &Process) -> io::Result<()> {
        let mut record = Vec::new();
        let mut last_line = 0;
        for (&id, number) in self.frames.iter().zip(0..) {
            let Frame { file, line, module, .. } = &process.tables.frames[id.0 as usize];
            let module = module.map(|id| &*process.tables.modules[id.0 as usize].path);
            record.push(FUNCTION);
            leb128::push(&mut record, number);
            text(&mut record, &process.label(id))?;
            text(&mut record, file.as_deref().or(module).unwrap_or_default())?;
            let first_line = i64::from(line.unwrap_or(0));
            leb128::push_signed(&mut record, first_line - last_line);
            last_line = first_line;
            let lines = if line.is_some() { &LINES[..] } else { &[] };
            leb128::push(&mut record, lines.len() as u64);
            record.extend_from_slice(lines);
            out.write_all(&record)?;
            record.clear();
        }
        for number in 0..self.frames.len() as u64 {
            let (first_instruction, is_entry) = (0, 1);
            record.push(FRAME);
            leb128::push(&mut record, number);
            leb128::push(&mut record, number);
            leb128::push_signed(&mut record, first_instruction);
            record.push(is_entry);
            out.write_all(&record)?;
            record.clear();
        }
        for &(frame, caller) in &self.calls[1..] {
            record.push(STACK);
            leb128::push(&mut record, frame);
            leb128::push(&mut record, caller);
            out.write_all(&record)?;
            record.clear();
        }
        Ok(())
    }
}

/// Returns the start of a process, in milliseconds since 1970.
fn start_ms(process: &Process) -> u64 {
    ms(process.lifetime.start_realtime_ns)
}

fn ms(ns: u64) -> u64 {
    ns / 1_000_000
}

fn words(out: &mut dyn Write, words: &[u64]) -> io::Result<()> {
    words.iter().try_for_each(|word| out.write_all(&word.to_le_bytes()))
}

/// Writes a text and the zero byte that ends it.
fn text(out: &mut dyn Write, text: &str) -> io::Result<()> {
    out.write_all(printable(text).as_bytes())?;
    out.write_all(&[0])
}
