//! pprof's format, for `go tool pprof`, Parca and Pyroscope: profile.proto in gzip, streamed.
//!
//! Fields are numbered as in github.com/google/pprof/blob/main/proto/profile.proto.

use std::borrow::Cow;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use heaptide_analysis::attribution::Owners;
use heaptide_analysis::model::{FrameId, Measure, Process, ScopeId, Site, StackNode, Sum};
use rustc_hash::FxHashMap;

use crate::export::protobuf::Message;
use crate::shared::command_line::command_line;
use crate::shared::heading::counts_say;
use crate::shared::hex::hex;
use crate::shared::names::printable;
use crate::shared::scope_path::scope_path;

/// The columns, as Go's heap profiles call theirs.
const COLUMNS: [(&str, Measure); 6] = [
    ("alloc_objects", Measure::Allocations),
    ("alloc_space", Measure::UsableBytes),
    ("inuse_objects", Measure::LiveBlocks),
    ("inuse_space", Measure::LiveBytes),
    ("peak_objects", Measure::AtPeakBlocks),
    ("peak_space", Measure::AtPeakBytes),
];

/// Functions in one location, at most: each is written with all that it is inlined into.
const NESTED_MAX: u32 = 64;

/// Fields of the outermost message.
mod profile {
    pub const SAMPLE_TYPE: u32 = 1;
    pub const SAMPLE: u32 = 2;
    pub const MAPPING: u32 = 3;
    pub const LOCATION: u32 = 4;
    pub const FUNCTION: u32 = 5;
    pub const STRING_TABLE: u32 = 6;
    pub const TIME_NANOS: u32 = 9;
    pub const DURATION_NANOS: u32 = 10;
    pub const PERIOD_TYPE: u32 = 11;
    pub const PERIOD: u32 = 12;
    pub const COMMENT: u32 = 13;
    pub const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

/// Writes the profile of a process. The six columns of `COLUMNS` are always there; a measure that
/// is none of them is one more, and the one that is shown first.
///
/// Errors: those of `out`.
pub fn write(out: &mut dyn Write, process: &Process, measure: Measure) -> io::Result<()> {
    let gzip = GzEncoder::new(out, Compression::default());
    let strings = FxHashMap::default();
    let mut writer = Writer { out: gzip, strings, process, columns: COLUMNS.to_vec() };
    // The first string is the empty one.
    writer.string("")?;
    writer.columns(measure.of_sites())?;
    writer.head()?;
    writer.mappings()?;
    let calls = writer.locations()?;
    let owners = Owners::of(process);
    for site in &process.tables.sites {
        writer.sample(site, &calls, &owners)?;
    }
    writer.out.finish()?;
    Ok(())
}

struct Writer<'a, W: Write> {
    out: GzEncoder<W>,
    strings: FxHashMap<Cow<'a, str>, u64>,
    process: &'a Process,
    columns: Vec<(&'static str, Measure)>,
}

/// Of a stack node, its location and the node that called it.
#[derive(Clone, Copy, Default)]
struct Call {
    location: u64,
    caller: u32,
}

/// A location, which is of frames at one address, inlined into each other.
#[derive(PartialEq, Eq, Hash, Clone, Copy)]
struct Location {
    innermost: FrameId,
    /// The location of the other frames; 0 if there are none.
    around: u64,
    /// How many the others are.
    depth: u32,
}

impl<'a, W: Write> Writer<'a, W> {
    fn field(&mut self, field: u32, message: &Message) -> io::Result<()> {
        self.out.write_all(&message.as_field(field))
    }

    /// The number of a text, which is written when it is first needed.
    fn string(&mut self, text: impl Into<Cow<'a, str>>) -> io::Result<u64> {
        let text = text.into();
        let shown = match printable(&text) {
            Cow::Owned(shown) => Some(shown),
            Cow::Borrowed(_) => None,
        };
        let text = shown.map_or(text, Cow::Owned);
        if let Some(&known) = self.strings.get(&text) {
            return Ok(known);
        }
        let number = self.strings.len() as u64;
        let mut around = Message::new();
        around.bytes(profile::STRING_TABLE, text.as_bytes());
        self.out.write_all(&around.finished())?;
        self.strings.insert(text, number);
        Ok(number)
    }

