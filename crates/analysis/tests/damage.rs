//! For any bytes, reading ends with tables or with an error.

use std::path::Path;

use heaptide_analysis::model::{Process, Recording, Site};
use heaptide_analysis::profile::{parsed, reader};
use heaptide_analysis::selection::kind::MemoryKind;
use heaptide_analysis::views::memory::{Memory, parts};
use heaptide_analysis::views::scopes;
use heaptide_fixtures::{ProfileBuilder, Random, Scratch, site};
use heaptide_format as format;
use zerocopy::{FromZeros, IntoBytes};

/// Returns a profile with several extents of each kind.
fn profile() -> ProfileBuilder {
    let mut p = ProfileBuilder::new(format::Mode::Stacks, 12, 0);
    p.program("/bin/app", &["app"]);
    let app = p.module("/nowhere/app", 0x1000_0000, &[7; 20]);
    for lane in 0..3 {
        let mut parent = 0;
        for depth in 0..200 {
            parent = p.node(lane, app, 0x1000_0000 + 16 * depth, parent);
            p.site(lane, site(parent, depth + 1, 32));
        }
        p.lane(lane, "lane", |record| record.freed_classes[3] = 1);
    }
    let label = p.name("label", "matrix");
    for lane in 0..3 {
        let mut scope = p.scope(lane, 0, 0, |_| {});
        for depth in 0..100 {
            let name = p.name_int("level", depth);
            scope = p.scope(lane, scope, name, |s| s.entered = 1);
            let key = p.key(lane, |key| (key.scope, key.label) = (scope, label));
            p.site(lane, site(key, 1, 32));
        }
    }
    for elements in 1..100 {
        p.shape(label, 8, &[elements, 3]);
    }
    p.window("w", |window| window.open = 1);
    p.mark(format::Mark { time_ns: 1, name: 1, kind: 1, lane: 0, number: 0, live_bytes: 0 });
    add_mappings(&mut p);
    p
}

/// Adds mappings of two lanes, with samples, and accounts that refer to them.
fn add_mappings(p: &mut ProfileBuilder) {
    let file = p.string("/data");
    for lane in 0..2 {
        let kind = format::MappingKey { call: 1, protection: 3, flags: 2, file };
        let key = p.key(lane, |key| {
            (key.flags, key.size) = (format::KEY_MAPPING, kind.pack());
        });
        let sites: Vec<u32> = (1..100)
            .map(|count| {
                let record = site(key, count, 4096);
                let at = p.record(format::Kind::MappedSites, lane, record.as_bytes());
                let site = (at as u64 / format::SITE_GRANULE) as u32;
                let (mappings, bytes) = (record.allocations as u32, record.usable_bytes);
                let change = format::MappedChange { mappings, bytes, site, ..Default::default() };
                p.record(format::Kind::MappedChanges, lane, change.as_bytes());
                site
            })
            .collect();
        let record = format::Lane { index: lane, ..format::Lane::new_zeroed() };
        p.record(format::Kind::MappedLanes, lane, record.as_bytes());
        let sample =
            format::Sample { time_ns: 5, live_bytes: 4096, ..format::Sample::new_zeroed() };
        p.record(format::Kind::MappedTimeline, lane, sample.as_bytes());
        add_account(p, lane, file, &sites);
    }
}

fn add_account(p: &mut ProfileBuilder, lane: u32, name: u32, sites: &[u32]) {
    let number = lane + 1;
    let range = |(&site, at): (&u32, u64)| format::AccountRange {
        start: at << 20,
        length: 1 << 20,
        resident_kib: 64,
        flags: 3 | (at as u32 & 0xf0),
        name: if at % 3 == 0 { name } else { 0 },
        site,
        account: number,
        ..format::AccountRange::default()
    };
    let ranges: Vec<_> = sites.iter().zip(1..).map(range).collect();
    let account = format::Account {
        number: number.into(),
        number_again: number.into(),
        ranges: ranges.len() as u32,
        resident_bytes: 64 * 1024 * ranges.len() as u64,
        live_bytes: 1 << 20,
        source: number,
        ..format::Account::default()
    };
    let bytes = [account.as_bytes(), ranges.as_bytes()].concat();
    p.record(format::Kind::Accounts, lane, &bytes);
}

/// Reads the bytes and, if that succeeds, visits all data.
fn survives(bytes: &[u8]) -> bool {
    let Ok(profile) = reader::parse(bytes, Path::new("x.profile")) else {
        return false;
    };
    for (index, node) in profile.nodes.iter().enumerate() {
        assert!(node.parent.slot() <= index && (node.place as usize) < profile.places.len());
    }
    for site in profile.sites.iter().chain(profile.mapped.iter().flat_map(|m| &m.sites)) {
        assert!(site.node.slot() <= profile.nodes.len());
        assert!(site.scope.slot() <= profile.named.scopes.len());
        assert!(site.label.slot() <= profile.named.names.len());
    }
    for (index, scope) in profile.named.scopes.iter().enumerate() {
        assert!(scope.parent.slot() <= index);
        assert!(scope.name.slot() <= profile.named.names.len());
    }
    let mut process = Process::from_bytes(bytes, Path::new("x.profile")).expect("it was read");
    process.fold_scopes();
    assert_eq!(scopes::sums(&process, None).len(), process.tables.scopes.len());
    for memory in Memory::over_time(&process) {
        assert_eq!(memory.parts().count(), parts::names().count());
    }
    for kind in MemoryKind::ALL {
        let mut of_kind = Process::from_bytes(bytes, Path::new("x.profile")).expect("it was read");
        of_kind.select_kind(kind);
        let known = |site: &Site| (site.stack.0 as usize) < of_kind.tables.stacks.len();
        assert!(of_kind.tables.sites.iter().all(known));
    }
    for place in &profile.places {
        assert!(
            place.module == parsed::NO_MODULE || (place.module as usize) < profile.modules.len()
        );
    }
    true
}

