//! Any text as suppressions, applied to the leaks of a process.

use std::sync::LazyLock;

use heaptide_analysis::model::Process;
use heaptide_analysis::views::leaks::Leaks;
use heaptide_analysis::views::suppressions::Suppressions;

static PROCESS: LazyLock<Process> = LazyLock::new(crate::fixtures::process);

/// Suppresses leaks of the process: remaining and suppressed leaks add up to live memory.
pub fn suppressions(input: &[u8]) -> bool {
    let mut suppressions = Suppressions::built_in();
    let is_read = suppressions.add(&String::from_utf8_lossy(input)).is_ok();
    let leaks = Leaks::of(&PROCESS, &suppressions);
    assert_eq!(leaks.used.len(), suppressions.names().len());
    let blocks: u64 = leaks.used.iter().map(|used| used.blocks).sum();
    let bytes: u64 = leaks.used.iter().map(|used| used.bytes).sum();
    let live = (PROCESS.totals.live_blocks, PROCESS.totals.live_bytes);
    assert_eq!((blocks + leaks.blocks(), bytes + leaks.bytes()), live);
    is_read
}
