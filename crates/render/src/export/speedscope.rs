//! Export for speedscope.app: its JSON, with a profile for each metric, or for each lane.

use std::collections::HashMap;
use std::io::{self, Write};

use heaptide_analysis::attribution::{FunctionId, Functions};
use heaptide_analysis::model::{FrameId, Measure, Process};
use serde::Serialize;

use crate::shared::branches::Lanes;
use crate::shared::branches::{Branch, Branches, What, lanes_by};
use crate::shared::command_line::command_line;
use crate::shared::json_text;
use crate::shared::names::{elide_middle, printable};

/// Metrics that have a profile of their own.
const MEASURES: [Measure; 6] = [
    Measure::AtPeakBytes,
    Measure::LiveBytes,
    Measure::UsableBytes,
    Measure::Allocations,
    Measure::Temporary,
    Measure::LiveBlocks,
];
/// Each sample repeats its whole stack, so values below this fraction of the whole are attributed
/// to the caller.
const PARTS: u64 = 50_000;
/// Maximum number of samples in a profile.
const SAMPLES: usize = 100_000;
/// Characters of a name; some have tens of thousands.
const NAME: usize = 2000;

/// Writes the profiles of a process: one for each metric that has a value, with that of `measure`
/// selected; or one for each lane, of `measure`.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    process: &Process,
    measure: Measure,
    lanes: Lanes,
) -> io::Result<()> {
    let functions = Functions::of(process);
    let mut frames =
        Frames { process, functions: &functions, list: Vec::new(), known: HashMap::new() };
    let measure = measure.of_sites();
    let command = command_line(process, 60);
    let named = |what: &str| format!("{command} ({}): {what}", process.who());
    let profiles: Vec<Profile> = match lanes {
        Lanes::Merged => {
            let mut measures = [measure; MEASURES.len() + 1];
            measures[..MEASURES.len()].copy_from_slice(&MEASURES);
            let calls = Branches::calls(process, &functions, None, measures);
            let different = measures.len() - usize::from(MEASURES.contains(&measure));
            let profile = |m: usize| frames.profile(named(measures[m].name()), &calls.only(m));
            (0..different).filter_map(profile).collect()
        }
        Lanes::Apart => lanes_by(process, measure)
            .into_iter()
            .filter_map(|(id, lane)| {
                let name = format!("{}, thread {}", measure.name(), printable(&lane.name));
                let calls = Branches::calls(process, &functions, Some(id), [measure]);
                frames.profile(named(&name), &calls)
            })
            .collect(),
    };
    let active = profiles.iter().position(|profile| profile.measure == measure);
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        name: named("heap"),
        exporter: concat!("heaptide ", env!("CARGO_PKG_VERSION")),
        active_profile_index: active.unwrap_or(0),
        shared: Shared { frames: frames.list },
        profiles,
    };
    json_text::write(out, &file)?;
    out.write_all(b"\n")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: String,
    exporter: &'static str,
    active_profile_index: usize,
    shared: Shared,
    profiles: Vec<Profile>,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Serialize)]
struct Frame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    #[serde(skip)]
    measure: Measure,
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Vec<Vec<u32>>,
    weights: Vec<u64>,
}

/// The frames that all profiles share: one per function.
struct Frames<'a> {
    process: &'a Process,
    functions: &'a Functions,
    list: Vec<Frame>,
    known: HashMap<Option<FunctionId>, u32>,
}

impl Frames<'_> {
    /// Returns the profile of a tree of calls, or `None` if it has no value.
    fn profile(&mut self, name: String, calls: &Branches<1>) -> Option<Profile> {
        let [measure] = calls.measures;
        let cut = calls.cut(PARTS, SAMPLES);
        let (tree, own) = (&cut.all, cut.own_values());
        let mut profile = Profile {
            measure,
            r#type: "sampled",
            name,
            unit: if measure.is_bytes() { "bytes" } else { "none" },
            start_value: 0,
            end_value: own.iter().fold(0, |sum: u64, value| sum.saturating_add(*value)),
            samples: Vec::new(),
            weights: Vec::new(),
        };
        for (value, index) in own.into_iter().zip(0..).filter(|own| own.0 > 0) {
            profile.samples.push(self.sample(tree, index));
            profile.weights.push(value);
        }
        (profile.end_value > 0).then_some(profile)
    }

    /// Returns the path to a branch, outermost first.
    fn sample(&mut self, tree: &[Branch<1>], index: u32) -> Vec<u32> {
        let mut sample = Vec::new();
        let mut at = &tree[index as usize];
        while let What::Call(frame) = at.what {
            sample.push(self.number(Some(frame)));
            at = &tree[at.parent as usize];
        }
        if sample.is_empty() {
            sample.push(self.number(None));
        }
        sample.reverse();
        sample
    }

    fn number(&mut self, id: Option<FrameId>) -> u32 {
        let function = id.map(|id| self.functions.of_frame(id));
        *self.known.entry(function).or_insert_with(|| {
            let frame = id.map(|id| &self.process.tables.frames[id.0 as usize]);
            let name = id.map_or("(no stack)".into(), |id| self.process.label(id));
            self.list.push(Frame {
                name: elide_middle(&name, NAME),
                file: frame
                    .and_then(|f| f.file.as_deref())
                    .map(|file| printable(file).into_owned()),
                line: frame.and_then(|frame| frame.line),
            });
            (self.list.len() - 1) as u32
        })
    }
}
