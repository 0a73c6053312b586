//! Accounts of resident memory: reads them from profiles that can be damaged, and explains them by
//! rows.

use std::path::Path;

use heaptide_analysis::model::Process;
use heaptide_analysis::views::coverage::uncovered;
use heaptide_analysis::views::memory::{At, Memory, Row};
use heaptide_fixtures::{ProfileBuilder, site};
use heaptide_format::{self as format, Account, AccountRange, Kind, Mode};
use zerocopy::IntoBytes;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const READ_WRITE: u32 = format::RANGE_READ | format::RANGE_WRITE;

/// Returns a mapping of `kib` KiB, of which `resident` are resident.
fn range(start: u64, kib: u64, resident: u32, flags: u32, name: u32) -> AccountRange {
    let (length, resident_kib) = (kib * KIB, resident);
    AccountRange { start, length, resident_kib, flags, name, ..AccountRange::default() }
}

/// Stores an account with these mappings in an extent of its own, after `damage`.
fn store(
    p: &mut ProfileBuilder,
    number: u32,
    account: Account,
    ranges: &[AccountRange],
    damage: impl FnOnce(&mut Account, &mut Vec<AccountRange>),
) {
    let resident = ranges.iter().map(|range| u64::from(range.resident_kib) * KIB).sum();
    let mut account = Account {
        number: number.into(),
        number_again: number.into(),
        ranges: ranges.len() as u32,
        resident_bytes: resident,
        ..account
    };
    let mut ranges = ranges.to_vec();
    ranges.iter_mut().for_each(|range| range.account = number);
    damage(&mut account, &mut ranges);
    p.record(Kind::Accounts, number, &[account.as_bytes(), ranges.as_bytes()].concat());
}

fn undamaged(_: &mut Account, _: &mut Vec<AccountRange>) {}

fn read(p: &ProfileBuilder) -> Process {
    Process::from_bytes(&p.finish(), Path::new("made")).expect("a profile")
}

