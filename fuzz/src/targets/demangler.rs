//! Any lines as symbols: the result is a readable name of bounded length, the same each time.

use heaptide_analysis::symbols::Demangler;
use heaptide_analysis::text;

/// The longest readable name, in bytes.
const LONGEST: usize = 1 << 20;

/// Demangles each line.
pub fn demangler(input: &[u8]) -> bool {
    let mut demangler = Demangler::default();
    let mut is_mangled = |line: &[u8]| {
        let symbol = text::from_bytes(line);
        let Some(name) = demangler.demangled(&symbol).map(str::to_owned) else {
            return false;
        };
        assert!(name.len() <= LONGEST, "{} bytes for {symbol}", name.len());
        assert_eq!(demangler.readable(&symbol), name);
        true
    };
    input.split(|&byte| byte == b'\n').filter(|line| is_mangled(line)).count() > 0
}
