//! Flame graphs as SVG, drawn by inferno: widths are a measure; flames or icicles, of calls,
//! callers or scopes.

use std::io::{self, Write};

use heaptide_analysis::attribution::{FunctionId, Owners};
use heaptide_analysis::model::{Frame, Lane, LaneId, Measure, Process};
use inferno::flamegraph;

use crate::export::folded_lines::{LEAST_PARTS, NAME, plain};
use crate::shared::branches::Lanes;
use crate::shared::branches::{Branch, Branches, What, lanes_by};
use crate::shared::command_line::command_line;
use crate::shared::frames;
use crate::shared::names::{elide_middle, printable};
use crate::shared::quantity::{bytes, count, counted, duration};

/// Which functions carry which.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// Callers carry what they call.
    #[default]
    Calls,
    /// Functions that allocate carry their callers.
    Callers,
}

/// Where the outermost boxes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Outermost {
    /// At the bottom, as flames rise.
    #[default]
    Bottom,
    /// At the top, as icicles hang.
    Top,
}

/// What is drawn, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Drawing {
    /// What gives the boxes their width.
    pub measure: Measure,
    /// Which carry which.
    pub order: Order,
    /// A box for each lane that carries all of it.
    pub lanes: Lanes,
    /// Where the outermost are.
    pub outermost: Outermost,
    /// Pixels; as wide as its window without.
    pub width: Option<u32>,
    /// The line above it; command and measure without.
    pub title: Option<String>,
}

impl Drawing {
    /// The usual one of a measure.
    pub fn of(measure: Measure) -> Drawing {
        Drawing {
            measure,
            order: Order::default(),
            lanes: Lanes::default(),
            outermost: Outermost::default(),
            width: None,
            title: None,
        }
    }
}

/// Writes the flame graph of a process.
///
/// Errors: those of `out`; the process has no value of the measure (`InvalidInput`).
pub fn write(out: &mut dyn Write, process: &Process, drawing: &Drawing) -> io::Result<()> {
    let measure = drawing.measure.of_sites();
    let lines = lines(process, drawing);
    if lines.is_empty() {
        let (name, who) = (measure.name(), process.who());
        let why = format!("{name} of {who} is 0: nothing to draw");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut options = flamegraph::Options::default();
    let title = || format!("{} · {}", command_line(process, 70), measure.name());
    options.title = drawing.title.as_deref().map_or_else(title, |t| printable(t).into_owned());
    options.subtitle = Some(subtitle(process, measure));
    options.count_name = if measure.is_bytes() { "bytes" } else { measure.name() }.to_owned();
    let scopes_only = process.tables.frames.iter().all(Frame::is_scope);
    options.name_type = if scopes_only { "Scope:" } else { "Function:" }.to_owned();
    options.colors = "mem".parse().unwrap_or_default();
    options.hash = true;
    options.image_width = drawing.width.map(|pixels| pixels as usize);
    if drawing.outermost == Outermost::Top {
        options.direction = flamegraph::Direction::Inverted;
    }
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out)
        .map_err(io::Error::other)
}

/// Lines `outermost;…;innermost value`, sorted.
fn lines(process: &Process, drawing: &Drawing) -> Vec<String> {
    let measure = drawing.measure.of_sites();
    let of_lane = |lane| folded(process, measure, drawing.order, lane);
    let mut lines = match drawing.lanes {
        Lanes::Merged => of_lane(None),
        Lanes::Apart => {
            let lanes = lanes_by(process, measure).into_iter();
            let below = |(id, lane): (LaneId, &Lane)| {
                let name = plain(&elide_middle(&lane.name, NAME));
                of_lane(Some(id)).into_iter().map(move |line| format!("{name};{line}"))
            };
            lanes.flat_map(below).collect()
        }
    };
    lines.sort_unstable();
    lines
}

/// Lines of functions.
fn folded(process: &Process, measure: Measure, order: Order, lane: Option<LaneId>) -> Vec<String> {
    let owners = Owners::of(process);
    let functions = &owners.functions;
    let calls = Branches::calls(process, functions, lane, [measure]);
    let tree = match order {
        Order::Calls => calls.cut(LEAST_PARTS, usize::MAX),
        Order::Callers => calls.callers(&owners, LEAST_PARTS),
    };
    let names: Vec<String> = (0..functions.len() as u32)
        .map(|id| {
            let id = functions.first_frame(FunctionId(id));
            plain(&frames::label(process, &process.tables.frames[id.0 as usize], NAME))
        })
        .collect();
    let line = |(branch, value): (&Branch<1>, u64)| {
        let mut path = Vec::new();
        let mut at = branch;
        while let What::Call(frame) = at.what {
            path.push(names[functions.of_frame(frame).0 as usize].as_str());
            at = &tree.all[at.parent as usize];
        }
        path.reverse();
        let path = if path.is_empty() { "(no stack)".to_owned() } else { path.join(";") };
        format!("{path} {value}")
    };
    tree.all.iter().zip(tree.own_values()).filter(|branch| branch.1 > 0).map(line).collect()
}

fn subtitle(process: &Process, measure: Measure) -> String {
    let value = measure.of(&process.totals);
    let value = if measure.is_bytes() {
        format!("{} ({})", bytes(value), counted(value, "byte"))
    } else {
        count(value)
    };
    let who = process.who();
    match measure {
        Measure::AtPeakBytes | Measure::AtPeakBlocks => {
            let when = duration(process.peak_time_ns);
            format!("{who}: {value} live at the peak, {when} after the start")
        }
        Measure::LiveBytes | Measure::LiveBlocks => format!("{who}: {value} live at the end"),
        _ => format!("{who}: {value}"),
    }
}
