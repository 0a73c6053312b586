//! Export of flame graphs as SVG, drawn by inferno: widths show a metric; as icicles or flames, of
//! calls, callers or scopes. Order, colours and words are those of the HTML page.

use std::cmp::Reverse;
use std::io::{self, Write};

use heaptide_analysis::attribution::{FunctionId, Functions, Owners, is_own};
use heaptide_analysis::model::{Frame, Lane, LaneId, Measure, Process};
use inferno::flamegraph::Direction;
use inferno::flamegraph::color::{Color, PaletteMap};

use crate::export::flame_style::{self, REST};
use crate::export::folded_lines::{NAME, plain};
use crate::shared::branches::{Branch, Branches, Lanes, What, lanes_by};
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
    /// Each call is a box.
    #[default]
    Drawn,
    /// A recursive function is one box.
    Folded,
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

/// Characters of a name that determine its shade, as on the page.
const SHADE: usize = 120;

/// Assigns a colour to each name, as on the HTML page: the hue by module, the shade by function;
/// the program's own code has its own hue.
fn colours(
    process: &Process,
    functions: &Functions,
    names: &[String],
    lines: &[String],
) -> PaletteMap {
    let mut colours = PaletteMap::default();
    // The outermost box.
    colours.insert("", REST);
    let short = of_functions(process, functions, SHADE);
    for ((name, short), id) in names.iter().zip(&short).zip(0..) {
        let frame = functions.first_frame(FunctionId(id));
        let frame = &process.tables.frames[frame.0 as usize];
        let colour = match frames::module_path(process, frame) {
            _ if is_own(process, frame) => own_colour(short),
            "" => colour_of(short, "function"),
            module => colour_of(short, module),
        };
        colours.insert(name, colour);
    }
    // Threads, and boxes that merge several branches.
    for name in
        lines.iter().filter_map(|line| line.rsplit_once(' ')).flat_map(|(path, _)| path.split(';'))
    {
        if colours.get(name).is_none() {
            let colour = if name.starts_with('…') { REST } else { colour_of(name, "thread") };
            colours.insert(name, colour);
        }
    }
    colours
}

fn own_colour(name: &str) -> Color {
    from_hsl((32.0 + 16.0 * hash(name)).round(), 0.75, light(name))
}

fn colour_of(name: &str, module: &str) -> Color {
    let hue = 165.0 + 140.0 * hash(module) + 30.0 * (hash(name) - 0.5);
    from_hsl(hue.round(), 0.48, light(name))
}

fn light(name: &str) -> f64 {
    let percent = 73.0 + 11.0 * (hash(&format!("{name}.")) - 0.5);
    percent.round() / 100.0
}

/// FNV-1a over the units of UTF-16, as in `boxes.js`, scaled to the range from 0 to 1.
fn hash(text: &str) -> f64 {
    let add = |value: u32, unit: u16| (value ^ u32::from(unit)).wrapping_mul(16_777_619);
    f64::from(text.encode_utf16().fold(2_166_136_261, add) >> 8) / 16_777_216.0
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

/// Returns lines `outermost;…;innermost value`, largest first.
fn lines(process: &Process, owners: &Owners, names: &[String], drawing: &Drawing) -> Vec<String> {
    let folded = |lane| folded(process, owners, names, drawing, lane);
    match drawing.lanes {
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
    }
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
    let name = |branch: &Branch<1>, level: usize| match branch.what {
        What::Call(frame) => names[functions.of_frame(frame).0 as usize].clone(),
        What::Smaller(of) => {
            let kind = if level > drawing.levels { "deeper" } else { "smaller" };
            let plural = if of == 1 { "" } else { "es" };
            format!("… {} {kind} branch{plural}", count(of.into()))
        }
        What::Root | What::Scope(_) => String::new(),
    };
    lines_of(&tree, name)
}

/// Returns the lines of a tree, in the order of the boxes: the largest branch of each branch first,
/// those that merge others last, then its own value. `name` gets a branch and its level.
fn lines_of(tree: &Branches<1>, name: impl Fn(&Branch<1>, usize) -> String) -> Vec<String> {
    let mut inside: Vec<Vec<u32>> = vec![Vec::new(); tree.all.len()];
    for (branch, index) in tree.all.iter().zip(0..).skip(1) {
        inside[branch.parent as usize].push(index);
    }
    let order = |&index: &u32| {
        let branch = &tree.all[index as usize];
        (matches!(branch.what, What::Smaller(_)), Reverse(branch.inclusive[0]), index)
    };
    inside.iter_mut().for_each(|branches| branches.sort_unstable_by_key(order));
    let mut lines = Vec::new();
    let mut path = String::new();
    // For each open branch: its index, how many of its branches are done, the end of its path.
    let mut open = vec![(0usize, 0usize, 0usize)];
    while let Some(top) = open.last_mut() {
        let (index, done, end) = *top;
        path.truncate(end);
        if let Some(&next) = inside[index].get(done) {
            top.1 += 1;
            let branch = &tree.all[next as usize];
            if !path.is_empty() {
                path.push(';');
            }
            path.push_str(&name(branch, open.len()));
            open.push((next as usize, 0, path.len()));
            continue;
        }
        let own = tree.all[index].own[0];
        if own > 0 {
            let path = if path.is_empty() { "(no stack)" } else { &path };
            lines.push(format!("{path} {own}"));
        }
        open.pop();
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
