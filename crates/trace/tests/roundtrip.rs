//! Any record survives a round trip, and no input bytes cause a panic.

use heaptide_trace::{Block, Decoder, Encoder, LONGEST, Record};
use proptest::prelude::*;

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..200, 3 => 0u64..100_000, 1 => any::<u64>()]
}

fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => (0u64..4096).prop_map(|n| 0x5555_5555_0000 + n * 16),
        3 => (0u64..1 << 20).prop_map(|n| 0x7fff_f000_0000 + n * 8),
        1 => any::<u64>(),
    ]
}

fn site() -> impl Strategy<Value = u32> {
    prop_oneof![5 => 1u32..600, 1 => any::<u32>()]
}

fn block() -> impl Strategy<Value = Block> {
    let usable = prop_oneof![3 => Just(None), 1 => size().prop_map(Some)];
    (address(), site(), size(), usable, 0..3).prop_map(
        |(address, site, requested, usable, moves)| {
            let usual = (requested.wrapping_add(23) & !15).max(32).wrapping_sub(8);
            let usable = usable.unwrap_or(usual);
            let (reallocated, remapped) = (moves > 0, moves > 1);
            Block { address, site, requested, usable, reallocated, remapped }
        },
    )
}

fn record() -> impl Strategy<Value = Record> {
    prop_oneof![
        8 => block().prop_map(Record::Allocated),
        8 => address().prop_map(|address| Record::Freed { address }),
        2 => address().prop_map(|address| Record::Moving { address }),
        4 => (address(), site(), size(), any::<bool>()).prop_map(|(address, site, usable, moving)| {
            Record::Ended { address, site, usable, moving }
        }),
        1 => Just(Record::StillThere),
        1 => Just(Record::Released),
        1 => site().prop_map(|site| Record::Failed { site }),
        1 => block().prop_map(Record::Relabelled),
        1 => (address(), site()).prop_map(|(address, site)| Record::Unlabelled { address, site }),
        1 => block().prop_map(Record::Opened),
        1 => (address(), site()).prop_map(|(address, site)| Record::Closed { address, site }),
        1 => (any::<u64>(), site()).prop_map(|(uid, shape)| Record::Labelled { uid, shape }),
        1 => any::<u32>().prop_map(Record::Scope),
        1 => any::<u32>().prop_map(Record::Thread),
        1 => any::<u32>().prop_map(Record::Node),
        1 => any::<u32>().prop_map(Record::Element),
        1 => any::<u32>().prop_map(|number| Record::Mark { number }),
    ]
}

fn later() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0u64..300, 2 => 0u64..1 << 25, 1 => 0u64..1 << 40]
}

fn has_time(record: &Record) -> bool {
    !matches!(record, Record::Thread(_) | Record::Node(_) | Record::Element(_))
}

proptest! {
    #[test]
    fn records_survive_a_round_trip(records in prop::collection::vec((later(), record()), 0..400)) {
        let (mut encoder, mut bytes, mut now) = (Encoder::new(), Vec::new(), 5);
        encoder.begin(now);
        let mut expected = Vec::new();
        for (later, record) in &records {
            let mut room = [0xa5; LONGEST];
            now += if has_time(record) { *later } else { 0 };
            let length = encoder.record(&mut room, now, record);
            prop_assert!((1..=LONGEST).contains(&length));
            bytes.extend_from_slice(&room[..length]);
            expected.push((now, *record));
        }
        let mut decoder = Decoder::new(5, &bytes);
        for expected in expected {
            prop_assert_eq!(decoder.next(), Some(Ok(expected)));
        }
        prop_assert_eq!(decoder.next(), None);
        prop_assert_eq!(decoder.position(), bytes.len());
    }

    #[test]
    fn decoding_any_bytes_ends(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let mut decoder = Decoder::new(0, &bytes);
        let mut records = 0;
        while let Some(record) = decoder.next() {
            records += 1;
            prop_assert!(records <= bytes.len());
            if record.is_err() {
                prop_assert_eq!(decoder.next(), None);
            }
        }
    }

    /// A clock that runs backwards counts as stopped.
    #[test]
    fn time_never_decreases(ticks in prop::collection::vec(any::<u32>(), 1..50)) {
        let (mut encoder, mut bytes) = (Encoder::new(), Vec::new());
        encoder.begin(0);
        for &ticks in &ticks {
            let mut room = [0; LONGEST];
            let length = encoder.freed(&mut room, ticks.into(), 64);
            bytes.extend_from_slice(&room[..length]);
        }
        let (mut decoder, mut last) = (Decoder::new(0, &bytes), 0);
        for &ticks in &ticks {
            last = last.max(ticks.into());
            prop_assert_eq!(decoder.next(), Some(Ok((last, Record::Freed { address: 64 }))));
        }
    }
}

/// Frequent records are as short as the crate's documentation states.
#[test]
fn frequent_records_are_short() {
    let mut encoder = Encoder::new();
    encoder.begin(0);
    let mut room = [0; LONGEST];
    let block =
        Block { address: 0x5555_0000, site: 900, requested: 64, usable: 72, ..Block::default() };
    assert_eq!(encoder.allocated(&mut room, 10, &block), 2 + 1 + 4 + 3 + 1);
    let next = Block { address: block.address + 80, ..block };
    assert_eq!(encoder.allocated(&mut room, 20, &next), 2 + 1 + 1);
    assert_eq!(encoder.freed(&mut room, 30, block.address), 3);
    assert_eq!(encoder.moving(&mut room, 400, next.address), 1 + 2 + 1);
}
