//! Export in callgrind's format, for callgrind_annotate and KCachegrind: costs by function and
//! line, and the inclusive cost of calls.
//!
//! Both readers compute the inclusive cost of a function as the sum of the calls to it. So that
//! this sum does not exceed the total, a stack counts once per function, for the outermost call,
//! and not for recursive calls. The pseudo-function `ALL` calls the outermost functions.

use std::io::{self, Write};

use heaptide_analysis::attribution::{FunctionId, Functions};
use heaptide_analysis::model::{FrameId, Measure, Measures, Process, StackId};
use heaptide_analysis::views::aggregate::by_stack;
use rustc_hash::FxHashMap;

use crate::shared::command_line::command_line;
use crate::shared::heading::counts_say;
use crate::shared::names::printable;

/// Name of the pseudo-function that calls the outermost functions and owns allocations without a
/// stack.
const ALL: &str = "[all]";
/// Name that the readers use for an unknown file.
const UNKNOWN: &str = "???";

/// The events, in the order of columns, after the requested metric.
const EVENTS: [Measure; 8] = [
    Measure::AtPeakBytes,
    Measure::LiveBytes,
    Measure::UsableBytes,
    Measure::Allocations,
    Measure::AtPeakBlocks,
    Measure::LiveBlocks,
    Measure::RequestedBytes,
    Measure::Temporary,
];

/// Writes the costs of a process. `measure` is the first event, by which the readers sort.
///
/// Errors: those of `out`.
pub fn write(out: &mut dyn Write, process: &Process, measure: Measure) -> io::Result<()> {
    let first = measure.of_sites();
    let mut events = vec![first];
    events.extend(EVENTS.into_iter().filter(|&event| event != first));
    let procedures = Procedures::of(process);
    let costs = Walk::new(process, &procedures, &events).costs();
    let mut writer = Writer { out, process, procedures, events, written: Written::default() };
    writer.head(&costs.total)?;
    writer.body(&costs)
}

/// The functions as the readers identify them: by name and file. Index 0 is [`ALL`].
struct Procedures<'a> {
    of_frame: Vec<u32>,
    /// By procedure; `None` for 0.
    first_frame: Vec<Option<FrameId>>,
    process: &'a Process,
}

impl<'a> Procedures<'a> {
    fn of(process: &'a Process) -> Procedures<'a> {
        let functions = Functions::of(process);
        let mut ids = FxHashMap::default();
        let mut first_frame = vec![None];
        let mut number = |id: u32| {
            let frame = functions.first_frame(FunctionId(id));
            let file = process.tables.frames[frame.0 as usize].file.as_deref();
            *ids.entry((process.label(frame), file)).or_insert_with(|| {
                first_frame.push(Some(frame));
                (first_frame.len() - 1) as u32
            })
        };
        let numbers: Vec<u32> = (0..functions.len() as u32).map(&mut number).collect();
        let frames = (0..process.tables.frames.len() as u32).map(FrameId);
        let of_frame = frames.map(|frame| numbers[functions.of_frame(frame).0 as usize]).collect();
        Procedures { of_frame, first_frame, process }
    }

    /// Returns the procedure of a stack's innermost frame, and the source line there.
    fn at(&self, stack: u32) -> (u32, u32) {
        if stack == 0 {
            return (0, 0);
        }
        let frame = self.process.tables.stacks[stack as usize].frame.0 as usize;
        (self.of_frame[frame], self.process.tables.frames[frame].line.unwrap_or(0))
    }
}

/// The values of the events. The last element is used only if the metric is not in [`EVENTS`].
type Cost = [u64; EVENTS.len() + 1];

fn cost(events: &[Measure], of: &Measures) -> Cost {
    let mut cost = Cost::default();
    cost.iter_mut().zip(events).for_each(|(value, event)| *value = event.of(of));
    cost
}

fn add(sum: &mut Cost, cost: &Cost) {
    sum.iter_mut().zip(cost).for_each(|(sum, &value)| *sum = sum.saturating_add(value));
}

/// Procedure, line, and the procedure that is called there, if any.
type Place = (u32, u32, Option<u32>);

struct Costs {
    /// Sorted as they are written: by procedure, line and called procedure.
    places: Vec<(Place, Cost)>,
    total: Cost,
}

/// A traversal of the tree of stacks that sums up inclusive costs.
struct Walk<'a> {
    procedures: &'a Procedures<'a>,
    /// Stacks sorted by caller, and the index at which those of each caller start.
    called: Vec<u32>,
    starts: Vec<u32>,
    own: Vec<(StackId, Cost)>,
    /// How often each procedure occurs on the current path.
    on_way: Vec<u32>,
    places: FxHashMap<Place, Cost>,
}

