//! JSON whose strings consist of printable characters. Control characters from U+007F on and
//! bidirectional controls, which JSON encoders do not escape, are escaped, too.

use std::io::{self, BufWriter, Write};

use heaptide_analysis::text::is_unprintable;
use serde::Serialize;

/// Writes a value as compact JSON.
///
/// Errors: those of `out`.
pub(crate) fn write(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    // The encoder writes a few bytes at a time, always whole characters; the buffer keeps them
    // whole.
    let mut buffer = BufWriter::new(PrintableJson(out));
    let written = serde_json::to_writer(&mut buffer, value).map_err(io::Error::from);
    written.and_then(|()| buffer.flush())
}

/// A writer for encoded JSON, which has to arrive in whole characters. Characters that are escaped
/// here occur only in strings.
pub struct PrintableJson<'a>(pub &'a mut dyn Write);

impl Write for PrintableJson<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Fast path: nearly all output is printable ASCII.
        if bytes.iter().all(|byte| (b' '..=b'~').contains(byte)) {
            return self.0.write(bytes);
        }
        let text = String::from_utf8_lossy(bytes);
        let mut rest = &*text;
        while let Some(at) = rest.find(is_escaped) {
            let (before, after) = rest.split_at(at);
            let mut after = after.chars();
            // No escaped character is above U+FFFF.
            let code = after.next().map_or(0, u32::from);
            write!(self.0, "{before}\\u{code:04x}")?;
            rest = after.as_str();
        }
        self.0.write_all(rest.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Returns whether a character is escaped here. The encoder has escaped characters below the space
/// in strings.
fn is_escaped(c: char) -> bool {
    c > '~' && is_unprintable(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_the_same_when_read() {
        let text = "a\u{9b}b\u{202e}\u{7f}\n\u{1b}\"\\größe😀\u{ffff}";
        let mut json = Vec::new();
        write(&mut json, &[text]).unwrap();
        let json = String::from_utf8(json).unwrap();
        assert_eq!(json, r#"["a\u009bb\u202e\u007f\n\u001b\"\\größe😀\uffff"]"#);
        assert_eq!(serde_json::from_str::<[String; 1]>(&json).unwrap()[0], text);
    }
}
