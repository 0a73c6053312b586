//! Export in massif's format, for ms_print and massif-visualizer: live bytes over time, and trees
//! of live bytes at the peak and at the end.

use std::cmp::Reverse;
use std::io::{self, Write};

use heaptide_analysis::attribution::Owners;
use heaptide_analysis::model::{Frame, FrameId, Measure, Mode, Process, StackId};
use heaptide_analysis::views::aggregate::by_stack;

use crate::shared::command_line::command_line;
use crate::shared::frames::file_name;
use crate::shared::heading::counts_say;
use crate::shared::names::printable;

/// Snapshots between start and end; massif itself keeps at most this many.
const SNAPSHOTS: u64 = 100;
/// Branches below this share of the whole, in percent, are merged.
const THRESHOLD: u64 = 1;
/// Maximum depth of a tree, the same as massif's default.
const DEPTH: usize = 30;

/// Writes live bytes over time as usable bytes; massif's extra and stack bytes are 0.
///
/// Errors: those of `out`.
pub fn write(out: &mut dyn Write, process: &Process) -> io::Result<()> {
    let mut of = counts_say(process);
    if process.completeness.part.is_none() {
        of.insert(0, "usable bytes".to_owned());
    }
    let of = of.join(", ");
    writeln!(out, "desc: heaptide {}, {}", env!("CARGO_PKG_VERSION"), printable(&of))?;
    writeln!(out, "cmd: {}", command_line(process, usize::MAX))?;
    writeln!(out, "time_unit: ms")?;
    for (number, Moment { time_ns, live_bytes, tree }) in moments(process).iter().enumerate() {
        let time = time_ns / 1_000_000;
        writeln!(out, "#-----------\nsnapshot={number}\n#-----------\ntime={time}")?;
        writeln!(out, "mem_heap_B={live_bytes}\nmem_heap_extra_B=0\nmem_stacks_B=0")?;
        match tree {
            Some(kind) if process.mode == Mode::Stacks => {
                writeln!(out, "heap_tree={}", kind.name())?;
                Trunk::of(process, kind.measure()).write(out)?;
            }
            _ => writeln!(out, "heap_tree=empty")?,
        }
    }
    Ok(())
}

/// State of the process at one time.
struct Moment {
    time_ns: u64,
    live_bytes: u64,
    tree: Option<Detail>,
}

/// The moments that have a tree.
#[derive(Clone, Copy)]
enum Detail {
    Peak,
    End,
}

impl Detail {
    fn name(self) -> &'static str {
        match self {
            Detail::Peak => "peak",
            Detail::End => "detailed",
        }
    }

    fn measure(self) -> Measure {
        match self {
            Detail::Peak => Measure::AtPeakBytes,
            Detail::End => Measure::LiveBytes,
        }
    }
}

/// Returns the start, the highest sample of each time slice, the peak, and the end. Samples are
/// omitted if they cover more than the totals.
fn moments(process: &Process) -> Vec<Moment> {
    let end = process.lifetime.duration_ns;
    let slice = (end / SNAPSHOTS).max(1);
    let mut moments = vec![Moment { time_ns: 0, live_bytes: 0, tree: None }];
    let timeline = if process.has_timeline_of_totals() { &process.time.samples[..] } else { &[] };
    for samples in timeline.chunk_by(|a, b| a.time_ns / slice == b.time_ns / slice) {
        let highest = samples.iter().max_by_key(|sample| sample.live_bytes);
        moments.extend(highest.map(|sample| Moment {
            time_ns: sample.time_ns.min(end),
            live_bytes: sample.live_bytes,
            tree: None,
        }));
    }
    let totals = &process.totals;
    if totals.peak_bytes > 0 {
        moments.push(Moment {
            time_ns: process.peak_time_ns.min(end),
            // ms_print rejects a tree that is larger than its snapshot.
            live_bytes: totals.peak_bytes.max(totals.at_peak_bytes),
            tree: Some(Detail::Peak),
        });
    }
    moments.sort_by_key(|moment| moment.time_ns);
    let tree = (totals.live_bytes > 0).then_some(Detail::End);
    moments.push(Moment { time_ns: end, live_bytes: totals.live_bytes, tree });
    moments
}

