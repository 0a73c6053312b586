//! Export of flame graphs as SVG, drawn by inferno: widths show a metric; as icicles or flames, of
//! calls, callers or scopes.

use std::io::{self, Write};

use heaptide_analysis::attribution::{FunctionId, Functions, Owners};
use heaptide_analysis::model::{Frame, Lane, LaneId, Measure, Process};
use inferno::flamegraph::Direction;
use inferno::flamegraph::color::{Color, PaletteMap};

use crate::export::flame_style::{self, REST};
use crate::export::folded_lines::{NAME, plain};
use crate::shared::branches::{Branches, Lanes, What, lanes_by};
use crate::shared::command_line::command_line;
use crate::shared::distinct_names::of_functions;
use crate::shared::frames;
use crate::shared::names::{elide_middle, printable};
use crate::shared::quantity::{bytes, count, counted, duration};

/// Boxes below this share of the whole are merged, in percent.
pub const LEAST_PERCENT: f64 = 0.1;
/// Maximum levels of boxes; deeper ones are merged.
pub const LEVELS: usize = 60;

/// Direction of the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// Callers contain their callees.
    #[default]
    Calls,
    /// Allocating functions contain their callers.
    Callers,
}

/// Position of the outermost boxes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Outermost {
    /// At the top, as in an icicle graph; the part that a viewer shows first.
    #[default]
    Top,
    /// At the bottom, as in a flame graph.
    Bottom,
}

/// Treatment of recursive calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Recursion {
    /// A recursive function is one box.
    #[default]
    Folded,
    /// Each call is a box.
    Drawn,
}

/// Options of a flame graph.
#[derive(Clone, PartialEq, Debug)]
pub struct Drawing {
    /// Metric of the widths.
    pub measure: Measure,
    /// Direction of the tree.
    pub order: Order,
    /// Whether each lane has a box around its calls.
    pub lanes: Lanes,
    /// Position of the outermost boxes.
    pub outermost: Outermost,
    /// Treatment of recursive calls.
    pub recursion: Recursion,
    /// Maximum levels of boxes; deeper ones are merged.
    pub levels: usize,
    /// Boxes below this share of the whole, in percent, are merged.
    pub least_percent: f64,
    /// Width in pixels; by default, that of the viewer's window.
    pub width: Option<u32>,
    /// The title; by default, the command and the metric.
    pub title: Option<String>,
}

impl Drawing {
    /// Returns the default options for a metric.
    pub fn of(measure: Measure) -> Drawing {
        Drawing {
            measure,
            order: Order::default(),
            lanes: Lanes::default(),
            outermost: Outermost::default(),
            recursion: Recursion::default(),
            levels: LEVELS,
            least_percent: LEAST_PERCENT,
            width: None,
            title: None,
        }
    }
}

