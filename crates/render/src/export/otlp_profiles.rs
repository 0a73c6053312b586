//! Profiles of OTLP, as defined in version 1.11, `profiles/v1development` (alpha).
//!
//! A profile has one column, so each process has four profiles, which share one dictionary of
//! stacks. Live values refer to one time, allocations to the interval since the previous profiles.
//! The format has no blocks and bytes at peak.

use heaptide_analysis::attribution::Owners;
use heaptide_analysis::model::{FrameId, Measure, Measures, Process, ScopeId, Site, Sum};
use rustc_hash::FxHashMap;

use crate::export::locations::Locations;
use crate::export::otlp::{self, Resource, Value};
use crate::export::protobuf::Message;
use crate::shared::hex::hex;
use crate::shared::names::printable;
use crate::shared::scope_path::scope_path;

/// The columns, named as in Go's heap profiles, and whether each covers an interval.
const COLUMNS: [(&str, Measure, bool); 4] = [
    ("alloc_objects", Measure::Allocations, true),
    ("alloc_space", Measure::UsableBytes, true),
    ("inuse_objects", Measure::LiveBlocks, false),
    ("inuse_space", Measure::LiveBytes, false),
];

/// Fields of the dictionary.
mod dictionary {
    pub const MAPPINGS: u32 = 1;
    pub const LOCATIONS: u32 = 2;
    pub const FUNCTIONS: u32 = 3;
    pub const LINKS: u32 = 4;
    pub const STRINGS: u32 = 5;
    pub const ATTRIBUTES: u32 = 6;
    pub const STACKS: u32 = 7;
}

/// The interval of the profiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Start of the interval for allocations, in nanoseconds since 1970-01-01 UTC.
    pub from_ns: u64,
    /// End of the interval, and time of the live values.
    pub to_ns: u64,
}

/// A table of the dictionary: its messages and their number.
#[derive(Default)]
struct Table {
    messages: Message,
    count: u64,
}

impl Table {
    /// Returns a table with the required zero element.
    fn new(field: u32) -> Table {
        let mut table = Table::default();
        table.add(field, &Message::new());
        table
    }

    /// Adds an element, and returns its index.
    fn add(&mut self, field: u32, message: &Message) -> u64 {
        self.messages.message(field, message);
        self.count += 1;
        self.count - 1
    }
}

/// Profiles under construction.
pub struct Profiles {
    version: &'static str,
    resources: Message,
    strings: Table,
    known_strings: FxHashMap<String, u64>,
    attributes: Table,
    known_attributes: FxHashMap<(u64, String), u64>,
    mappings: Table,
    functions: Table,
    locations: Table,
    stacks: Table,
}

/// The identity of a sample: its stack and attributes.
type Identity = (u64, Vec<u64>);

impl Profiles {
    /// Returns an empty set of profiles; `version` is the version of the command.
    pub fn new(version: &'static str) -> Profiles {
        let mut strings = Table::default();
        strings.messages.bytes(dictionary::STRINGS, b"");
        strings.count = 1;
        Profiles {
            version,
            resources: Message::new(),
            strings,
            known_strings: FxHashMap::from_iter([(String::new(), 0)]),
            attributes: Table::new(dictionary::ATTRIBUTES),
            known_attributes: FxHashMap::default(),
            mappings: Table::new(dictionary::MAPPINGS),
            functions: Table::new(dictionary::FUNCTIONS),
            locations: Table::new(dictionary::LOCATIONS),
            stacks: Table::new(dictionary::STACKS),
        }
    }

    /// Adds the profiles of a process. `allocated` holds what each row of its sites allocated in
    /// the interval.
    pub fn add(
        &mut self,
        process: &Process,
        allocated: &[Measures],
        resource: &Resource,
        span: Span,
    ) {
        let samples = self.samples(process, allocated);
        let mut of_scope = Message::new();
        of_scope.message(1, &otlp::scope(self.version));
        for (column, (name, measure, is_of_span)) in COLUMNS.iter().enumerate() {
            let unit = if measure.is_bytes() { "By" } else { "{object}" };
            let mut kind = Message::new();
            kind.number(1, self.string(name)).number(2, self.string(unit));
            let mut profile = Message::new();
            profile.message(1, &kind);
            for ((stack, attributes), values) in &samples {
                if values[column] != 0 {
                    let mut sample = Message::new();
                    sample.number(1, *stack).numbers(2, attributes).numbers(4, &[values[column]]);
                    profile.message(2, &sample);
                }
            }
            let from_ns = if *is_of_span { span.from_ns } else { span.to_ns };
            profile.fixed(3, from_ns).number(4, span.to_ns.saturating_sub(from_ns));
            of_scope.message(2, &profile);
        }
        let mut of_resource = Message::new();
        of_resource.message(1, &resource.message()).message(2, &of_scope);
        self.resources.message(1, &of_resource);
    }

    /// Returns an `ExportProfilesServiceRequest`.
    pub fn finish(self) -> Vec<u8> {
        let mut links = Message::new();
        let mut link = Message::new();
        link.bytes(1, &[0; 16]).bytes(2, &[0; 8]);
        links.message(dictionary::LINKS, &link);
        let tables = [
            self.mappings.messages,
            self.locations.messages,
            self.functions.messages,
            links,
            self.strings.messages,
            self.attributes.messages,
            self.stacks.messages,
        ];
        let dictionary: Vec<u8> = tables.into_iter().flat_map(Message::finished).collect();
        let mut request = self.resources;
        request.bytes(2, &dictionary);
        request.finished()
    }