    /// What is counted, and what of it is to be shown first.
    fn columns(&mut self, first: Measure) -> io::Result<()> {
        if self.columns.iter().all(|column| column.1 != first) {
            self.columns.push((first.name(), first));
        }
        for (name, measure) in self.columns.clone() {
            let unit = if measure.is_bytes() { "bytes" } else { "count" };
            let column = self.value_type(name, unit)?;
            self.field(profile::SAMPLE_TYPE, &column)?;
            if measure == first {
                let mut shown = Message::new();
                shown.number(profile::DEFAULT_SAMPLE_TYPE, self.string(name)?);
                self.out.write_all(&shown.finished())?;
            }
        }
        Ok(())
    }

    fn value_type(&mut self, name: &'static str, unit: &'static str) -> io::Result<Message> {
        let mut of = Message::new();
        of.number(1, self.string(name)?).number(2, self.string(unit)?);
        Ok(of)
    }

    /// When, of what, and that every byte is counted, or how often one is sampled.
    fn head(&mut self) -> io::Result<()> {
        let process = self.process;
        let mut comments = vec![
            format!("command: {}", command_line(process, usize::MAX)),
            format!("host: {}", process.identity.host),
            process.who(),
        ];
        comments.extend(counts_say(process));
        comments.extend(process.completeness.notes.iter().cloned());
        let period = self.value_type("space", "bytes")?;
        let mut head = Message::new();
        for comment in comments {
            head.number(profile::COMMENT, self.string(comment)?);
        }
        head.number(profile::TIME_NANOS, process.lifetime.start_realtime_ns)
            .number(profile::DURATION_NANOS, process.lifetime.duration_ns)
            .message(profile::PERIOD_TYPE, &period)
            .number(profile::PERIOD, process.sampling.map_or(1, |sampling| sampling.mean_bytes));
        self.out.write_all(&head.finished())
    }

    /// The files; the first is taken for the program, so it is that.
    fn mappings(&mut self) -> io::Result<()> {
        let process = self.process;
        let mut modules: Vec<_> = process.tables.modules.iter().zip(1u64..).collect();
        modules.sort_by_key(|(module, _)| module.path != process.identity.program);
        for (module, id) in modules {
            let mut mapping = Message::new();
            mapping
                .number(1, id)
                .number(2, module.start)
                .number(3, module.end)
                .number(5, self.string(&module.path)?)
                .number(6, self.string(hex(&module.build_id))?);
            // Names, files, lines and inlined functions: what is not there nobody else finds.
            (7..=10).for_each(|field| {
                mapping.number(field, true);
            });
            self.field(profile::MAPPING, &mapping)?;
        }
        Ok(())
    }

    /// Writes functions and locations; of each stack node, where it is.
    fn locations(&mut self) -> io::Result<Vec<Call>> {
        let process = self.process;
        let functions = self.functions()?;
        let mut ids: FxHashMap<Location, u64> = FxHashMap::default();
        // By id, from 1.
        let mut known: Vec<Location> = Vec::new();
        let mut calls = vec![Call::default()];
        for node in process.tables.stacks.iter().skip(1) {
            let parent = node.parent.0;
            let mut call = Call { location: 0, caller: parent };
            let mut location = Location { innermost: node.frame, around: 0, depth: 0 };
            if is_inside(process, node) {
                let outer = calls[parent as usize];
                let depth = known[outer.location as usize - 1].depth + 1;
                if depth < NESTED_MAX {
                    call.caller = outer.caller;
                    location = Location { around: outer.location, depth, ..location };
                }
            }
            call.location = *ids.entry(location).or_insert(known.len() as u64 + 1);
            if call.location > known.len() as u64 {
                known.push(location);
                let message = self.location(call.location, &known, &functions);
                self.field(profile::LOCATION, &message)?;
            }
            calls.push(call);
        }
        Ok(calls)
    }

