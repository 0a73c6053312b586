//! Any bytes as the file that a JIT compiler writes for profilers, a dump or a map: functions do
//! not overlap, and are found at their addresses.

use heaptide_analysis::symbols::Code;

/// Reads the file and looks up its functions.
pub fn jit(input: &[u8]) -> bool {
    let code = Code::read(input);
    let mut behind = 0;
    for (start, end, name) in code.functions() {
        assert!(behind <= start && start < end && !name.is_empty(), "{start:x} {end:x} {name}");
        for address in [start, start + (end - start) / 2, end - 1] {
            assert_eq!(code.name(address), Some(name), "{address:x}");
        }
        behind = end;
    }
    assert_eq!(code.name(behind), None);
    behind > 0
}