/// A stack on the current path.
struct Step {
    stack: u32,
    next: u32,
    inclusive: Cost,
}

impl<'a> Walk<'a> {
    fn new(process: &Process, procedures: &'a Procedures<'a>, events: &[Measure]) -> Walk<'a> {
        let count = process.tables.stacks.len().max(1);
        let mut starts = vec![0u32; count + 1];
        process
            .tables
            .stacks
            .iter()
            .skip(1)
            .for_each(|node| starts[node.parent.0 as usize + 1] += 1);
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut called: Vec<u32> = (1..count as u32).collect();
        called.sort_by_key(|&stack| process.tables.stacks[stack as usize].parent);
        let on_way = vec![0; procedures.first_frame.len()];
        let own = by_stack(process).map(|(stack, row)| (stack, cost(events, &row))).collect();
        let places = FxHashMap::default();
        Walk { procedures, called, starts, own, on_way, places }
    }

    fn costs(mut self) -> Costs {
        let mut way = vec![self.enter(0)];
        let mut total = Cost::default();
        while let Some(step) = way.last_mut() {
            if step.next < self.starts[step.stack as usize + 1] {
                let below = self.called[step.next as usize];
                step.next += 1;
                way.push(self.enter(below));
                continue;
            }
            let Some(done) = way.pop() else { break };
            match way.last_mut() {
                Some(caller) => {
                    self.leave(&done, caller.stack);
                    add(&mut caller.inclusive, &done.inclusive);
                }
                None => total = done.inclusive,
            }
        }
        let mut places: Vec<_> = self.places.into_iter().collect();
        places.sort_unstable_by_key(|place| place.0);
        Costs { places, total }
    }

    fn enter(&mut self, stack: u32) -> Step {
        let (procedure, line) = self.procedures.at(stack);
        self.on_way[procedure as usize] += 1;
        let own = self.own.binary_search_by_key(&stack, |row| row.0.0);
        let inclusive = own.map_or(Cost::default(), |row| self.own[row].1);
        self.charge((procedure, line, None), &inclusive);
        Step { stack, next: self.starts[stack as usize], inclusive }
    }

    fn leave(&mut self, done: &Step, caller: u32) {
        let (procedure, _) = self.procedures.at(done.stack);
        let on_way = &mut self.on_way[procedure as usize];
        *on_way -= 1;
        if *on_way == 0 {
            let (calls_it, line) = self.procedures.at(caller);
            self.charge((calls_it, line, Some(procedure)), &done.inclusive);
        }
    }

    fn charge(&mut self, place: Place, cost: &Cost) {
        if cost.iter().any(|&value| value > 0) {
            add(self.places.entry(place).or_default(), cost);
        }
    }
}

/// The names written so far. Later references write only the number.
#[derive(Default)]
struct Written<'a> {
    files: FxHashMap<&'a str, usize>,
    objects: FxHashMap<&'a str, usize>,
    procedures: FxHashMap<u32, usize>,
}

struct Writer<'a, 'o> {
    out: &'o mut dyn Write,
    process: &'a Process,
    procedures: Procedures<'a>,
    events: Vec<Measure>,
    written: Written<'a>,
}

