//! Export in pprof's format, for `go tool pprof`, Parca and Pyroscope: profile.proto in gzip,
//! streamed.
//!
//! Fields are numbered as in github.com/google/pprof/blob/main/proto/profile.proto.

use std::borrow::Cow;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use heaptide_analysis::attribution::Owners;
use heaptide_analysis::model::{
    Frame, FrameId, Lifetime, Measure, Measures, Process, ScopeId, Site, Sum,
};
use rustc_hash::FxHashMap;

use crate::export::locations::Locations;
use crate::export::protobuf::Message;
use crate::shared::command_line::command_line;
use crate::shared::heading::counts_say;
use crate::shared::hex::hex;
use crate::shared::names::printable;
use crate::shared::scope_path::scope_path;

/// The columns, named as in Go's heap profiles.
const COLUMNS: [(&str, Measure); 6] = [
    ("alloc_objects", Measure::Allocations),
    ("alloc_space", Measure::UsableBytes),
    ("inuse_objects", Measure::LiveBlocks),
    ("inuse_space", Measure::LiveBytes),
    ("peak_objects", Measure::AtPeakBlocks),
    ("peak_space", Measure::AtPeakBytes),
];

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

/// Writes the profile of a process. The six columns of `COLUMNS` are always present. Another metric
/// becomes an additional column. The column of `measure` is displayed first.
///
/// Errors: those of `out`.
pub fn write(out: &mut dyn Write, process: &Process, measure: Measure) -> io::Result<()> {
    let Lifetime { start_realtime_ns, duration_ns, .. } = process.lifetime;
    let period_bytes = process.sampling.map_or(1, |sampling| sampling.mean_bytes);
    let time = Time { time_ns: start_realtime_ns, duration_ns, period_bytes };
    let mut writer = Writer::new(out, Columns::All, measure, time)?;
    writer.add(process, None, None)?;
    writer.finish()
}

/// Selection of columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Columns {
    /// Allocations, live values, and values at the peak.
    All,
    /// Columns whose difference between two times is meaningful; excludes the peak.
    Differences,
}

/// The time of a profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Time {
    /// Nanoseconds since 1970-01-01 UTC.
    pub time_ns: u64,
    /// Covered duration in nanoseconds.
    pub duration_ns: u64,
    /// Average number of bytes per sampled block; 1 if all blocks are recorded.
    pub period_bytes: u64,
}

/// Writes the profiles of several processes, each with its own tables.
pub struct Writer<W: Write> {
    out: GzEncoder<W>,
    strings: FxHashMap<String, u64>,
    columns: Vec<(&'static str, Measure)>,
    /// Last assigned ids.
    mappings: u64,
    locations: u64,
    functions: u64,
}

/// The data of a process for its samples.
struct Part<'a> {
    process: &'a Process,
    owners: Owners,
    locations: Locations,
    /// Id before that of the first location.
    first: u64,
    /// Values to subtract, by row.
    before: Option<&'a [Measures]>,
    /// The value of the label `pid`, if samples have it.
    pid: Option<u32>,
}

impl<W: Write> Writer<W> {
    /// Begins a profile in which the column of `measure` is displayed first.
    ///
    /// Errors: those of `out`.
    pub fn new(out: W, columns: Columns, measure: Measure, time: Time) -> io::Result<Writer<W>> {
        let is_wanted = |column: &&(&str, Measure)| match columns {
            Columns::All => true,
            Columns::Differences => {
                !matches!(column.1, Measure::AtPeakBlocks | Measure::AtPeakBytes)
            }
        };
        let mut writer = Writer {
            out: GzEncoder::new(out, Compression::default()),
            strings: FxHashMap::default(),
            columns: COLUMNS.iter().filter(is_wanted).copied().collect(),
            mappings: 0,
            locations: 0,
            functions: 0,
        };
        // The format requires that string 0 is empty.
        writer.string("")?;
        writer.columns(measure.of_sites())?;
        writer.head(time)?;
        Ok(writer)
    }

    /// Adds a process. `before` holds the values to subtract from each row of its sites. Samples
    /// get the label `pid` if it is given.
    ///
    /// Errors: those of `out`.
    pub fn add(
        &mut self,
        process: &Process,
        before: Option<&[Measures]>,
        pid: Option<u32>,
    ) -> io::Result<()> {
        self.comments(process)?;
        let mappings = self.write_mappings(process)?;
        let (locations, first) = (Locations::of(process), self.locations);
        self.write_locations(process, &locations, mappings)?;
        let part = Part { process, owners: Owners::of(process), locations, first, before, pid };
        for row in 0..process.tables.sites.len() {
            self.sample(&part, row)?;
        }
        Ok(())
    }

    /// Ends the profile.
    ///
    /// Errors: those of `out`.
    pub fn finish(self) -> io::Result<()> {
        self.out.finish().map(drop)
    }

    fn field(&mut self, field: u32, message: &Message) -> io::Result<()> {
        self.out.write_all(&message.as_field(field))
    }

