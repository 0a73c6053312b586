//! Allocations without stacks, because the profile of a process had reached its limit.

use crate::model::{Process, StackId, Sum};
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
    let tables = &process.tables;
    let is_mark = |frame: &crate::model::Frame| frame.function.as_deref() == Some(UNSTORED);
    if !tables.frames.iter().any(is_mark) {
        return 0;
    }
    // Parents precede their children.
    let mut is_below = vec![false; tables.stacks.len()];
    for (index, node) in tables.stacks.iter().enumerate().skip(1) {
        let is_it = tables.frames.get(node.frame.0 as usize).is_some_and(is_mark);
        is_below[index] = is_it || is_below[node.parent.0 as usize];
    }
    let of = |StackId(stack)| is_below.get(stack as usize) == Some(&true);
    Sum::over(tables.sites.iter().filter(|site| of(site.stack))).allocations
}
