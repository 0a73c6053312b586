//! The strings of a profile as shared text.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::strings::Strings;
use crate::text;

/// Shared strings without duplicates; all together are no longer than the file.
pub(crate) struct Texts<'a> {
    strings: &'a Strings<'a>,
    known: FxHashMap<u32, Arc<str>>,
    kept: FxHashSet<Arc<str>>,
    room: usize,
}

impl<'a> Texts<'a> {
    /// Returns an empty set for these strings; it stores at most `room` bytes.
    pub(super) fn new(strings: &'a Strings<'a>, room: usize) -> Texts<'a> {
        Texts { strings, known: FxHashMap::default(), kept: FxHashSet::default(), room }
    }

    /// Returns the string of a reference; truncated if there is no more room.
    pub(super) fn get(&mut self, reference: u32) -> Arc<str> {
        if let Some(text) = self.known.get(&reference) {
            return text.clone();
        }
        let bytes = self.strings.raw(reference);
        let bytes = &bytes[..bytes.len().min(self.room)];
        self.room -= bytes.len();
        let text = self.keep(&text::from_bytes(bytes));
        self.known.insert(reference, text.clone());
        text
    }

    /// Returns the shared copy of a text.
    pub(super) fn keep(&mut self, text: &str) -> Arc<str> {
        if let Some(kept) = self.kept.get(text) {
            return kept.clone();
        }
        let kept: Arc<str> = Arc::from(text);
        self.kept.insert(kept.clone());
        kept
    }
}
