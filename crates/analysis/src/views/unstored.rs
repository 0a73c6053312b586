//! Allocations without stacks, because the profile of a process had reached its limit, and stacks
//! without their outer frames.

use crate::model::{DEEPER_FRAMES_CUT, Frame, Process, Site, Sum};
use crate::tables::process::UNSTORED;

/// Returns the number of allocations whose stacks were not stored because of the profile's limit.
///
/// ```
/// # let mut bytes = vec![0; 4096];
/// # bytes[..8].copy_from_slice(b"HEAPTIDE");
/// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
/// # use heaptide_analysis::model::Process;
/// # let process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
/// assert_eq!(heaptide_analysis::views::unstored::unstored_allocations(&process), 0);
/// ```
pub fn unstored_allocations(process: &Process) -> u64 {
    let Some(is_below) = below(process, UNSTORED) else { return 0 };
    let is_it = |site: &&Site| is_below.get(site.stack.0 as usize) == Some(&true);
    Sum::over(process.tables.sites.iter().filter(is_it)).allocations
}

/// Returns the number of stacks whose outer frames were cut, because they were deeper than the
/// limit.
pub fn cut_stacks(process: &Process) -> u64 {
    let Some(mut is_left) = below(process, DEEPER_FRAMES_CUT) else { return 0 };
    let stacks = process.tables.sites.iter().map(|site| site.stack.0 as usize);
    let is_first = |stack: &usize| is_left.get_mut(*stack).is_some_and(std::mem::take);
    stacks.filter(is_first).count() as u64
}

/// Returns whether each stack has a frame of this name; `None` if none has.
fn below(process: &Process, name: &str) -> Option<Vec<bool>> {
    let tables = &process.tables;
    let is_mark = |frame: &Frame| frame.function.as_deref() == Some(name);
    if !tables.frames.iter().any(is_mark) {
        return None;
    }
    // Parents precede their children.
    let mut is_below = vec![false; tables.stacks.len()];
    for (index, node) in tables.stacks.iter().enumerate().skip(1) {
        let is_it = tables.frames.get(node.frame.0 as usize).is_some_and(is_mark);
        is_below[index] = is_it || is_below[node.parent.0 as usize];
    }
    Some(is_below)
}
