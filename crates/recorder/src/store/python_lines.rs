//! Lines of Python functions as records of the profile. Each line and each text is stored once.

use crate::store::budgets::PYTHON_LINES_MAX;
use crate::store::ids::{PythonLineId, StringId};
use crate::store::index::Index;
use crate::store::names::hash_bytes;
use crate::store::profile::{self, Cursor};
use crate::sys::locked::Locked;
use crate::sys::wiped::Wiped;
use heaptide_format::{Kind, PythonLine, STRING_MAX};

/// The lines and texts that the profile contains. All zeros: none.
struct Lines {
    /// Strings by the two halves of their hash.
    texts: Index<2>,
    /// Records by function, file and line.
    records: Index<3>,
    used: usize,
    next: Cursor,
}

/// The function of all lines beyond the budget.
const OTHER: &[u8] = b"[other Python lines]";

// SAFETY: all zeros is a valid value.
#[unsafe(link_section = ".bss.wiped")]
static LINES: Wiped<Locked<Lines>> = unsafe { Wiped::new() };

/// Makes forked children start without lines.
pub fn wipe_in_children() {
    LINES.wipe_in_children();
}

/// Returns the record of a line, created if it is new; none if there is no room for it. Beyond the
/// budget, all new lines have one record.
#[inline(never)]
pub fn id(function: &[u8], file: &[u8], line: u32) -> PythonLineId {
    let Some(mut lines) = LINES.get().acquire() else {
        return PythonLineId::NONE;
    };
    let lines = &mut *lines;
    if lines.used >= PYTHON_LINES_MAX && !lines.has(function, file, line) {
        return lines.id(OTHER, b"", 0);
    }
    lines.id(function, file, line)
}

impl Lines {
    /// Returns whether there is a record of a line.
    fn has(&self, function: &[u8], file: &[u8], line: u32) -> bool {
        let [function, file] = [function, file].map(|text| known(&self.texts, text).1.number());
        self.records.get([function, file, line]) != 0
    }

    /// Returns the record of a line, created if it is new; none if there is no room for it.
    fn id(&mut self, function: &[u8], file: &[u8], line: u32) -> PythonLineId {
        let (function, file) = (text(&mut self.texts, function), text(&mut self.texts, file));
        let key = [function.number(), file.number(), line];
        let known = self.records.get(key);
        if known != 0 {
            return PythonLineId::new(known);
        }
        let [function, file, line] = key;
        let record = PythonLine { function, file, line, reserved: 0 };
        let Some(written) = self.next.write(Kind::PythonLines, 0, record) else {
            return PythonLineId::NONE;
        };
        let id = PythonLineId::of(written);
        self.records.insert(key, id.number());
        self.used += 1;
        id
    }
}

/// Returns the key of a text, and its string; none if it is not stored.
fn known(texts: &Index<2>, text: &[u8]) -> ([u32; 2], StringId) {
    let hash = hash_bytes(text, 0);
    let key = [hash as u32, (hash >> 32) as u32];
    (key, StringId::new(texts.get(key)))
}

/// Returns the string of a text, stored if it is new.
fn text(texts: &mut Index<2>, text: &[u8]) -> StringId {
    if text.is_empty() {
        return StringId::NONE;
    }
    let text = &text[..text.len().min(STRING_MAX)];
    let (key, known) = known(texts, text);
    if !known.is_none() && known.bytes() == text {
        return known;
    }
    let id = profile::string(text);
    if known.is_none() && !id.is_none() {
        texts.insert(key, id.number());
    }
    id
}
