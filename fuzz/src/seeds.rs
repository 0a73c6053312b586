//! The inputs of corpora that are of the current formats: written by code, so that they can be
//! written again when a format changes.

use std::io;
use std::{fs, iter};

use heaptide_fixtures::{ProfileBuilder, ProgramBuilder, site};
use heaptide_format::{EXTENT_HEADER, Mark, Mode, PAGE, SITE_GRANULE, TraceStart};
use heaptide_trace::{Block, Encoder, LONGEST, Record};
use zerocopy::IntoBytes;

use crate::directory;

/// Writes them.
pub fn write_seeds() -> io::Result<()> {
    seeds().into_iter().try_for_each(|(target, name, bytes)| {
        let directory = directory("corpus", target);
        fs::create_dir_all(&directory)?;
        fs::write(directory.join(name), bytes)
    })
}

/// Returns them: target, name, contents.
pub fn seeds() -> [(&'static str, &'static str, Vec<u8>); 5] {
    [
        ("profile_reader", "version-1", version_1()),
        ("profile_reader", "version-2", annotated()),
        ("symbols", "program.json", program().symbols().into_bytes()),
        ("trace", "one-lane", trace(&[0])),
        ("trace", "moved", trace(&[1, 2, 3])),
    ]
}

fn program() -> ProgramBuilder {
    ProgramBuilder::with_stacks(&["main;load;@malloc", "main;read"])
}

/// Two stacks, and a lane that still had counters in it.
fn version_1() -> Vec<u8> {
    let mut p = program().profile;
    p.header.version = 1;
    p.lane(2, "counting", |lane| lane.frees_here = 1);
    without_zeros(p.finish())
}

/// Scopes, every kind of key, a window and a mark.
fn annotated() -> Vec<u8> {
    let mut p = ProfileBuilder::new(Mode::Scopes, 12, 0);
    let (region, label) = (p.name("region", "main"), p.name_int("label", -7));
    let root = p.scope(0, 0, 0, |_| {});
    let inner = p.scope(0, root, region, |scope| scope.entered = 3);
    for flags in 0..8 {
        let key = p.key(0, |key| {
            (key.scope, key.label, key.flags, key.moved_blocks) = (inner, label, flags, 1);
        });
        p.site(0, site(key, 2, 32));
    }
    p.lane(0, "app", |_| {});
    p.window("w", |window| window.open = 1);
    let mark = Mark { time_ns: 1, name: region, kind: 2, lane: 0, number: 1, live_bytes: 9 };
    p.mark(mark);
    without_zeros(p.finish())
}

fn without_zeros(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
    bytes.truncate(end);
    bytes
}

/// Id of the first site of the profile that the target `trace` makes.
const SITE: u32 = ((PAGE + EXTENT_HEADER) / SITE_GRANULE) as u32;

/// An extent for each of these lanes, all but the first of them moved out.
fn trace(lanes: &[u8]) -> Vec<u8> {
    let extents = lanes.iter().zip(1..).flat_map(|(&lane, number)| {
        let ticks = u64::from(number) * 100;
        let start = TraceStart { ticks, number, last_ticks: ticks + 9, ..TraceStart::default() };
        let contents = [start.as_bytes(), &records(ticks)].concat();
        let length = (contents.len() as u16).to_le_bytes();
        [vec![lane, u8::from(number > 1) * 3], length.to_vec(), contents].concat()
    });
    iter::once(0).chain(extents).collect()
}

/// Blocks that are allocated and moved, one that is freed.
fn records(begin: u64) -> Vec<u8> {
    let block = |address, reallocated| {
        Record::Allocated(Block { address, site: SITE, requested: 24, usable: 32, reallocated })
    };
    let records = [
        block(0x1000, false),
        block(0x2000, false),
        Record::Freed { address: 0x1000 },
        block(0x3000, true),
    ];
    let (mut encoder, mut room, mut bytes) = (Encoder::new(), [0; LONGEST], Vec::new());
    encoder.begin(begin);
    for (record, ticks) in records.iter().zip(begin..) {
        let length = encoder.record(&mut room, ticks, record);
        bytes.extend_from_slice(&room[..length]);
    }
    bytes
}
