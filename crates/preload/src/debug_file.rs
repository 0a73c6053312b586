//! The separate debug file of a stripped program, which has the symbol table of the program. It is
//! found by the build-id in a note of the program.

use heaptide_format::attachment::DEBUG_FILES;
use heaptide_recorder::sys::text::Text;

/// The path of a debug file. A build-id has 20 bytes; with an unusual linker it can have a few
/// more.
pub type DebugPath = Text<96>;

/// Bytes of notes to read: the build-id is one of the first.
pub const NOTES_BYTES: usize = 256;

const NOTE_HEADER: usize = 12;
const NT_GNU_BUILD_ID: u32 = 3;

/// Writes where the debug file of a program with these notes is. Returns false without a build-id.
/// The path is not a result, since that would take more stack.
pub fn find(notes: &[u8], path: &mut DebugPath) -> bool {
    build_id(notes).is_some_and(|build_id| write_path(build_id, path))
}

fn build_id(notes: &[u8]) -> Option<&[u8]> {
    let mut rest = notes;
    loop {
        let number = |at: usize| Some(u32::from_le_bytes(rest.get(at..at + 4)?.try_into().ok()?));
        let (name_bytes, bytes) = (number(0)? as usize, number(4)? as usize);
        let content_at = NOTE_HEADER.checked_add(name_bytes.checked_next_multiple_of(4)?)?;
        let content = rest.get(content_at..content_at.checked_add(bytes)?)?;
        let name = rest.get(NOTE_HEADER..NOTE_HEADER + name_bytes)?;
        if number(8)? == NT_GNU_BUILD_ID && name == b"GNU\0" {
            return Some(content);
        }
        rest = rest.get(content_at + bytes.checked_next_multiple_of(4)?..)?;
    }
}

/// Writes `…/ab/cdef.debug` for the build-id `abcdef`.
fn write_path(build_id: &[u8], path: &mut DebugPath) -> bool {
    path.truncate(0);
    path.push(DEBUG_FILES.as_bytes());
    for (byte, index) in build_id.iter().zip(0..) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        if index == 1 {
            path.push(b"/");
        }
        path.push(&[byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]));
    }
    path.push(b".debug");
    path.is_whole() && build_id.len() > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn note(name: &[u8], kind: u32, content: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [name.len() as u32, content.len() as u32, kind] {
            bytes.extend(number.to_le_bytes());
        }
        for part in [name, content] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    fn path(notes: &[Vec<u8>]) -> Option<Vec<u8>> {
        let mut path = DebugPath::new();
        find(&notes.concat(), &mut path).then(|| path.bytes().to_vec())
    }

    #[test]
    fn the_build_id_is_one_of_the_notes() {
        let id = note(b"GNU\0", 3, &[0xab, 0xcd, 0xef]);
        let other = note(b"stapsdt\0", 3, &[1, 2, 3, 4, 5]);
        let tag = note(b"GNU\0", 1, &[0; 16]);
        let known = Some(b"/usr/lib/debug/.build-id/ab/cdef.debug".to_vec());
        assert_eq!(path(&[other.clone(), tag.clone(), id.clone()]), known);
        assert_eq!(path(&[id]), known);
        assert_eq!(path(&[other, tag]), None);
        assert_eq!(path(&[]), None);
    }

    #[test]
    fn damaged_notes_have_no_build_id() {
        assert_eq!(path(&[note(b"GNU\0", 3, &[])]), None);
        assert_eq!(path(&[note(b"GNU\0", 3, &[7])]), None, "no name of a file");
        assert_eq!(path(&[note(b"GNU\0", 3, &[7; 90])]), None, "too long");
        let whole = note(b"GNU\0", 3, &[1, 2, 3, 4]);
        for length in 0..whole.len() {
            assert_eq!(path(&[whole[..length].to_vec()]), None, "{length}");
        }
        assert_eq!(path(&[[0xff; 32].to_vec()]), None);
    }
}
