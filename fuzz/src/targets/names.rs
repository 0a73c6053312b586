//! Any bytes as an executable or library: an error, or an optional name for each address, from
//! MiniDebugInfo or debug information.

use heaptide_analysis::symbols::own_names;

use crate::fixtures::in_scratch;

/// Addresses of functions in the corpus, and around them.
const FIRST: u64 = 0xff0;
const LAST: u64 = 0x1200;
const STEP: usize = 8;

/// Looks up some addresses of the file.
pub fn names(input: &[u8]) -> bool {
    in_scratch(|scratch| {
        let file = scratch.write("library", input);
        let addresses: Vec<u64> = (FIRST..LAST).step_by(STEP).chain([u64::MAX]).collect();
        let Ok(names) = own_names(&file, &addresses) else {
            return false;
        };
        assert_eq!(names.len(), addresses.len());
        names.iter().flatten().count() > 0
    })
}
