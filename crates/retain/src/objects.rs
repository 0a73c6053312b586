//! Objects of CPython in blocks: they do not begin with the block if its garbage collector lists
//! them.

use heaptide_attach::picture::Picture;
use rustc_hash::FxHashMap;

use crate::window::words;

/// Bytes at the start of a block that show where an object begins.
pub(crate) const HEAD_BYTES: u64 = 48;
/// Bytes of the links of the garbage collector, before an object.
pub(crate) const LINK_BYTES: u64 = 16;

/// What a type is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Type {
    /// One of which the interpreter keeps freed objects for reuse, with their old pointers: a list,
    /// dictionary or tuple. All are listed by the garbage collector.
    Reused,
    Other,
}

/// An object in a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Object {
    /// Where it begins, in units of 8 bytes; 0 if it begins with the block, or if there is none.
    pub(crate) begin: u8,
    /// Whether it is of a type of which freed objects are kept for reuse.
    pub(crate) is_reused: bool,
    /// Whether it was freed, and is kept for reuse.
    pub(crate) is_freed: bool,
}

/// Recognises objects by their types.
pub(crate) struct Objects<'a> {
    picture: &'a Picture,
    /// What is at an address; `None` for no type.
    types: FxHashMap<u64, Option<Type>>,
}

impl<'a> Objects<'a> {
    pub(crate) fn of(picture: &'a Picture) -> Objects<'a> {
        Objects { picture, types: FxHashMap::default() }
    }

    /// Returns the object in a block, from its first words.
    pub(crate) fn find(&mut self, head: &[u8]) -> Object {
        let begin = begin_of(head, |address| self.kind(address).is_some());
        let head: Vec<u64> = words(head).take(4).collect();
        let [next, previous, references, kind] = head[..] else {
            return Object { begin, ..Object::default() };
        };
        // The low bits of the second link are flags. Memory that was a freed object before, such as
        // the elements of a list, begins with something else.
        let is_unlisted = next == 0 && previous < 4;
        let is_freed = begin == 0 && is_unlisted && references == 0;
        let is_listed = u64::from(begin) * 8 == LINK_BYTES;
        let is_reused = (is_freed || is_listed) && self.kind(kind) == Some(Type::Reused);
        Object { begin, is_reused, is_freed: is_freed && is_reused }
    }

    /// Returns what type is at an address.
    fn kind(&mut self, address: u64) -> Option<Type> {
        let Objects { picture, types } = self;
        let word = |address: u64| {
            let mut bytes = [0; 8];
            (picture.read(address, &mut bytes) == 8).then(|| u64::from_ne_bytes(bytes))
        };
        *types.entry(address).or_insert_with(|| {
            /// The offset of the address of a type's name.
            const NAME: u64 = 24;
            const REUSED: [&[u8]; 3] = [b"list\0", b"dict\0", b"tuple\0"];
            if !is_type(address, word) {
                return None;
            }
            let mut name = [0; 6];
            let read = word(address + NAME).map_or(0, |name_at| picture.read(name_at, &mut name));
            let is_reused = REUSED.iter().any(|known| name[..read].starts_with(known));
            Some(if is_reused { Type::Reused } else { Type::Other })
        })
    }
}

/// Returns where an object begins. Before it are the links of the garbage collector, and since
/// CPython 3.11 two words of the interpreter before these for some types. An object begins with the
/// number of references, which is small, and the address of its type.
fn begin_of(head: &[u8], mut is_type: impl FnMut(u64) -> bool) -> u8 {
    const COUNT_MAX: u64 = 1 << 32;
    let words: Vec<u64> = words(head).collect();
    let mut begins = |at: usize| (1..=COUNT_MAX).contains(&words[at]) && is_type(words[at + 1]);
    [0, 2, 4].into_iter().find(|at| begins(*at)).unwrap_or(0) as u8
}

/// Returns whether there is a type at an address: an object whose type is a type, and so on until
/// `type`, which has itself as type. `word` reads memory.
fn is_type(address: u64, word: impl Fn(u64) -> Option<u64>) -> bool {
    /// Metaclasses of metaclasses are rare.
    const LEVELS: usize = 4;
    let mut at = address;
    for _ in 0..LEVELS {
        if at == 0 || !at.is_multiple_of(8) {
            return false;
        }
        match word(at + 8) {
            Some(kind) if kind == at => return true,
            Some(kind) => at = kind,
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_begin_behind_their_links() {
        const KIND: u64 = 0x7f11_0000_0008;
        let begin = |words: [u64; 6]| {
            begin_of(&words.map(u64::to_ne_bytes).concat(), |address| address == KIND)
        };
        let link = 0x7f00_0000_1000;
        assert_eq!(begin([1, KIND, link, link, 3, KIND]), 0); // not listed
        assert_eq!(begin([link, link | 1, 2, KIND, 0, 0]), 2);
        assert_eq!(begin([0, 0, 2, KIND, 0, 0]), 2); // not tracked
        assert_eq!(begin([0, link, link, link, 5, KIND]), 4);
        assert_eq!(begin([link, link, 2, link, 0, 0]), 0); // no type
    }

    #[test]
    fn types_lead_to_type() {
        // A class at 0x100, its metaclass at 0x200, `type` at 0x300, a cycle at 0x400.
        let word = |address| match address {
            0x108 => Some(0x200),
            0x208 | 0x308 => Some(0x300),
            0x408 => Some(0x500),
            0x508 => Some(0x400),
            _ => None,
        };
        let found = [0x100, 0x200, 0x300, 0x400, 0x600, 0x104, 0].map(|at| is_type(at, word));
        assert_eq!(found, [true, true, true, false, false, false, false]);
    }
}
