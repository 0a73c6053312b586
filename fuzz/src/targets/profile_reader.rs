//! Any bytes as a profile: reading ends with an error, or with consistent tables.

use std::path::Path;

use heaptide_analysis::attribution::Owners;
use heaptide_analysis::model::{Measure, Measures, Process, Sum};
use heaptide_analysis::views::aggregate::{GroupBy, group};
use heaptide_analysis::views::scopes;
use heaptide_analysis::views::tree::{Recursion, Tree};
use heaptide_format::{FileHeader, MAGIC, Mode, VERSION};
use zerocopy::{FromBytes, IntoBytes};

/// Reads the input unchanged, and with valid values in the words that every reader checks.
pub fn profile_reader(input: &[u8]) -> bool {
    let _ = Process::from_bytes(input, Path::new("raw.profile"));
    if let Some(bytes) = with_head(input)
        && let Ok(mut process) = Process::from_bytes(&bytes, Path::new("input.profile"))
    {
        check(&process);
        process.fold_scopes();
        check(&process);
        return !process.tables.sites.is_empty();
    }
    false
}

/// Returns the input with valid values in the words that every reader checks, to reach the other
/// code.
fn with_head(input: &[u8]) -> Option<Vec<u8>> {
    let (mut head, _) = FileHeader::read_from_prefix(input).ok()?;
    head.magic = MAGIC;
    head.version = from_one(head.version, VERSION);
    head.mode = from_one(head.mode, Mode::Scopes as u32);
    head.file_end = head.file_end.max(input.len() as u64);
    let mut bytes = input.to_vec();
    bytes[..size_of::<FileHeader>()].copy_from_slice(head.as_bytes());
    Some(bytes)
}

/// Returns a number from 1 to `most`, unchanged if it is in that range.
fn from_one(number: u32, most: u32) -> u32 {
    number.wrapping_sub(1) % most + 1
}

/// Checks that sums over sites equal the totals, outer frames and scopes come first, and every view
/// works.
pub(super) fn check(process: &Process) {
    let whole = Measures { peak_bytes: 0, ..process.totals };
    assert_eq!(Sum::over(&process.tables.sites), whole);
    for (node, index) in process.tables.stacks.iter().zip(0u32..).skip(1) {
        assert!(node.parent.0 < index);
    }
    for (scope, index) in process.tables.scopes.iter().zip(0u32..).skip(1) {
        assert!(scope.parent.0 < index);
    }
    let owners = Owners::of(process);
    for &by in GroupBy::all() {
        group(process, &owners, by);
    }
    assert_eq!(scopes::sums(process, None).len(), process.tables.scopes.len());
    let measure = Measure::UsableBytes;
    Tree::top_down(process, &owners.functions, measure, Recursion::Fold);
    Tree::bottom_up(process, &owners, measure, Recursion::Keep, 1);
}
