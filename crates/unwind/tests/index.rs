//! Search tables for unwind sections that have none, assembled byte by byte.

#![forbid(unsafe_code)]

use heaptide_fixtures::{Random, unwind_entry as entry};
use heaptide_unwind::index::{Entry, FileSections, count, fill, step_at};
use heaptide_unwind::rule::{Bp, Cfa, Ra, Step};

const RSP: u8 = 7;
const RA: u8 = 16;
const EH_FRAME: u64 = 0x2000;

/// A function: its start, its length, and the distance of the CFA from rsp.
type Function = (u64, u64, u8);

/// Builds `.debug_frame`: a CIE of version 4 with addresses of 8 bytes, and an entry per function.
fn debug_frame(functions: &[Function]) -> Vec<u8> {
    let mut common = u32::MAX.to_le_bytes().to_vec();
    common.extend([4, 0, 8, 0, 1, 0x78, RA, 0x0c, RSP, 8, 0x80 | RA, 1]);
    let mut bytes = entry(common);
    for &(start, length, distance) in functions {
        let mut body = 0u32.to_le_bytes().to_vec(); // the CIE's offset
        body.extend(start.to_le_bytes());
        body.extend(length.to_le_bytes());
        body.extend([0x0e, distance]);
        bytes.extend(entry(body));
    }
    bytes
}

/// Builds `.eh_frame` with addresses relative to their place.
fn eh_frame(functions: &[Function]) -> Vec<u8> {
    let mut common = vec![0, 0, 0, 0, 1];
    common.extend(*b"zR\0");
    common.extend([1, 0x78, RA, 1, 0x1b, 0x0c, RSP, 8, 0x80 | RA, 1]);
    let mut bytes = entry(common);
    for &(start, length, distance) in functions {
        let at = bytes.len() as u64;
        let mut body = (at as u32 + 4).to_le_bytes().to_vec();
        let place = EH_FRAME + at + 8;
        body.extend((start.wrapping_sub(place) as u32).to_le_bytes());
        body.extend((length as u32).to_le_bytes());
        body.extend([0, 0x0e, distance]);
        bytes.extend(entry(body));
    }
    bytes.extend([0; 4]);
    bytes
}

fn table(sections: &FileSections<'_>) -> Vec<Entry> {
    let mut entries = vec![Entry::default(); count(sections)];
    let used = fill(sections, &mut entries);
    entries.truncate(used);
    entries
}

fn frame(distance: u8) -> Option<Step> {
    Some(Step::Frame(Cfa::Sp(distance.into()), Bp::Same, Ra::AtCfa(-8)))
}

#[test]
fn functions_of_both_sections_are_found() {
    // In no order; the last one was removed by the linker.
    let debug = debug_frame(&[(0x5000, 0x100, 24), (0x1000, 0x80, 16), (0, 0x40, 72)]);
    let eh = eh_frame(&[(0x9000, 0x20, 40), (0x3000, 0x10, 32)]);
    let sections = FileSections { eh_frame: &eh, eh_frame_address: EH_FRAME, debug_frame: &debug };
    let entries = table(&sections);
    assert_eq!(entries.len(), 4);
    let step = |pc| step_at(&sections, &entries, pc);
    for (start, length, distance) in
        [(0x1000, 0x80, 16), (0x3000, 0x10, 32), (0x5000, 0x100, 24), (0x9000, 0x20, 40)]
    {
        assert_eq!(step(start), frame(distance), "{start:x}");
        assert_eq!(step(start + length - 1), frame(distance), "{start:x}");
        assert_eq!((step(start - 1), step(start + length)), (None, None), "{start:x}");
    }
    assert_eq!((step(0), step(0x20), step(u64::MAX)), (None, None, None));
}

#[test]
fn no_room_and_no_sections() {
    let none = FileSections::default();
    assert_eq!((count(&none), fill(&none, &mut [])), (0, 0));
    assert_eq!(step_at(&none, &[], 5), None);
    let debug = debug_frame(&[(0x1000, 16, 16), (0x2000, 16, 24)]);
    let sections = FileSections { debug_frame: &debug, ..none };
    let mut entries = [Entry::default()];
    assert_eq!(fill(&sections, &mut entries), 1);
    assert_eq!(step_at(&sections, &entries, 0x1000), frame(16));
    assert_eq!(step_at(&sections, &entries, 0x2000), None);
}

#[test]
fn many_functions_in_random_order() {
    let mut random = Random::new(0x1dea);
    let mut functions: Vec<Function> =
        (1..=2000).map(|n| (n * 64, 48, (n % 14) as u8 * 8 + 8)).collect();
    for at in 0..functions.len() {
        let other = random.index(functions.len());
        functions.swap(at, other);
    }
    let debug = debug_frame(&functions);
    let sections = FileSections { debug_frame: &debug, ..FileSections::default() };
    let entries = table(&sections);
    assert!(entries.is_sorted());
    for (start, length, distance) in functions {
        assert_eq!(step_at(&sections, &entries, start + length / 2), frame(distance));
        assert_eq!(step_at(&sections, &entries, start + length), None);
    }
}

#[test]
fn random_sections_do_not_panic() {
    let mut random = Random::new(0xf11e);
    let valid = debug_frame(&[(0x1000, 16, 16), (0x2000, 16, 24)]);
    for _ in 0..20_000 {
        let mut debug = valid.clone();
        for _ in 0..=random.below(4) {
            let at = random.index(debug.len());
            debug[at] = random.byte();
        }
        let eh = random.bytes(127);
        let sections =
            FileSections { eh_frame: &eh, eh_frame_address: EH_FRAME, debug_frame: &debug };
        let entries = table(&sections);
        for pc in [0, 0x1008, 0x2008, u64::MAX] {
            step_at(&sections, &entries, pc);
        }
    }
}
