//! Any bytes as a profile: reading must end with an error or with tables that hang together.
//!
//! `cargo fuzz run --sanitizer none profile_reader -- -max_len=65536` (extents begin behind the
//! first page).

#![no_main]

use std::path::Path;

use heaptide_analysis::aggregate::{Functions, GroupBy, group};
use heaptide_analysis::measure::Measure;
use heaptide_analysis::model::Process;
use heaptide_analysis::tree::{Recursion, Tree};
use heaptide_format::{FileHeader, MAGIC, Mode, VERSION};
use libfuzzer_sys::fuzz_target;
use zerocopy::{FromBytes, IntoBytes};

fuzz_target!(|input: &[u8]| {
    let _ = Process::from_bytes(input, Path::new("raw.profile"));
    if let Some(bytes) = with_head(input)
        && let Ok(process) = Process::from_bytes(&bytes, Path::new("input.profile"))
    {
        check(&process);
    }
});

/// The input with the words set right that every reader stops at, so that the rest is reached.
fn with_head(input: &[u8]) -> Option<Vec<u8>> {
    let (mut head, _) = FileHeader::read_from_prefix(input).ok()?;
    head.magic = MAGIC;
    head.version = VERSION;
    head.mode = if head.mode % 2 == 0 {
        Mode::Stacks as u32
    } else {
        Mode::Counters as u32
    };
    head.file_end = head.file_end.max(input.len() as u64);
    let mut bytes = input.to_vec();
    bytes[..size_of::<FileHeader>()].copy_from_slice(head.as_bytes());
    Some(bytes)
}

/// Sums over sites are the totals, stacks have callers first, and every view can be made.
fn check(process: &Process) {
    for &measure in Measure::all().iter().filter(|&&m| m != Measure::PeakBytes) {
        let values = process.sites.iter().map(|site| measure.of(&site.measures));
        let sum = values.fold(0, |a, b| measure.combine().of(a, b));
        assert_eq!(sum, measure.of(&process.totals), "{measure}");
    }
    for (node, index) in process.stacks.iter().zip(0u32..).skip(1) {
        assert!(node.parent.0 < index);
    }
    let functions = Functions::of(process);
    for &by in GroupBy::all() {
        group(process, &functions, by);
    }
    let measure = Measure::UsableBytes;
    let tree = Tree::top_down(process, &functions, measure, Recursion::Fold);
    assert_eq!(tree.nodes[0].inclusive, process.totals.usable_bytes);
    Tree::bottom_up(process, &functions, measure, Recursion::Keep, 1);
}
