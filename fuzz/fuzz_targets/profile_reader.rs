//! Any bytes as a profile: reading must end with an error or with tables that hang together.
//!
//! `cargo fuzz run --sanitizer none profile_reader -- -max_len=65536` (extents begin behind the
//! first page). `HEAPTIDE_SEEDS=fuzz/corpus/profile_reader cargo test -p heaptide-analysis --test
//! scopes` writes profiles to start from.

#![no_main]

use std::path::Path;

use heaptide_analysis::aggregate::{Functions, GroupBy, Sum, group};
use heaptide_analysis::measure::Measure;
use heaptide_analysis::model::{Measures, Process};
use heaptide_analysis::scopes;
use heaptide_analysis::tree::{Recursion, Tree};
use heaptide_format::{FileHeader, MAGIC, Mode, VERSION};
use libfuzzer_sys::fuzz_target;
use zerocopy::{FromBytes, IntoBytes};

fuzz_target!(|input: &[u8]| {
    let _ = Process::from_bytes(input, Path::new("raw.profile"));
    if let Some(bytes) = with_head(input)
        && let Ok(mut process) = Process::from_bytes(&bytes, Path::new("input.profile"))
    {
        check(&process);
        process.fold_scopes();
        check(&process);
    }
});

/// The input with the words set right that every reader stops at, so that the rest is reached.
fn with_head(input: &[u8]) -> Option<Vec<u8>> {
    let (mut head, _) = FileHeader::read_from_prefix(input).ok()?;
    head.magic = MAGIC;
    head.version = head.version % VERSION + 1;
    head.mode = match head.mode % 3 {
        0 => Mode::Counters as u32,
        1 => Mode::Stacks as u32,
        _ => Mode::Scopes as u32,
    };
    head.file_end = head.file_end.max(input.len() as u64);
    let mut bytes = input.to_vec();
    bytes[..size_of::<FileHeader>()].copy_from_slice(head.as_bytes());
    Some(bytes)
}

/// Sums over sites are the totals, outer frames and scopes come first, and every view can be made.
fn check(process: &Process) {
    let whole = Measures { peak_bytes: 0, ..process.totals };
    assert_eq!(Sum::over(&process.sites), whole);
    for (node, index) in process.stacks.iter().zip(0u32..).skip(1) {
        assert!(node.parent.0 < index);
    }
    for (scope, index) in process.scopes.iter().zip(0u32..).skip(1) {
        assert!(scope.parent.0 < index);
    }
    let functions = Functions::of(process);
    for &by in GroupBy::all() {
        group(process, &functions, by);
    }
    assert_eq!(scopes::sums(process, None).len(), process.scopes.len());
    let measure = Measure::UsableBytes;
    Tree::top_down(process, &functions, measure, Recursion::Fold);
    Tree::bottom_up(process, &functions, measure, Recursion::Keep, 1);
}