impl<'a> Writer<'a, '_> {
    fn head(&mut self, total: &Cost) -> io::Result<()> {
        let process = self.process;
        writeln!(self.out, "# callgrind format\nversion: 1")?;
        writeln!(self.out, "creator: heaptide-{}", env!("CARGO_PKG_VERSION"))?;
        writeln!(self.out, "pid: {}", process.identity.pid)?;
        writeln!(self.out, "cmd: {}", command_line(process, usize::MAX))?;
        writeln!(self.out, "part: 1")?;
        for line in counts_say(process) {
            writeln!(self.out, "desc: {}", printable(&line))?;
        }
        writeln!(self.out, "positions: line")?;
        for event in &self.events {
            writeln!(self.out, "event: {event} : {}", event.name().replace('_', " "))?;
        }
        let names: Vec<&str> = self.events.iter().map(|event| event.name()).collect();
        writeln!(self.out, "events: {}", names.join(" "))?;
        self.cost("summary:", total)
    }

    fn cost(&mut self, position: &str, cost: &Cost) -> io::Result<()> {
        self.out.write_all(position.as_bytes())?;
        cost[..self.events.len()].iter().try_for_each(|value| write!(self.out, " {value}"))?;
        writeln!(self.out)
    }

    fn body(&mut self, costs: &Costs) -> io::Result<()> {
        let mut current = None;
        let allocations = self.events.iter().position(|&event| event == Measure::Allocations);
        for ((procedure, line, calls), cost) in &costs.places {
            if current != Some(*procedure) {
                current = Some(*procedure);
                writeln!(self.out)?;
                self.name(["ob", "fl", "fn"], *procedure, None)?;
            }
            if let Some(called) = calls {
                self.name(["cob", "cfi", "cfn"], *called, Some(*procedure))?;
                // The readers ignore a call with count 0.
                let count = allocations.map_or(1, |event| cost[event].max(1));
                writeln!(self.out, "calls={count} 0")?;
            }
            self.cost(&line.to_string(), cost)?;
        }
        self.cost("totals:", &costs.total)
    }

    /// Writes the object, file and name of a procedure under these keys. For a call, omits object
    /// and file if they equal those of the caller `inside`.
    fn name(&mut self, keys: [&str; 3], of: u32, inside: Option<u32>) -> io::Result<()> {
        let [object, file] = self.whereabouts(of);
        let around = inside.map(|procedure| self.whereabouts(procedure));
        if around.is_none_or(|around| around[0] != object) {
            let known = self.written.objects.len();
            let number = *self.written.objects.entry(object).or_insert(known + 1);
            self.numbered(keys[0], number, (number > known).then_some(object))?;
        }
        if around.is_none_or(|around| around[1] != file) {
            let known = self.written.files.len();
            let number = *self.written.files.entry(file).or_insert(known + 1);
            self.numbered(keys[1], number, (number > known).then_some(file))?;
        }
        let known = self.written.procedures.len();
        let number = *self.written.procedures.entry(of).or_insert(known + 1);
        let label = self.procedures.first_frame[of as usize].map(|frame| self.process.label(frame));
        let label = label.as_deref().unwrap_or(ALL);
        self.numbered(keys[2], number, (number > known).then_some(label))
    }

    /// Returns the object and the source file of a procedure.
    fn whereabouts(&self, procedure: u32) -> [&'a str; 2] {
        let process = self.process;
        let frame = self.procedures.first_frame[procedure as usize];
        let Some(frame) = frame.map(|frame| &process.tables.frames[frame.0 as usize]) else {
            return [&process.identity.program, UNKNOWN];
        };
        let object = frame.module.map_or(UNKNOWN, |id| &process.tables.modules[id.0 as usize].path);
        [object, frame.file.as_deref().unwrap_or(UNKNOWN)]
    }

    fn numbered(&mut self, key: &str, number: usize, name: Option<&str>) -> io::Result<()> {
        match name {
            Some(name) => writeln!(self.out, "{key}=({number}) {}", printable(name)),
            None => writeln!(self.out, "{key}=({number})"),
        }
    }
}
