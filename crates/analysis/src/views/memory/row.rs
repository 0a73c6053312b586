//! A row of an account of resident memory.

/// Maximum number of separate children of a row; the others are merged.
const CHILDREN: usize = 10;

/// A part of the resident memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Row {
    /// Its key for scripts; for a child its name.
    pub name: String,
    /// Resident bytes.
    pub resident_bytes: u64,
    /// Bytes of address space, or bytes counted by the allocator or the recorder.
    pub size_bytes: u64,
    /// Bytes in swap.
    pub swap_bytes: u64,
    /// Its parts, which add up to it.
    pub children: Vec<Row>,
}

/// Keeps the largest children of a row, and merges the others.
pub(super) fn with_largest(mut row: Row) -> Row {
    row.children.sort_by(|a, b| (b.resident_bytes, &a.name).cmp(&(a.resident_bytes, &b.name)));
    if row.children.len() > CHILDREN + 1 {
        let others = row.children.split_off(CHILDREN);
        let name = format!("{} others", others.len());
        row.children.push(sum(name, others.iter()));
    }
    row
}

/// Returns a row with the sums of others.
pub(super) fn sum<'a>(name: String, rows: impl Iterator<Item = &'a Row>) -> Row {
    rows.fold(Row { name, ..Row::default() }, |mut sum, row| {
        sum.add(row.resident_bytes, row.size_bytes, row.swap_bytes);
        sum
    })
}

impl Row {
    /// Subtracts the values of one of its parts.
    pub(super) fn subtract(&mut self, part: &Row) {
        self.resident_bytes = self.resident_bytes.saturating_sub(part.resident_bytes);
        self.size_bytes = self.size_bytes.saturating_sub(part.size_bytes);
        self.swap_bytes = self.swap_bytes.saturating_sub(part.swap_bytes);
    }

    /// Adds resident bytes, size and bytes in swap.
    pub(super) fn add(&mut self, resident: u64, size: u64, swap: u64) {
        self.resident_bytes = self.resident_bytes.saturating_add(resident);
        self.size_bytes = self.size_bytes.saturating_add(size);
        self.swap_bytes = self.swap_bytes.saturating_add(swap);
    }
}