    /// Returns the index of a string, which is written on first use.
    fn string<'a>(&mut self, text: impl Into<Cow<'a, str>>) -> io::Result<u64> {
        let text = text.into();
        let text = printable(&text);
        if let Some(&known) = self.strings.get(&*text) {
            return Ok(known);
        }
        let number = self.strings.len() as u64;
        let mut around = Message::new();
        around.bytes(profile::STRING_TABLE, text.as_bytes());
        self.out.write_all(&around.finished())?;
        self.strings.insert(text.into_owned(), number);
        Ok(number)
    }

    /// Writes the columns, and which of them is displayed first.
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

    /// Writes the time, and the bytes that a sampled block represents.
    fn head(&mut self, time: Time) -> io::Result<()> {
        let period = self.value_type("space", "bytes")?;
        let mut head = Message::new();
        head.number(profile::TIME_NANOS, time.time_ns)
            .number(profile::DURATION_NANOS, time.duration_ns)
            .message(profile::PERIOD_TYPE, &period)
            .number(profile::PERIOD, time.period_bytes);
        self.out.write_all(&head.finished())
    }

    /// Writes comments that describe a process.
    fn comments(&mut self, process: &Process) -> io::Result<()> {
        let mut comments = vec![
            format!("command: {}", command_line(process, usize::MAX)),
            format!("host: {}", process.identity.host),
            process.who(),
        ];
        comments.extend(counts_say(process));
        comments.extend(process.completeness.notes.iter().cloned());
        let mut all = Message::new();
        for comment in comments {
            all.number(profile::COMMENT, self.string(comment)?);
        }
        self.out.write_all(&all.finished())
    }

    /// Writes the mappings. Returns the id before that of the first mapping. Readers treat the
    /// first mapping as the program, so the program is written first.
    fn write_mappings(&mut self, process: &Process) -> io::Result<u64> {
        let before = self.mappings;
        let mut modules: Vec<_> = process.tables.modules.iter().zip(before + 1..).collect();
        self.mappings += modules.len() as u64;
        modules.sort_by_key(|(module, _)| module.path != process.identity.program);
        for (module, id) in modules {
            let mut mapping = Message::new();
            mapping
                .number(1, id)
                .number(2, module.start)
                .number(3, module.end)
                .number(5, self.string(&module.path)?)
                .number(6, self.string(hex(&module.build_id))?);
            // Names, files, lines and inlined functions: readers need not symbolize the mapping
            // again.
            (7..=10).for_each(|field| {
                mapping.number(field, true);
            });
            self.field(profile::MAPPING, &mapping)?;
        }
        Ok(before)
    }

    /// Writes functions and locations; `mappings` is the id before that of the process's first
    /// mapping.
    fn write_locations(
        &mut self,
        process: &Process,
        locations: &Locations,
        mappings: u64,
    ) -> io::Result<()> {
        let functions = self.write_functions(process)?;
        let before = self.locations;
        for id in 1..=locations.count() {
            let mut message = Message::new();
            message.number(1, before + id);
            for (index, frame) in locations.frames(id).enumerate() {
                let of = &process.tables.frames[frame.0 as usize];
                if index == 0 {
                    let module = of.module.map_or(0, |module| mappings + u64::from(module.0) + 1);
                    message.number(2, module).number(3, address(process, of));
                }
                let mut line = Message::new();
                line.number(1, functions[frame.0 as usize]);
                line.number(2, u64::from(of.line.unwrap_or(0)));
                message.message(4, &line);
            }
            self.field(profile::LOCATION, &message)?;
        }
        self.locations += locations.count();
        Ok(())
    }

    /// Writes the functions. Returns the function of each frame.
    fn write_functions(&mut self, process: &Process) -> io::Result<Vec<u64>> {
        let before = self.functions;
        let mut ids = FxHashMap::default();
        let mut of_frame = Vec::with_capacity(process.tables.frames.len());
        for (frame, index) in process.tables.frames.iter().zip(0..) {
            let name = self.string(process.label(FrameId(index)))?;
            let file = self.string(frame.file.as_deref().unwrap_or(""))?;
            let count = ids.len() as u64;
            let id = *ids.entry((name, file)).or_insert(before + count + 1);
            if id > before + count {
                let mut function = Message::new();
                function.number(1, id).number(2, name).number(3, name).number(4, file);
                self.field(profile::FUNCTION, &function)?;
            }
            of_frame.push(id);
        }
        self.functions += ids.len() as u64;
        Ok(of_frame)
    }

    fn sample(&mut self, part: &Part, row: usize) -> io::Result<()> {
        let site = &part.process.tables.sites[row];
        let measures = Sum::over([site]);
        let before = part.before.map_or(Measures::default(), |before| before[row]);
        // The numbers of the format are signed.
        let value =
            |&(_, measure): &(_, Measure)| measure.of(&measures).wrapping_sub(measure.of(&before));
        let values: Vec<u64> = self.columns.iter().map(value).collect();
        if values.iter().all(|&value| value == 0) {
            return Ok(());
        }
        let mut stack = part.locations.stack(site.stack.0);
        stack.iter_mut().for_each(|location| *location += part.first);
        let mut sample = Message::new();
        sample.numbers(1, &stack).numbers(2, &values);
        for label in self.labels(site, part)? {
            sample.message(3, &label);
        }
        self.field(profile::SAMPLE, &sample)
    }

    fn labels(&mut self, site: &Site, part: &Part) -> io::Result<Vec<Message>> {
        let Part { process, owners, .. } = part;
        let scope = (site.scope != ScopeId(0))
            .then(|| Cow::Owned(scope_path(process, site.scope, usize::MAX)));
        let label = site.label.map(|id| Cow::Borrowed(&*process.tables.labels[id.0 as usize].name));
        let lane = process.tables.lanes.get(site.lane.0 as usize);
        let lane = lane.map(|lane| Cow::Borrowed(&*lane.name));
        let owner = owners.frame(process, site.stack).map(|frame| process.label(frame));
        let pid = part.pid.map(|pid| Cow::Owned(pid.to_string()));
        let texts =
            [("scope", scope), ("label", label), ("lane", lane), ("owner", owner), ("pid", pid)];
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

/// Returns the address of a frame in the process.
fn address(process: &Process, frame: &Frame) -> u64 {
    let module = frame.module.map(|module| &process.tables.modules[module.0 as usize]);
    module.map_or(0, |module| module.bias).wrapping_add(frame.offset)
}