/// Returns names and resident KiB of rows, with children in parentheses.
fn told(rows: &[Row]) -> String {
    let one = |row: &Row| {
        let inside = if row.children.is_empty() {
            String::new()
        } else {
            format!(" ({})", told(&row.children))
        };
        format!("{} {}{inside}", row.name, row.resident_bytes / KIB)
    };
    rows.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Returns an account with glibc: 100 KiB live, of which a tenth is slack: 60 in arenas, 40 in a
/// mapping.
fn glibc(p: &mut ProfileBuilder) -> Account {
    let mut record = site(0, 1, 100 * KIB);
    record.requested_bytes = 90 * KIB;
    p.lane(0, "worker", |_| ());
    p.site(0, record);
    Account {
        time_ns: 5,
        cause: format::ACCOUNT_END,
        live_bytes: 100 * KIB,
        source: format::HEAP_GLIBC,
        arena_bytes: 132 * KIB,
        arena_used_bytes: 64 * KIB,
        arena_free_bytes: 68 * KIB,
        mapped_block_bytes: 40 * KIB,
        ..Account::default()
    }
}

#[test]
fn rows_of_all_kinds() {
    let mut p = ProfileBuilder::new(Mode::Stacks, 12, 0);
    let account = glibc(&mut p);
    let [program, heap, library, file, shm] =
        ["/bin/app", "[heap]", "/lib/libx.so", "/data", "/dev/shm/x"].map(|name| p.string(name));
    let code = format::RANGE_READ | format::RANGE_EXECUTE;
    let stack = AccountRange {
        lane: 0,
        ..range(0x7000_0000, 8192, 16, READ_WRITE | format::RANGE_STACK, 0)
    };
    let ranges = [
        range(0x40_0000, 100, 50, code, program),
        range(0x50_0000, 8, 8, READ_WRITE, program),
        range(0x50_2000, 400, 300, READ_WRITE, 0),
        // 20 of the 68 free KiB were never touched.
        range(0x60_0000, 132, 112, READ_WRITE, heap),
        // A block of 40 KiB beside 60 KiB of other memory.
        range(0x5000_1000, 100, 100, READ_WRITE | format::RANGE_BLOCKS, 0),
        range(0x6000_1000, 24, 24, READ_WRITE, 0),
        stack,
        range(0x7100_0000, 64, 12, READ_WRITE | format::RANGE_GUARDED, 0),
        range(0x7200_0000, 40, 30, code, library),
        range(0x7300_0000, 40, 20, format::RANGE_READ, file),
        range(0x7400_0000, 40, 10, READ_WRITE | format::RANGE_SHARED, shm),
        range(0x7500_0000, 4000, 70, READ_WRITE | format::RANGE_RECORDER, 0),
    ];
    store(&mut p, 1, account, &ranges, undamaged);
    let process = read(&p);
    let memory = Memory::of(&process, At::End).expect("an account");
    assert_eq!(
        told(&memory.rows),
        "heap 152 (live requested 90, live slack 10, free 48, overhead 4), \
         mappings 114 (files 20 (/data 20), shared memory 10 (/dev/shm/x 10), anonymous 84), \
         stacks 28 (worker 16, other threads 12), \
         modules 388 (/bin/app 358, /lib/libx.so 30), \
         recorder 70"
    );
    assert_eq!((memory.unexplained_bytes, memory.accounted_bytes()), (0, 752 * KIB));
    let heap = memory.row("heap").expect("the heap");
    let sizes: Vec<u64> = heap.children.iter().map(|row| row.size_bytes / KIB).collect();
    assert_eq!((heap.size_bytes, sizes), (172 * KIB, vec![90, 10, 68, 4]));
}

/// Untouched memory is attributed to free memory first, then to live memory.
#[test]
fn blocks_that_were_never_touched() {
    let mut p = ProfileBuilder::new(Mode::Stacks, 12, 0);
    let account = Account { mapped_block_bytes: 256 * MIB, live_bytes: 256 * MIB, ..glibc(&mut p) };
    let ranges = [
        range(0x60_0000, 132, 10, READ_WRITE, p.string("[heap]")),
        range(0x5000_0000, 256 * KIB, 4, READ_WRITE | format::RANGE_BLOCKS, 0),
    ];
    store(&mut p, 1, account, &ranges, undamaged);
    let process = read(&p);
    let memory = Memory::of(&process, At::End).expect("an account");
    let heap = memory.row("heap").expect("the heap");
    assert_eq!((heap.resident_bytes, heap.size_bytes), (14 * KIB, 256 * MIB + 132 * KIB));
    let free = heap.children.iter().find(|row| row.name == "free").expect("free memory");
    assert_eq!((free.resident_bytes, free.size_bytes), (0, 68 * KIB));
}

/// Another allocator: mappings with blocks are its memory, and memory there that is not live is
/// free.
#[test]
fn an_allocator_without_numbers() {
    let mut p = ProfileBuilder::new(Mode::Stacks, 12, 0);
    let account = Account {
        source: 0,
        arena_bytes: 0,
        arena_used_bytes: 0,
        arena_free_bytes: 0,
        mapped_block_bytes: 0,
        ..glibc(&mut p)
    };
    let ranges = [
        range(0x5000_0000, 300, 250, READ_WRITE | format::RANGE_BLOCKS, 0),
        range(0x6000_0000, 24, 24, READ_WRITE, 0),
    ];
    store(&mut p, 1, account, &ranges, undamaged);
    let process = read(&p);
    assert_eq!(process.time.accounts[0].allocator, None);
    let memory = Memory::of(&process, At::End).expect("an account");
    assert_eq!(
        told(&memory.rows),
        "heap 250 (live requested 90, live slack 10, free 150), mappings 24 (anonymous 24)"
    );
}

#[test]
fn an_account_that_contradicts_itself_is_left_out() {
    type Damage = fn(&mut Account, &mut Vec<AccountRange>);
    let damages: [Damage; 5] = [
        |account, _| account.number_again += 1,
        |account, _| account.ranges += 1,
        |account, _| account.ranges = u32::MAX,
        |_, ranges| ranges[0].account += 1,
        |_, ranges| ranges.clear(),
    ];
    for (damage, at) in damages.into_iter().zip(0..) {
        let mut p = ProfileBuilder::new(Mode::Stacks, 12, 0);
        let account = glibc(&mut p);
        let ranges = [range(0x5000_0000, 300, 250, READ_WRITE, 7)];
        store(&mut p, 1, account, &ranges, damage);
        assert!(read(&p).time.accounts.is_empty(), "damage {at}");
        store(&mut p, 2, account, &ranges, undamaged);
        assert_eq!(read(&p).time.accounts.len(), 1, "damage {at}");
    }
}

/// Stores the site of `count` mappings of `bytes` bytes each, made by code of a module.
fn mapped_site(p: &mut ProfileBuilder, module: u32, count: u64, bytes: u64) -> u32 {
    let address = 0x1000 + u64::from(module) * 0x1000_0000;
    let stack = if module == 0 { 0 } else { p.node(0, module, address, 0) };
    let (call, flags) = (format::MappingCall::Mmap as u32, 2 | format::MAP_ANONYMOUS);
    let kind = format::MappingKey { call, protection: 3, flags, file: 0 };
    let key = p.key(0, |key| {
        (key.stack, key.flags, key.size) = (stack, format::KEY_MAPPING, kind.pack());
    });
    let record = site(key, count, bytes);
    (p.record(Kind::MappedSites, 0, record.as_bytes()) as u64 / format::SITE_GRANULE) as u32
}

/// Zeroed data of a library ends where its headers state, and at a recorded mapping.
#[test]
fn zeroed_data_of_a_module_is_no_other_mapping() {
    let mut p = ProfileBuilder::new(Mode::Stacks, 12, 0);
    let account = Account { mapped_block_bytes: 0, ..glibc(&mut p) };
    let code = format::RANGE_READ | format::RANGE_EXECUTE;
    let python = p.module("/usr/bin/python3.11", 0x3000_0000, &[]);
    let start = 0x7000_0000; // its module ends 1 MiB above
    p.module("/lib/libz.so.1", start, &[]);
    let library = p.string("/lib/libz.so.1");
    let arenas = mapped_site(&mut p, python, 3, MIB);
    let ranges = [
        range(start, 96, 90, code, library),
        range(start + 96 * KIB, 32, 32, READ_WRITE, 0),
        AccountRange { site: arenas, ..range(start + 128 * KIB, 2048, 2000, READ_WRITE, 0) },
        range(start + 0x20_0000, 96, 5, code, library),
        range(start + 0x20_0000 + 96 * KIB, 64, 7, READ_WRITE, 0),
    ];
    store(&mut p, 1, account, &ranges, undamaged);
    let process = read(&p);
    let memory = Memory::of(&process, At::End).expect("an account");
    let rows: Vec<Row> = memory.rows.into_iter().filter(|row| row.name != "heap").collect();
    assert_eq!(
        told(&rows),
        "mappings 2007 (python arena 2000 (python3.11 2000), anonymous 7), \
         modules 127 (/lib/libz.so.1 127)"
    );
}

/// Recorded mappings of an allocator are part of the heap if its blocks are recorded, even with
/// glibc.
#[test]
fn mappings_of_an_allocator_with_and_without_blocks() {
    let expected = [
        (format::RANGE_BLOCKS, "heap 240 (live requested 90, live slack 10, free 140)"),
        (
            0,
            "heap 40 (live requested 36, live slack 4), \
             mappings 200 (allocator 200 (libjemalloc.so.2 200))",
        ),
    ];
    for (blocks, expected) in expected {
        let mut p = ProfileBuilder::new(Mode::Stacks, 12, 0);
        let account = glibc(&mut p);
        let jemalloc = p.module("/usr/lib/libjemalloc.so.2", 0x3000_0000, &[]);
        let site = mapped_site(&mut p, jemalloc, 1, 256 * KIB);
        let ranges = [
            AccountRange { site, ..range(0x5000_0000, 256, 200, READ_WRITE | blocks, 0) },
            range(0x6000_1000, 40, 40, READ_WRITE | format::RANGE_BLOCKS, 0),
        ];
        store(&mut p, 1, account, &ranges, undamaged);
        let process = read(&p);
        let memory = Memory::of(&process, At::End).expect("an account");
        assert_eq!(told(&memory.rows), expected);
    }
}

/// The freed heap of an allocator whose mappings were recorded stays heap when no block is left.
#[test]
fn a_heap_stays_heap_after_its_last_block() {
    let mut p = ProfileBuilder::new(Mode::Stacks, 12, 0);
    let account =
        Account { arena_bytes: 0, arena_used_bytes: 0, mapped_block_bytes: 0, ..glibc(&mut p) };
    let app = p.module("/usr/bin/app", 0x3000_0000, &[]);
    let own = mapped_site(&mut p, app, 1, 256 * KIB);
    let other = mapped_site(&mut p, app, 1, 64 * KIB);
    let ranges = |blocks: u32| {
        [
            AccountRange { site: own, ..range(0x5000_0000, 256, 200, READ_WRITE | blocks, 0) },
            AccountRange { site: other, ..range(0x6000_0000, 64, 60, READ_WRITE, 0) },
        ]
    };
    store(&mut p, 1, Account { time_ns: 1, ..account }, &ranges(0), undamaged);
    store(&mut p, 2, Account { time_ns: 2, ..account }, &ranges(format::RANGE_BLOCKS), undamaged);
    let end = Account { time_ns: 3, live_bytes: 0, ..account };
    store(&mut p, 3, end, &ranges(0), undamaged);
    let process = read(&p);
    let heap = |memory: Memory<'_>| memory.row("heap").map_or(0, |row| row.resident_bytes / KIB);
    assert_eq!(Memory::over_time(&process).map(heap).collect::<Vec<_>>(), [0, 200, 200]);
    let mapped = |memory: Memory<'_>| memory.row("mappings").expect("a row").resident_bytes / KIB;
    assert_eq!(Memory::over_time(&process).map(mapped).collect::<Vec<_>>(), [260, 60, 60]);
}

/// Memory is missing only if no row explains it: recorded mappings do.
#[test]
fn recorded_mappings_are_not_missing() {
    for (is_recorded, expected) in [(true, None), (false, Some(285 * MIB))] {
        let mut p = ProfileBuilder::new(Mode::Stacks, 12, 0);
        let account = Account { mapped_block_bytes: 0, ..glibc(&mut p) };
        p.header.peak_bytes = 10 * MIB;
        let compiler = p.module("/usr/bin/cc1plus", 0x3000_0000, &[]);
        let site = mapped_site(&mut p, compiler, 1, 285 * MIB);
        let site = if is_recorded { site } else { 0 };
        let kib = 285 * KIB;
        let ranges = [
            AccountRange { site, ..range(0x5000_0000, kib, kib as u32, READ_WRITE, 0) },
            range(0x7000_0000, 132, 112, READ_WRITE, p.string("[heap]")),
        ];
        store(&mut p, 1, account, &ranges, undamaged);
        let found = uncovered(&read(&p)).map(|uncovered| uncovered.other_bytes);
        assert_eq!(found, expected);
    }
}

/// Extreme numbers, each of which is possible in an untrusted file.
#[test]
fn numbers_that_are_too_large() {
    let mut p = ProfileBuilder::new(Mode::Stacks, 12, 0);
    glibc(&mut p);
    let most = u64::MAX;
    let account = Account {
        live_bytes: most,
        arena_bytes: most,
        arena_used_bytes: most,
        arena_free_bytes: most,
        mapped_block_bytes: most,
        requested_bytes: most,
        ..Account::default()
    };
    let flags = [0, 0x1ff, READ_WRITE, READ_WRITE | format::RANGE_BLOCKS, format::RANGE_STACK];
    let huge = flags.map(|flags| AccountRange {
        length: most,
        swap_kib: u32::MAX,
        lane: u32::MAX,
        ..range(most - 1, 0, u32::MAX, flags, u32::MAX)
    });
    store(&mut p, 1, account, &huge, undamaged);
    let process = read(&p);
    let memory = Memory::of(&process, At::Peak).expect("an account");
    let rows: u64 = memory.rows.iter().map(|row| row.resident_bytes).sum();
    assert_eq!(rows + memory.unexplained_bytes, memory.account.resident_bytes);
}

#[test]
fn the_account_of_a_moment() {
    let mut p = ProfileBuilder::new(Mode::Stacks, 12, 0);
    let account = glibc(&mut p);
    p.header.peak_time_ns = 26;
    for (number, time_ns, live_bytes) in [(1, 30, 9), (2, 10, 9), (3, 20, 5), (4, 90, 1)] {
        let account = Account { time_ns, live_bytes, ..account };
        store(&mut p, number, account, &[], undamaged);
    }
    let missing = Account { time_ns: 99, missing: format::ACCOUNT_CONFINED, ..account };
    store(&mut p, 5, missing, &[], undamaged);
    let process = read(&p);
    let time = |at| Memory::of(&process, at).map(|memory| memory.account.time_ns);
    assert_eq!([At::Peak, At::End, At::Time(17)].map(time), [Some(30), Some(90), Some(20)]);
    let all: Vec<u64> = Memory::over_time(&process).map(|m| m.account.time_ns).collect();
    assert_eq!(all, [10, 20, 30, 90]);
}

/// The C library of another namespace has arenas of its own, of which the numbers know nothing.
#[test]
fn blocks_of_a_second_c_library_are_resident_where_they_are() {
    let mut p = ProfileBuilder::new(Mode::Stacks, 12, 0);
    let account = Account { live_bytes: 3 * MIB, mapped_block_bytes: 0, ..glibc(&mut p) };
    let heap = p.string("[heap]");
    let ranges = [
        range(0x1000_0000, 132, 132, READ_WRITE, heap),
        range(0x7000_0000, 4 << 10, 3 << 10, READ_WRITE, 0),
    ];
    store(&mut p, 1, account, &ranges, undamaged);
    let process = read(&p);
    let memory = Memory::of(&process, At::End).expect("an account");
    let heap = memory.row("heap").expect("the heap");
    // 64 KiB of the live bytes are in the arena.
    assert_eq!(heap.resident_bytes, 132 * KIB + 3 * MIB - 64 * KIB);
    let live: u64 = heap.children.iter().take(2).map(|row| row.resident_bytes).sum();
    assert_eq!(live, 3 * MIB);
}