    /// Returns the samples of a process, each with its values by column, in order of stacks.
    fn samples(
        &mut self,
        process: &Process,
        allocated: &[Measures],
    ) -> Vec<(Identity, [u64; COLUMNS.len()])> {
        let locations = Locations::of(process);
        let first = self.write_locations(process, &locations);
        let owners = Owners::of(process);
        let mut stacks: FxHashMap<u32, u64> = FxHashMap::default();
        let mut samples: FxHashMap<Identity, [u64; COLUMNS.len()]> = FxHashMap::default();
        for (row, site) in process.tables.sites.iter().enumerate() {
            let now = Sum::over([site]);
            let values = COLUMNS.map(|(_, measure, is_of_span)| {
                measure.of(if is_of_span { &allocated[row] } else { &now })
            });
            if values == [0; COLUMNS.len()] {
                continue;
            }
            let stack = *stacks.entry(site.stack.0).or_insert_with(|| {
                let stack = locations.stack(site.stack.0);
                if stack.is_empty() {
                    return 0; // the zero element
                }
                let stack: Vec<u64> = stack.into_iter().map(|id| first + id).collect();
                let mut message = Message::new();
                message.numbers(1, &stack);
                self.stacks.add(dictionary::STACKS, &message)
            });
            let attributes = self.attributes_of(process, site, &owners);
            let sums = samples.entry((stack, attributes)).or_default();
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.saturating_add(value));
        }
        let mut samples: Vec<_> = samples.into_iter().collect();
        samples.sort_unstable();
        samples
    }

    fn attributes_of(&mut self, process: &Process, site: &Site, owners: &Owners) -> Vec<u64> {
        let mut attributes = Vec::new();
        if let Some(lane) = process.tables.lanes.get(site.lane.0 as usize) {
            attributes.push(self.attribute("thread.name", &lane.name));
        }
        if site.scope != ScopeId(0) {
            let path = scope_path(process, site.scope, usize::MAX);
            attributes.push(self.attribute("heaptide.scope", &path));
        }
        if let Some(label) = site.label {
            let label = &process.tables.labels[label.0 as usize].name;
            attributes.push(self.attribute("heaptide.label", label));
        }
        if let Some(frame) = owners.frame(process, site.stack) {
            attributes.push(self.attribute("heaptide.owner", &process.label(frame)));
        }
        attributes
    }

    fn attribute(&mut self, key: &str, text: &str) -> u64 {
        let (key, text) = (self.string(key), printable(text));
        if let Some(&known) = self.known_attributes.get(&(key, text.clone().into_owned())) {
            return known;
        }
        let mut attribute = Message::new();
        attribute.number(1, key).message(2, &otlp::any(&Value::from(&*text)));
        let index = self.attributes.add(dictionary::ATTRIBUTES, &attribute);
        self.known_attributes.insert((key, text.into_owned()), index);
        index
    }

    fn string(&mut self, text: &str) -> u64 {
        let text = printable(text);
        if let Some(&known) = self.known_strings.get(&*text) {
            return known;
        }
        let index = self.strings.count;
        self.strings.messages.bytes(dictionary::STRINGS, text.as_bytes());
        self.strings.count += 1;
        self.known_strings.insert(text.into_owned(), index);
        index
    }

    /// Writes mappings, functions and locations. Returns the id before that of the first location.
    fn write_locations(&mut self, process: &Process, locations: &Locations) -> u64 {
        let mut mappings = Vec::new();
        for module in &process.tables.modules {
            let mut mapping = Message::new();
            mapping.number(1, module.start).number(2, module.end);
            mapping.number(4, self.string(&module.path));
            if !module.build_id.is_empty() {
                let key = "process.executable.build_id.gnu";
                let build_id = self.attribute(key, &hex(&module.build_id));
                mapping.numbers(5, &[build_id]);
            }
            mappings.push(self.mappings.add(dictionary::MAPPINGS, &mapping));
        }
        let functions = self.write_functions(process);
        let before = self.locations.count - 1;
        for id in 1..=locations.count() {
            let mut location = Message::new();
            for (index, frame) in locations.frames(id).enumerate() {
                let of = &process.tables.frames[frame.0 as usize];
                if let Some(module) = of.module.filter(|_| index == 0) {
                    let bias = process.tables.modules[module.0 as usize].bias;
                    location.number(1, mappings[module.0 as usize]);
                    location.number(2, bias.wrapping_add(of.offset));
                }
                let mut line = Message::new();
                line.number(1, functions[frame.0 as usize]);
                line.number(2, u64::from(of.line.unwrap_or(0)));
                location.message(3, &line);
            }
            self.locations.add(dictionary::LOCATIONS, &location);
        }
        before
    }

    /// Writes functions. Returns the function of each frame.
    fn write_functions(&mut self, process: &Process) -> Vec<u64> {
        let mut known: FxHashMap<(u64, u64), u64> = FxHashMap::default();
        let mut of_frame = Vec::with_capacity(process.tables.frames.len());
        for (frame, index) in process.tables.frames.iter().zip(0..) {
            let name = self.string(&process.label(FrameId(index)));
            let file = self.string(frame.file.as_deref().unwrap_or(""));
            let id = *known.entry((name, file)).or_insert_with(|| {
                let mut function = Message::new();
                function.number(1, name).number(3, file);
                self.functions.add(dictionary::FUNCTIONS, &function)
            });
            of_frame.push(id);
        }
        of_frame
    }
}
