//! Writes the profile: extents like those of the recorder, with one stack after the other.

use heaptide_format::{
    ADDRESS_BITS, EXTENT_HEADER, EXTENT_MAGIC, End, ExtentHeader, FileHeader, Kind, Lane, MAGIC,
    Mode, Module, NODE_GRANULE, Node, PAGE, SITE_GRANULE, STRING_GRANULE, Sample, Site,
    StringHeader, VERSION, size_class,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::names::{Function, LONG, NEW};
use crate::{CALLS, DEPTH, PID};
use heaptide_fixtures::{Random, mix};

/// The modules in stacks.
pub(crate) const MODULES: [&str; 2] = ["/opt/app/bin/synthetic", "/opt/app/lib/libstdc++.so.6"];
/// The load address of the first module; the others follow.
const MAPPED: u64 = 0x5500_0000_0000;
/// Distance of the addresses of modules, in bytes.
const MODULE: u64 = 1 << 32;
/// Bytes of code per function.
const CODE: u64 = 0x400;
/// Bytes per extent.
const EXTENT: u64 = 1 << 20;
const LANES: [&str; 4] = ["synthetic", "worker-1", "worker-2", "worker-3"];
/// The average number of frames that a stack does not share with the previous one.
const NEW_FRAMES: u64 = 4;
const SAMPLES: u64 = 64;
const SECOND: u64 = 1_000_000_000;

/// Returns a module's build-id.
pub(crate) fn build_id(module: u32) -> [u8; 1] {
    [0xa0 + module as u8]
}

/// Returns the link-time address of a call in a function.
pub(crate) fn offset(function: u64, call: u64) -> u64 {
    function * CODE + 0x10 * call + 0xf
}

/// Returns the bytes of a profile with `stacks` stacks.
pub(crate) fn make(stacks: u32, functions: &[Function], random: &mut Random) -> Vec<u8> {
    let mut file = File::new();
    file.header.program = file.string(MODULES[0]);
    file.header.command = file.string(&format!("synthetic\0{stacks}\0"));
    file.header.host = file.string("nowhere");
    for (path, index) in MODULES.iter().zip(0..) {
        file.module(path, index);
    }
    let mut lanes = LANES.map(lane);
    for (record, index) in lanes.iter_mut().zip(0..) {
        record.index = index;
    }
    let mut stack: Vec<Frame> = Vec::with_capacity(DEPTH);
    let mut was = None;
    let mut live = 0;
    for number in 0..stacks {
        let lane = (u64::from(number) * LANES.len() as u64 / u64::from(stacks)) as u32;
        if was.replace(lane) != Some(lane) {
            stack.clear();
        }
        let new = random.geometric(NEW_FRAMES, DEPTH as u64 - 1) as usize;
        stack.truncate(DEPTH - new);
        while stack.len() < DEPTH {
            let frame = next_frame(&mut stack, functions, number, lane, random);
            stack.push(file.node(lane, frame));
        }
        let site = site(stack[DEPTH - 1].id, random);
        count(&mut lanes[lane as usize], &site);
        file.header.peak_bytes += site.peak_bytes;
        live += site.usable_bytes - site.freed_bytes;
        file.record(Kind::Sites, lane, SITE_GRANULE, site.as_bytes());
    }
    for record in &lanes {
        file.record(Kind::Lanes, record.index, SITE_GRANULE, record.as_bytes());
    }
    file.timeline(live);
    file.finish()
}

/// A frame of the current stack.
#[derive(Clone, Copy)]
struct Frame {
    /// Its node.
    id: u32,
    /// The seed for the functions that it calls.
    seed: u64,
    /// Number of frames created below it.
    children: u64,
    key: u64,
    parent: u32,
}

/// Returns the next frame inwards, different from the earlier ones below this caller.
fn next_frame(
    stack: &mut [Frame],
    functions: &[Function],
    number: u32,
    lane: u32,
    random: &mut Random,
) -> Frame {
    let innermost = stack.len() + 1 == DEPTH;
    let (parent, seed, child) = match stack.last_mut() {
        Some(caller) => {
            caller.children += 1;
            (caller.id, caller.seed, caller.children - 1)
        }
        None => (0, mix(lane.into()), 0),
    };
    let pool = functions.len() as u64 - 2;
    let function = match child {
        0 if innermost && number == 0 => LONG,
        0 if innermost && random.below(2) == 0 => NEW,
        _ => 2 + (seed + child) % pool,
    };
    let seed = mix(seed ^ mix(function + child));
    let module = u64::from(functions[function as usize].module);
    let address = MAPPED + module * MODULE + offset(function, seed % CALLS) + 1;
    let key = (module + 1) << ADDRESS_BITS | address;
    // Shifted so that adding the number of a child does not overflow.
    Frame { id: 0, seed: seed >> 8, children: 0, key, parent }
}

/// Creates a site with some of many blocks live, and more of them at the peak.
fn site(node: u32, random: &mut Random) -> Site {
    let blocks = random.geometric(3, 12);
    let blocks = blocks << random.below(6);
    let asked = (8 << random.below(10)) + random.below(16);
    let given = asked.next_multiple_of(16) + 8;
    let part = |random: &mut Random, one_in: u64| match random.below(one_in) {
        0 => 1 + random.below(blocks),
        _ => 0,
    };
    let live = part(random, 10);
    let mut site = Site::new_zeroed();
    site.key = node;
    site.epoch = 1;
    site.allocations = blocks;
    site.requested_bytes = blocks * asked;
    site.usable_bytes = blocks * given;
    site.frees = blocks - live;
    site.freed_bytes = site.frees * given;
    site.largest_bytes = asked;
    site.temporary = part(random, 7).min(site.frees);
    site.peak_blocks = live.max(part(random, 4));
    site.peak_bytes = site.peak_blocks * given;
    site.reallocations = part(random, 30);
    site
}

fn lane(name: &str) -> Lane {
    let mut lane = Lane::new_zeroed();
    lane.name[..name.len()].copy_from_slice(name.as_bytes());
    lane.threads = 1;
    lane
}

fn count(lane: &mut Lane, site: &Site) {
    let blocks = site.allocations;
    lane.usable_bytes += site.usable_bytes;
    lane.requested_bytes += site.requested_bytes;
    lane.reallocations += site.reallocations;
    lane.requested_classes[size_class(site.largest_bytes)] += blocks;
    let given = size_class(site.usable_bytes / blocks);
    lane.usable_classes[given] += blocks;
    lane.freed_classes[given] += site.frees;
}

/// A profile under construction.
struct File {
    header: FileHeader,
    bytes: Vec<u8>,
    /// The extents that take more records, by kind and lane: start and header.
    open: Vec<(Kind, u32, usize, ExtentHeader)>,
    extents: u32,
}

impl File {
    fn new() -> File {
        let mut header = FileHeader::new_zeroed();
        header.magic = MAGIC;
        header.version = VERSION;
        header.mode = Mode::Stacks as u32;
        (header.pid, header.ppid, header.epoch) = (PID, 1, 1);
        header.start_realtime_ns = 1_760_000_000 * SECOND;
        header.max_depth = 512;
        header.peak_time_ns = 40 * SECOND;
        header.end_time_ns = 60 * SECOND;
        header.end_kind = End::Exited as u32;
        header.lanes_at_once = LANES.len() as u32;
        File { header, bytes: vec![0; PAGE as usize], open: Vec::new(), extents: 0 }
    }

    fn string(&mut self, text: &str) -> u32 {
        let head = StringHeader { length: text.len() as u32, reserved: 0 };
        let mut record = head.as_bytes().to_vec();
        record.extend_from_slice(text.as_bytes());
        record.resize(record.len().next_multiple_of(STRING_GRANULE as usize), 0);
        self.record(Kind::Strings, 0, STRING_GRANULE, &record)
    }

    fn module(&mut self, path: &str, index: u32) {
        let mut module = Module::new_zeroed();
        module.start = MAPPED + u64::from(index) * MODULE;
        module.end = module.start + MODULE;
        module.bias = module.start;
        module.path = self.string(path);
        module.index = index + 1;
        let id = build_id(index);
        module.build_id_length = id.len() as u32;
        module.build_id[..id.len()].copy_from_slice(&id);
        self.record(Kind::Modules, 0, SITE_GRANULE, module.as_bytes());
    }

    fn node(&mut self, lane: u32, frame: Frame) -> Frame {
        let mut node = Node::new_zeroed();
        (node.key, node.parent) = (frame.key, frame.parent);
        let id = self.record(Kind::Nodes, lane, NODE_GRANULE, node.as_bytes());
        Frame { id, ..frame }
    }

    /// Writes samples that rise to the peak and fall to the final live bytes.
    fn timeline(&mut self, live: u64) {
        let (peak, end, top) =
            (self.header.peak_bytes, self.header.end_time_ns, self.header.peak_time_ns);
        for number in 1..=SAMPLES {
            let mut sample = Sample::new_zeroed();
            sample.time_ns = end * number / SAMPLES;
            let late = sample.time_ns.saturating_sub(top) as f64 / (end - top) as f64;
            let early = sample.time_ns.min(top) as f64 / top as f64;
            let fallen = (peak - live.min(peak)) as f64 * late;
            sample.live_bytes = (peak as f64 * early - fallen) as u64;
            sample.peak_bytes = (peak as f64 * early) as u64;
            self.record(Kind::Timeline, 0, SITE_GRANULE, sample.as_bytes());
        }
    }

    /// Appends a record to the extent of its kind and lane, and returns its id.
    fn record(&mut self, kind: Kind, lane: u32, granule: u64, record: &[u8]) -> u32 {
        let needed = record.len() as u64;
        let found = self.open.iter().position(|open| (open.0, open.1) == (kind, lane));
        let index = found.unwrap_or_else(|| {
            self.open.push((kind, lane, 0, ExtentHeader::new_zeroed()));
            self.open.len() - 1
        });
        let (_, _, at, head) = self.open[index];
        if EXTENT_HEADER + head.committed + needed > head.length {
            self.close(at, &head);
            let at = self.bytes.len();
            self.bytes.resize(at + EXTENT as usize, 0);
            let sequence = self.extents;
            self.extents += 1;
            let head = ExtentHeader {
                magic: EXTENT_MAGIC,
                kind: kind as u16,
                reserved: 0,
                lane,
                sequence,
                length: EXTENT,
                committed: 0,
                pad: [0; 4],
            };
            self.open[index] = (kind, lane, at, head);
        }
        let (_, _, at, head) = &mut self.open[index];
        let offset = *at + (EXTENT_HEADER + head.committed) as usize;
        self.bytes[offset..offset + record.len()].copy_from_slice(record);
        head.committed += needed;
        (offset as u64 / granule) as u32
    }

    fn close(&mut self, at: usize, head: &ExtentHeader) {
        if head.length > 0 {
            self.bytes[at..at + EXTENT_HEADER as usize].copy_from_slice(head.as_bytes());
        }
    }

    fn finish(mut self) -> Vec<u8> {
        for (_, _, at, head) in std::mem::take(&mut self.open) {
            self.close(at, &head);
        }
        self.header.file_end = self.bytes.len() as u64;
        self.bytes[..size_of::<FileHeader>()].copy_from_slice(self.header.as_bytes());
        self.bytes
    }
}