/// Writes the flame graph of a process.
///
/// Errors: those of `out`; `InvalidInput` if the process has no value of the metric.
pub fn write(out: &mut dyn Write, process: &Process, drawing: &Drawing) -> io::Result<()> {
    let measure = drawing.measure.of_sites();
    let owners = Owners::of(process);
    let names = of_functions(process, &owners.functions, NAME);
    let names: Vec<String> = names.iter().map(|name| plain(name)).collect();
    let lines = lines(process, &owners, &names, drawing);
    if lines.is_empty() {
        let (name, who) = (measure.name(), process.who());
        let why = format!("{name} of {who} is 0: nothing to draw");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut options = flame_style::options();
    let title = || format!("{} · {}", command_line(process, 70), measure.name());
    options.title = drawing.title.as_deref().map_or_else(title, |t| printable(t).into_owned());
    options.subtitle = Some(subtitle(process, measure));
    options.count_name = if measure.is_bytes() { "bytes" } else { measure.name() }.to_owned();
    let scopes_only = process.tables.frames.iter().all(Frame::is_scope);
    options.name_type = if scopes_only { "Scope:" } else { "Function:" }.to_owned();
    let mut colours = colours(process, &owners.functions, &names, &lines);
    options.palette_map = Some(&mut colours);
    options.image_width = drawing.width.map(|pixels| pixels as usize);
    if drawing.outermost == Outermost::Bottom {
        options.direction = Direction::Straight;
    }
    flame_style::draw(out, options, &lines)
}

/// Assigns a colour to each name: the hue by module, the shade by function, as on the HTML page.
fn colours(
    process: &Process,
    functions: &Functions,
    names: &[String],
    lines: &[String],
) -> PaletteMap {
    let mut colours = PaletteMap::default();
    // The outermost box, which inferno labels `all`.
    colours.insert("", REST);
    for (name, id) in names.iter().zip(0..) {
        let frame = functions.first_frame(FunctionId(id));
        let frame = &process.tables.frames[frame.0 as usize];
        colours.insert(name, colour_of(name, frames::module_path(process, frame)));
    }
    // Threads, and boxes that merge several branches.
    for name in
        lines.iter().filter_map(|line| line.rsplit_once(' ')).flat_map(|(path, _)| path.split(';'))
    {
        if colours.get(name).is_none() {
            let colour = if name.starts_with('…') { REST } else { colour_of(name, "") };
            colours.insert(name, colour);
        }
    }
    colours
}

fn colour_of(name: &str, module: &str) -> Color {
    // FNV-1a, scaled to the range from 0 to 1.
    let hash = |text: &str| {
        let add = |value: u32, byte: u8| (value ^ u32::from(byte)).wrapping_mul(16_777_619);
        f64::from(text.bytes().fold(2_166_136_261, add) >> 8) / 16_777_216.0
    };
    let module = if module.is_empty() { "none" } else { module };
    let hue = 165.0 + 150.0 * hash(module) + 50.0 * (hash(name) - 0.5);
    let light = 0.70 + 0.12 * (hash(&format!("{name}.")) - 0.5);
    from_hsl(hue, 0.62, light)
}

/// Returns a colour by hue in degrees, saturation and lightness, as defined in CSS Color 4.
fn from_hsl(hue: f64, saturation: f64, light: f64) -> Color {
    let part = |n: f64| {
        let k = (n + hue / 30.0).rem_euclid(12.0);
        let a = saturation * light.min(1.0 - light);
        let value = light - a * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (value * 255.0).round() as u8
    };
    Color { r: part(0.0), g: part(8.0), b: part(4.0) }
}

/// Returns lines `outermost;…;innermost value`, sorted.
fn lines(process: &Process, owners: &Owners, names: &[String], drawing: &Drawing) -> Vec<String> {
    let folded = |lane| folded(process, owners, names, drawing, lane);
    let mut lines = match drawing.lanes {
        Lanes::Merged => folded(None),
        Lanes::Apart => {
            let lanes = lanes_by(process, drawing.measure).into_iter();
            let below = |(id, lane): (LaneId, &Lane)| {
                let name = plain(&elide_middle(&lane.name, NAME));
                let lines = folded(Some(id)).into_iter();
                lines.map(move |line| format!("{name};{line}"))
            };
            lanes.flat_map(below).collect()
        }
    };
    lines.sort_unstable();
    lines
}

/// Returns the lines of functions, given their names. Different functions have different names,
/// since boxes with one name would be drawn as one box.
fn folded(
    process: &Process,
    owners: &Owners,
    names: &[String],
    drawing: &Drawing,
    lane: Option<LaneId>,
) -> Vec<String> {
    let functions = &owners.functions;
    let measure = drawing.measure.of_sites();
    let mut calls = Branches::calls(process, functions, lane, [measure]);
    if drawing.recursion == Recursion::Folded {
        calls = calls.without_recursion(functions);
    }
    let whole = calls.all[0].inclusive[0];
    let least = (whole as f64 * drawing.least_percent / 100.0).ceil().max(1.0) as u64;
    let tree = match drawing.order {
        Order::Calls => calls,
        Order::Callers => calls.callers(owners, whole.div_ceil(least)),
    };
    let tree = tree.cut_below(&[least], drawing.levels);
    // The path to each branch, and its level.
    let mut paths: Vec<(String, usize)> = vec![(String::new(), 0)];
    let mut lines = Vec::new();
    for branch in &tree.all {
        let (above, level) = &paths[branch.parent as usize];
        let (above, level) = (above.as_str(), *level);
        let name = match branch.what {
            What::Call(frame) => names[functions.of_frame(frame).0 as usize].clone(),
            What::Smaller(of) if level == drawing.levels => {
                format!("… {} deeper", count(of.into()))
            }
            What::Smaller(of) => format!("… {} smaller", count(of.into())),
            What::Root | What::Scope(_) => String::new(),
        };
        let path = match (above, &*name) {
            ("", name) => name.to_owned(),
            (above, name) => format!("{above};{name}"),
        };
        if branch.own[0] > 0 {
            let path = if path.is_empty() { "(no stack)" } else { &path };
            lines.push(format!("{path} {}", branch.own[0]));
        }
        if branch.what != What::Root {
            paths.push((path, level + 1));
        }
    }
    lines
}

fn subtitle(process: &Process, measure: Measure) -> String {
    let value = measure.of(&process.totals);
    let value = if measure.is_bytes() {
        format!("{} ({})", bytes(value), counted(value, "byte"))
    } else {
        count(value)
    };
    let sampled = if process.sampling.is_some() { ", sampled: widths are estimates" } else { "" };
    let who = process.who();
    match measure {
        Measure::AtPeakBytes | Measure::AtPeakBlocks => {
            let when = duration(process.peak_time_ns);
            format!("{who}: {value} live at the peak, {when} after the start{sampled}")
        }
        Measure::LiveBytes | Measure::LiveBlocks => {
            format!("{who}: {value} live at the end{sampled}")
        }
        _ => format!("{who}: {value}{sampled}"),
    }
}