#[test]
fn a_file_cut_anywhere_keeps_what_is_left() {
    let whole = profile().finish();
    let mut last = 0;
    for end in (0..=whole.len()).step_by(512) {
        let sites =
            reader::parse(&whole[..end], Path::new("x.profile")).map_or(0, |p| p.sites.len());
        assert!(sites >= last, "{sites} sites of the first {end} bytes, {last} of fewer");
        last = sites;
    }
    assert_eq!(last, 900);
    let scratch = Scratch::new("cut");
    let file = scratch.write("12-0.profile", &whole[..whole.len() - 4096]);
    let recording = Recording::open(&file).unwrap();
    let (is, was) = (whole.len() - 4096, whole.len());
    assert_eq!(
        recording.processes[0].completeness.notes[0],
        format!("the file is truncated: {is} bytes of {was}")
    );
}

#[test]
fn flipped_bits_never_panic() {
    let whole = profile().finish();
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    let mut read = 0;
    for _ in 0..1000 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random.below(16) {
            let at = random.index(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        read += u32::from(survives(&bytes));
    }
    assert!(read > 500, "most changes are of records and leave a readable file: {read} of 1000");
}

#[test]
fn extreme_words_never_panic() {
    let whole = profile().finish();
    let mut random = Random::new(0x2545_f491_4f6c_dd1d);
    let extremes = [0, 1, 7, 4096, u64::from(u32::MAX), 1 << 40, i64::MAX as u64, u64::MAX];
    let heads: Vec<usize> = (0..whole.len()).step_by(4096).collect();
    for _ in 0..1000 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random.below(3) {
            // half of them where damage matters most: in the header of the file or of an extent
            let at = match random.below(2) {
                0 => random.one(&heads) + 8 * random.index(32),
                _ => 8 * random.index(bytes.len() / 8),
            };
            let word = random.one(&extremes);
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        survives(&bytes);
    }
}

#[test]
fn whole_recordings_of_noise_become_tables_or_errors() {
    let whole = profile().finish();
    let scratch = Scratch::new("noise");
    let mut random = Random::new(0xda94_2042_e4dd_58b5);
    for _ in 0..50 {
        let mut bytes = whole.clone();
        for _ in 0..200 {
            let at = 4096 + random.index(bytes.len() - 4096);
            bytes[at] = random.byte();
        }
        let file = scratch.write("12-0.profile", &bytes);
        match Recording::open(&file) {
            Ok(recording) => assert_eq!(recording.processes.len(), 1),
            Err(error) => assert!(!error.to_string().contains('\n')),
        }
    }
}

#[test]
fn stored_names_may_say_anything() {
    let scratch = Scratch::new("symbols");
    let file = scratch.write("12-0.profile", &profile().finish());
    let path = r#""path":"/nowhere/app""#;
    let id = "07".repeat(20);
    // each is a place (15 is the second call), and whether the file is damaged
    let cases = [
        ("[268435455,1,2,3]", false), // no node has this address
        ("[15,1,0,3]", false),
        ("[15,9,0,0]", false),
        ("[15,18446744073709551615,1,18446744073709551615]", false),
        ("[15,1]", false),
        ("[]", false),
        ("[-1]", true),
        ("{}", true),
    ];
    for (place, is_damaged) in cases {
        let module = format!(r#"{{{path},"build_id":"{id}","strings":["f"],"places":[{place}]}}"#);
        let text = format!(r#"{{"version":1,"modules":[{module}]}}"#);
        scratch.write("symbols.json", text.as_bytes());
        let recording = Recording::open(&file).unwrap();
        assert_eq!(recording.damaged.len(), usize::from(is_damaged), "{place}");
        let named =
            recording.processes[0].tables.frames.iter().filter(|f| f.function.is_some()).count();
        assert_eq!(named, usize::from(place == "[15,1,0,3]"), "{place}");
    }
    for text in ["", "null", "[", "{\"version\":1}", &"[".repeat(100_000)] {
        scratch.write("symbols.json", text.as_bytes());
        assert_eq!(Recording::open(&file).unwrap().damaged.len(), 1, "{text:.20}");
    }
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let scratch = Scratch::new("pipe");
    let pipe = scratch.join("12-0.profile");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let error = Recording::open(&pipe).unwrap_err().to_string();
    assert!(error.contains("is a named pipe, expected a regular file"), "{error}");
}

#[test]
fn a_huge_sparse_file_is_refused() {
    let scratch = Scratch::new("sparse");
    let mut p = profile();
    let mut bytes = p.finish();
    p.header.file_end = 1 << 40;
    let at = std::mem::offset_of!(format::FileHeader, file_end);
    bytes[at..at + 8].copy_from_slice(&(1u64 << 40).to_le_bytes());
    let path = scratch.write("12-0.profile", &bytes);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(1 << 40).unwrap();
    let error = Recording::open(&path).unwrap_err().to_string();
    assert!(error.contains("is too large (limit 4294967296)"), "{error}");
}