    fn location(&self, id: u64, known: &[Location], functions: &[u64]) -> Message {
        let process = self.process;
        let frame = |location: &Location| &process.tables.frames[location.innermost.0 as usize];
        let innermost = frame(&known[id as usize - 1]);
        let module = innermost.module.map_or(0, |module| u64::from(module.0) + 1);
        let bias =
            innermost.module.map_or(0, |module| process.tables.modules[module.0 as usize].bias);
        let mut message = Message::new();
        message.number(1, id).number(2, module).number(3, bias.wrapping_add(innermost.offset));
        let mut at = id;
        while let Some(location) = at.checked_sub(1).map(|index| &known[index as usize]) {
            let mut line = Message::new();
            line.number(1, functions[location.innermost.0 as usize]);
            line.number(2, u64::from(frame(location).line.unwrap_or(0)));
            message.message(4, &line);
            at = location.around;
        }
        message
    }

    /// Writes the functions; of each frame, its function.
    fn functions(&mut self) -> io::Result<Vec<u64>> {
        let process = self.process;
        let mut ids = FxHashMap::default();
        let mut of_frame = Vec::with_capacity(process.tables.frames.len());
        for (frame, index) in process.tables.frames.iter().zip(0..) {
            let name = self.string(process.label(FrameId(index)))?;
            let file = self.string(frame.file.as_deref().unwrap_or(""))?;
            let count = ids.len() as u64;
            let id = *ids.entry((name, file)).or_insert(count + 1);
            if id > count {
                let mut function = Message::new();
                function.number(1, id).number(2, name).number(3, name).number(4, file);
                self.field(profile::FUNCTION, &function)?;
            }
            of_frame.push(id);
        }
        Ok(of_frame)
    }

    fn sample(&mut self, site: &Site, calls: &[Call], owners: &Owners) -> io::Result<()> {
        let measures = Sum::over([site]);
        let values: Vec<u64> = self.columns.iter().map(|column| column.1.of(&measures)).collect();
        if values.iter().all(|&value| value == 0) {
            return Ok(());
        }
        let mut stack = Vec::new();
        let mut at = site.stack.0;
        while at != 0 {
            let Call { location, caller } = calls[at as usize];
            stack.push(location);
            at = caller;
        }
        let mut sample = Message::new();
        sample.numbers(1, &stack).numbers(2, &values);
        for label in self.labels(site, owners)? {
            sample.message(3, &label);
        }
        self.field(profile::SAMPLE, &sample)
    }

    fn labels(&mut self, site: &Site, owners: &Owners) -> io::Result<Vec<Message>> {
        let process = self.process;
        let scope = (site.scope != ScopeId(0))
            .then(|| Cow::Owned(scope_path(process, site.scope, usize::MAX)));
        let label = site.label.map(|id| Cow::Borrowed(&*process.tables.labels[id.0 as usize].name));
        let lane = process.tables.lanes.get(site.lane.0 as usize);
        let lane = lane.map(|lane| Cow::Borrowed(&*lane.name));
        let owner = owners.frame(process, site.stack).map(|frame| process.label(frame));
        let texts = [("scope", scope), ("label", label), ("lane", lane), ("owner", owner)];
        let mut labels = Vec::new();
        for (key, value) in texts {
            if let Some(value) = value {
                let mut label = Message::new();
                label.number(1, self.string(key)?).number(2, self.string(value)?);
                labels.push(label);
            }
        }
        if let Some(call) = site.call {
            let mut label = Message::new();
            label.number(1, self.string("call")?).number(2, self.string(call.name())?);
            labels.push(label);
        }
        if let Some(size) = site.size {
            let mut label = Message::new();
            let (key, unit) = (self.string("bytes")?, self.string("bytes")?);
            label.number(1, key).number(3, size).number(4, unit);
            labels.push(label);
        }
        Ok(labels)
    }
}

/// Whether a node's frame was inlined into its caller's: they are at one address.
fn is_inside(process: &Process, node: &StackNode) -> bool {
    let frame = &process.tables.frames[node.frame.0 as usize];
    let around = process.tables.stacks[node.parent.0 as usize].frame;
    let Some(around) = process.tables.frames.get(around.0 as usize).filter(|_| node.parent.0 != 0)
    else {
        return false;
    };
    frame.inlined && (frame.module, frame.offset) == (around.module, around.offset)
}
