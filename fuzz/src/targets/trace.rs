//! Any bytes as extents of events, in a profile and moved out of it: reading ends with consistent
//! events.
//!
//! An input consists of a byte of flags, then extents: lane, location, length in two bytes, and the
//! contents.

use std::fs;

use heaptide_analysis::model::{Process, Recording};
use heaptide_analysis::trace::file::{Appender, path_of};
use heaptide_format::{
    EXTENT_HEADER, EXTENT_MAGIC, ExtentHeader, FileHeader, Kind, Lane, MAGIC, Mode, PAGE, Site,
    TRACE_FREE_STACKS, TRACE_ON, TraceStart, VERSION,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::fixtures::in_scratch;

/// Reads the extents of the input, some of them moved out of the profile.
pub fn trace(input: &[u8]) -> bool {
    let Some((&flags, rest)) = input.split_first() else {
        return false;
    };
    let (profile, moved) = files(flags, rest);
    let path = in_scratch(|scratch| scratch.write("12-0.profile", &profile));
    let _ = fs::remove_file(path_of(&path));
    if !moved.is_empty() {
        let mut appender = Appender::of(&path).expect("room");
        for (lane, contents) in moved {
            let _ = appender.append(lane, &contents); // too short to have a start
        }
    }
    let recording = Recording::open(&path).expect("a profile");
    check(&recording.processes[0]) > 0
}

/// Returns a profile with its extents, and the contents of those that are moved out.
fn files(flags: u8, mut rest: &[u8]) -> (Vec<u8>, Vec<(u32, Vec<u8>)>) {
    let mut header = FileHeader::new_zeroed();
    (header.magic, header.version, header.mode) = (MAGIC, VERSION, Mode::Stacks as u32);
    header.trace = TRACE_ON | TRACE_FREE_STACKS;
    header.trace_stopped_ns = u64::from(flags) << 8;
    let mut bytes = vec![0; PAGE as usize];
    let mut moved = Vec::new();
    let mut site = Site::new_zeroed();
    (site.allocations, site.usable_bytes) = (1, 32);
    let sites: Vec<u8> = (0..16).flat_map(|_| site.as_bytes().to_vec()).collect();
    extent(&mut bytes, Kind::Sites, 0, &sites);
    let lanes = (0..8).map(|index| Lane { index, ..Lane::new_zeroed() });
    let lanes: Vec<u8> = lanes.flat_map(|lane| lane.as_bytes().to_vec()).collect();
    extent(&mut bytes, Kind::Lanes, 0, &lanes);
    while let Some((&[lane, place, low, high], after)) = rest.split_first_chunk::<4>() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(after.len());
        let (contents, after) = after.split_at(length);
        rest = after;
        let mut contents = contents.to_vec();
        if let Ok((start, _)) = TraceStart::mut_from_prefix(&mut contents) {
            // Small values, so that numbers and times collide.
            (start.number, start.state) = (start.number & 15, start.state & 3);
            (start.ticks, start.last_ticks) = (start.ticks & 0xffff, start.last_ticks & 0xffff);
        }
        if place & 1 == 1 {
            moved.push((u32::from(lane & 7), contents.clone()));
        }
        if place & 2 == 0 {
            extent(&mut bytes, Kind::Events, u32::from(lane & 7), &contents);
        }
    }
    header.file_end = bytes.len() as u64;
    bytes[..size_of::<FileHeader>()].copy_from_slice(header.as_bytes());
    (bytes, moved)
}

fn extent(bytes: &mut Vec<u8>, kind: Kind, lane: u32, contents: &[u8]) {
    let mut head = ExtentHeader::new_zeroed();
    (head.magic, head.kind, head.lane) = (EXTENT_MAGIC, kind as u16, lane);
    head.committed = contents.len() as u64;
    head.length = (EXTENT_HEADER + head.committed).next_multiple_of(PAGE);
    let end = bytes.len() + head.length as usize;
    bytes.extend_from_slice(head.as_bytes());
    bytes.extend_from_slice(contents);
    bytes.resize(end, 0);
}

/// Checks that numbers and times increase, and that sites and blocks are consistent. Returns the
/// number of events.
fn check(process: &Process) -> u64 {
    let mut replay = process.replay().expect("files that were just written");
    let (mut number, mut time_ns) = (0, 0);
    for event in replay.by_ref() {
        assert!(event.number > number && event.time_ns >= time_ns);
        (number, time_ns) = (event.number, event.time_ns);
        assert!(event.allocated_number <= number && event.allocated_ns <= time_ns);
        let sites = process.tables.sites.len() as u32;
        assert!(event.site < sites && event.site_before < sites);
        assert!((event.free_stack.0 as usize) < process.tables.stacks.len());
        assert!((event.scope.0 as usize) < process.tables.scopes.len());
    }
    assert!(replay.events() >= number);
    replay.notes();
    replay.into_live();
    number
}
