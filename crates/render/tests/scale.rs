//! A synthetic recording with long C++ names, one of 30,000 characters: folded lines agree with the
//! tables, and pages keep their width.

use std::collections::BTreeMap;
use std::io;
use std::sync::LazyLock;

use heaptide_analysis::model::{Measure, Process, Recording, StackId};
use heaptide_analysis::views::aggregate::{GroupBy, by_stack};
use heaptide_fixtures::Scratch;
use heaptide_render::export::flamegraph::{self, Drawing};
use heaptide_render::export::folded::{self, Notes};
use heaptide_render::shared::branches::Lanes;
use heaptide_render::shared::quantity::count;
use heaptide_render::text::report::Shown;
use heaptide_render::text::screen::{Layout, Screen};
use heaptide_render::text::{self, table};
use heaptide_synthetic::{DEPTH, Plan, write};

const STACKS: u32 = 500;

/// Characters of a line of a page: a function, its helper, its file and module.
const WIDTH: usize = 180;

static RECORDING: LazyLock<Recording> = LazyLock::new(|| {
    let scratch = Scratch::new("scale");
    let directory = scratch.join("a.heaptide");
    write(&directory, &Plan { stacks: STACKS, seed: 7 }).expect("a place for a recording");
    Recording::open(&directory).expect("a recording")
});

fn process() -> &'static Process {
    &RECORDING.processes[0]
}

fn lines(measure: Measure, lanes: Lanes, notes: Notes) -> Vec<(String, u64)> {
    let mut out = Vec::new();
    folded::write(&mut out, process(), measure, lanes, notes).expect("memory takes everything");
    let text = String::from_utf8(out).expect("lines are UTF-8");
    let line = |line: &str| {
        let (path, value) = line.rsplit_once(' ').expect("a value");
        (path.to_owned(), value.parse().expect("a number"))
    };
    text.lines().map(line).collect()
}

#[test]
fn the_recording_is_as_planned() {
    let process = process();
    assert!(
        RECORDING.sealed && RECORDING.damaged.is_empty() && process.completeness.notes.is_empty()
    );
    let stacks: Vec<StackId> = by_stack(process).map(|row| row.0).collect();
    let (none, stacks) = stacks.split_first().expect("rows of what lanes freed");
    assert_eq!((*none, stacks.len()), (StackId(0), STACKS as usize));
    assert!(stacks.iter().all(|&stack| process.frames_of(stack).count() == DEPTH));
    assert_eq!(process.totals.at_peak_bytes, process.totals.peak_bytes);
    assert!(process.totals.live_bytes <= process.totals.peak_bytes);
    let lengths = process.tables.frames.iter().filter_map(|frame| frame.function.as_deref());
    assert_eq!(lengths.map(str::len).max(), Some(30_000));
}

#[test]
fn folded_lines_are_the_stacks_and_their_values() {
    for measure in [Measure::Allocations, Measure::AtPeakBytes, Measure::LargestBytes] {
        let process = process();
        let mut expected: BTreeMap<String, u64> = BTreeMap::new();
        for site in &process.tables.sites {
            let path = process.path_of(site.stack).into_iter();
            let names: Vec<String> = path.map(|frame| process.label(frame).into_owned()).collect();
            let sum = expected.entry(names.join(";")).or_default();
            *sum = measure.combine().of(*sum, measure.of(&site.measures));
        }
        expected.retain(|_, value| *value > 0);
        let found = lines(measure, Lanes::Merged, Notes::None);
        assert_eq!(found.len(), expected.len(), "each stack has one line");
        assert_eq!(found.into_iter().collect::<BTreeMap<_, _>>(), expected);
    }
}

#[test]
fn lanes_apart_are_outermost_frames() {
    let found = lines(Measure::Allocations, Lanes::Apart, Notes::None);
    assert_eq!(found.iter().map(|line| line.1).sum::<u64>(), process().totals.allocations);
    for lane in &process().tables.lanes {
        let prefix = format!("{};", lane.name);
        let of_lane = found.iter().filter(|line| line.0.starts_with(&prefix));
        assert_eq!(of_lane.map(|line| line.1).sum::<u64>(), lane.measures.allocations);
    }
    assert!(found.iter().all(|line| line.0.split(';').count() == DEPTH + 1));
}

#[test]
fn notes_are_innermost_frames_that_readers_take_for_names() {
    let found = lines(Measure::LiveBytes, Lanes::Merged, Notes::Counts);
    assert_eq!(found.iter().map(|line| line.1).sum::<u64>(), process().totals.live_bytes);
    for (path, value) in found {
        let note = path.rsplit(';').next().expect("a last frame");
        let words: Vec<&str> = note.trim_matches(['[', ']']).split(' ').collect();
        let blocks: u64 = words[0].parse().expect("blocks");
        assert!(words[1].starts_with("block") && words.last() == Some(&"each"), "{note}");
        assert!(blocks > 0 && value >= blocks, "{note} of {value}");
    }
}

#[test]
fn inferno_reads_folded_lines() {
    let mut lines = Vec::new();
    let measure = Measure::UsableBytes;
    folded::write(&mut lines, process(), measure, Lanes::Apart, Notes::Counts).expect("memory");
    let mut svg = Vec::new();
    let mut options = inferno::flamegraph::Options::default();
    inferno::flamegraph::from_reader(&mut options, &*lines, &mut svg).expect("a picture");
    let whole = format!("all ({} samples, 100%)", count(measure.of(&process().totals)));
    assert!(String::from_utf8(svg).expect("SVG is UTF-8").contains(&whole));
}

fn shown(write: impl FnOnce(&mut Screen) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut Screen::new(&mut out, Layout::default())).expect("memory takes everything");
    String::from_utf8(out).expect("pages are UTF-8")
}

#[test]
fn pages_are_narrow_whatever_the_names() {
    let process = process();
    let mut pages = Vec::new();
    let whole =
        text::report::Page { sort: None, top: Some(2000), process: None, shown: Shown::Subject };
    pages.push(shown(|out| text::report::write(out, &RECORDING, &whole)));
    for by in [GroupBy::Function, GroupBy::Stack] {
        let all = table::Table { by, sort: Some(Measure::Allocations), top: Some(5000) };
        pages.push(shown(|out| table::write(out, process, &all, None)));
    }
    let mut longest_was_shown = false;
    for page in pages {
        longest_was_shown |= page.contains("Chain<");
        for line in page.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }
    assert!(longest_was_shown);
}

#[test]
fn a_picture_has_no_name_that_is_not_shortened() {
    let mut svg = Vec::new();
    let drawing = Drawing::of(Measure::Allocations);
    flamegraph::write(&mut svg, process(), &drawing).expect("a picture");
    let svg = String::from_utf8(svg).expect("SVG is UTF-8");
    assert!(svg.contains("::run(") && !svg.contains(&"app::detail::Chain&lt;int, ".repeat(9)));
}