/// Paths from the frames to which allocations are attributed, up to their callers.
struct Trunk<'a> {
    process: &'a Process,
    ways: Vec<Way>,
    total: u64,
}

#[derive(Clone, Copy)]
struct Way {
    at: StackId,
    bytes: u64,
}

/// The paths through one frame.
struct Branch {
    frame: FrameId,
    bytes: u64,
    ways: std::ops::Range<usize>,
}

impl<'a> Trunk<'a> {
    fn of(process: &'a Process, measure: Measure) -> Trunk<'a> {
        let owners = Owners::of(process);
        let rows = by_stack(process);
        let way = |(stack, row)| Way { at: owners.stack(stack), bytes: measure.of(&row) };
        let ways: Vec<Way> = rows.map(way).filter(|way| way.bytes > 0).collect();
        let total = ways.iter().map(|way| way.bytes).fold(0, u64::saturating_add);
        Trunk { process, ways, total }
    }

    fn write(mut self, out: &mut dyn Write) -> io::Result<()> {
        let details = "(heap allocation functions) malloc/new/new[], --alloc-fns, etc.";
        let mut ways = std::mem::take(&mut self.ways);
        self.write_node(out, 0, &mut ways, self.total, details)
    }

    fn write_node(
        &self,
        out: &mut dyn Write,
        level: usize,
        ways: &mut [Way],
        bytes: u64,
        details: &str,
    ) -> io::Result<()> {
        let mut branches = if level < DEPTH { self.branches(ways) } else { Vec::new() };
        let least = (self.total / 100 * THRESHOLD).max(1);
        let large = branches.partition_point(|branch| branch.bytes >= least);
        let small = branches.split_off(large);
        let count = large + usize::from(!small.is_empty());
        writeln!(out, "{:level$}n{count}: {bytes} {details}", "")?;
        for Branch { frame, bytes, ways: range } in branches {
            let ways = &mut ways[range];
            let process = self.process;
            ways.iter_mut()
                .for_each(|way| way.at = process.tables.stacks[way.at.0 as usize].parent);
            self.write_node(out, level + 1, ways, bytes, &self.details(frame))?;
        }
        if small.is_empty() {
            return Ok(());
        }
        let bytes = small.iter().fold(0u64, |sum, branch| sum.saturating_add(branch.bytes));
        let places = match small.len() {
            1 => "1 place, below".to_owned(),
            many => format!("{many} places, all below"),
        };
        let level = level + 1;
        writeln!(out, "{:level$}n0: {bytes} in {places} massif's threshold ({THRESHOLD}.00%)", "")
    }

    /// Groups paths by their current frame, largest first. Paths that have ended are in no group.
    fn branches(&self, ways: &mut [Way]) -> Vec<Branch> {
        let frame = |way: &Way| match way.at {
            StackId(0) => None,
            StackId(stack) => Some(self.process.tables.stacks[stack as usize].frame),
        };
        ways.sort_unstable_by_key(frame);
        let mut branches = Vec::new();
        let mut start = 0;
        for group in ways.chunk_by(|a, b| frame(a) == frame(b)) {
            let end = start + group.len();
            if let Some(frame) = frame(&group[0]) {
                let bytes = group.iter().fold(0u64, |sum, way| sum.saturating_add(way.bytes));
                branches.push(Branch { frame, bytes, ways: start..end });
            }
            start = end;
        }
        branches.sort_by_key(|branch| (Reverse(branch.bytes), branch.frame));
        branches
    }

    /// Formats a frame as `0x401136: main (app.c:12)`.
    fn details(&self, frame: FrameId) -> String {
        let Frame { function, module, offset, file, line, .. } =
            &self.process.tables.frames[frame.0 as usize];
        let module = module.map(|id| &self.process.tables.modules[id.0 as usize]);
        let address = module.map_or(0, |module| module.bias.wrapping_add(*offset));
        let name = function.as_deref().unwrap_or("???");
        let place = match (file, line, module) {
            (Some(file), Some(line), _) => format!(" ({}:{line})", file_name(file)),
            (_, _, Some(module)) => format!(" (in {})", module.path),
            _ => String::new(),
        };
        printable(&format!("{address:#X}: {name}{place}")).replacen("0X", "0x", 1)
    }
}
