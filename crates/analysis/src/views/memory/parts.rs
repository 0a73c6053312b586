//! Resident memory over time: the same parts for each account, for tables and charts.

use super::{Memory, Row};

/// The position of a part among the rows of an account, and its name.
struct Part {
    name: &'static str,
    row: &'static str,
    /// A child of the row; `None` for the rest of the row.
    child: Option<&'static str>,
}

const fn of_row(name: &'static str) -> Part {
    Part { name, row: name, child: None }
}

const fn of_heap(name: &'static str) -> Part {
    Part { name, row: "heap", child: Some(name) }
}

const fn of_mappings(name: &'static str) -> Part {
    Part { name, row: "mappings", child: Some(name) }
}

const OTHER_MAPPINGS: Part = Part { name: "other mappings", row: "mappings", child: None };

const PARTS: [Part; 13] = [
    of_heap("live requested"),
    of_heap("live slack"),
    of_heap("free"),
    of_heap("overhead"),
    of_mappings("python arena"),
    of_mappings("allocator"),
    of_mappings("files"),
    of_mappings("shared memory"),
    OTHER_MAPPINGS,
    of_row("stacks"),
    of_row("modules"),
    of_row("recorder"),
    of_row("unexplained"),
];

/// Returns the names of the parts, in the order of [`Memory::parts`].
pub fn names() -> impl Iterator<Item = &'static str> {
    PARTS.iter().map(|part| part.name)
}

impl Memory<'_> {
    /// Returns the resident bytes of each part; they add up to the resident memory.
    pub fn parts(&self) -> impl Iterator<Item = u64> {
        PARTS.iter().map(|part| self.part(part))
    }

    fn part(&self, part: &Part) -> u64 {
        let Some(row) = self.row(part.row) else {
            return if part.row == "unexplained" { self.unexplained_bytes } else { 0 };
        };
        let child = |name| row.children.iter().find(|child| child.name == name);
        match part.child {
            Some(name) => child(name).map_or(0, |child| child.resident_bytes),
            None => row.resident_bytes.saturating_sub(shown_apart(row)),
        }
    }
}

/// Returns the resident bytes of the children of a row that are parts of their own.
fn shown_apart(row: &Row) -> u64 {
    let is_apart = |child: &&Row| {
        PARTS.iter().any(|part| part.row == row.name && part.child == Some(child.name.as_str()))
    };
    row.children.iter().filter(is_apart).map(|child| child.resident_bytes).sum()
}
