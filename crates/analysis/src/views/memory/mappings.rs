//! The mappings of an account by what they are.

use std::collections::BTreeMap;

use heaptide_format as format;
use rustc_hash::FxHashSet;

use super::row::{self, Row, with_largest};
use crate::model::{Account, AccountRange, Process};

/// glibc's arenas but the first are aligned to their largest size.
const ARENA_BYTES: u64 = 64 << 20;
/// Large mappings are aligned to this by the kernel.
const HUGE_PAGE: u64 = 2 << 20;

/// What a mapping is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Class {
    /// The allocator's alone.
    Arena,
    /// Without a name, with live blocks: the allocator's, perhaps with others' beside them, for the
    /// kernel merges neighbours.
    Blocks,
    /// Without a name and without blocks.
    Anonymous,
    /// Code and data of a program or library.
    Module,
    /// Any other file.
    File,
    /// Memory shared with other processes.
    Shared,
    /// The stack of a thread.
    Stack,
    /// The recorder's own.
    Recorder,
}

/// The mappings of an account, each with its class and a name.
pub(super) struct Sorted<'a> {
    ranges: Vec<(Class, &'a str, &'a AccountRange)>,
}

/// Sorts them.
pub(super) fn sort<'a>(process: &'a Process, account: &'a Account) -> Sorted<'a> {
    let is_code = |range: &&AccountRange| range.is(format::RANGE_EXECUTE);
    let mut code: FxHashSet<&str> =
        account.ranges.iter().filter(is_code).map(|range| &*range.name).collect();
    code.extend(process.tables.modules.iter().map(|module| module.path.as_str()));
    let mut ranges: Vec<(Class, &str, &AccountRange)> = Vec::with_capacity(account.ranges.len());
    for range in &account.ranges {
        let before = ranges
            .last()
            .filter(|(class, _, before)| *class == Class::Module && before.end() == range.start);
        // Zeroed data of a module follows the rest of it.
        let zeroed = before.filter(|_| is_private_data(range) && !range.is(format::RANGE_BLOCKS));
        let (class, name) = match zeroed {
            Some((class, name, _)) => (*class, *name),
            None => class_of(range, account, &code),
        };
        ranges.push((class, name, range));
    }
    Sorted { ranges }
}

/// Whether a mapping is plain memory of which nothing else is known.
fn is_private_data(range: &AccountRange) -> bool {
    let known = format::RANGE_RECORDER | format::RANGE_STACK | format::RANGE_SHARED;
    range.name.is_empty() && !range.is(known) && range.is(format::RANGE_WRITE)
}

fn class_of<'a>(
    range: &'a AccountRange,
    account: &Account,
    code: &FxHashSet<&str>,
) -> (Class, &'a str) {
    let name = &*range.name;
    if range.is(format::RANGE_RECORDER) {
        return (Class::Recorder, name);
    }
    if range.is(format::RANGE_STACK) {
        return (Class::Stack, range.thread.as_deref().unwrap_or("unknown"));
    }
    match name {
        "" if range.is(format::RANGE_SHARED) => (Class::Shared, "anonymous"),
        "" => (anonymous(range, account), ""),
        "[heap]" => (Class::Arena, name),
        "[stack]" => (Class::Stack, "first thread"),
        _ if is_shared_memory(name) => (Class::Shared, name),
        // The kernel's code, such as [vdso].
        _ if name.starts_with('[') && !name.starts_with("[anon") => (Class::Module, name),
        _ if name.starts_with('[') => (anonymous(range, account), name),
        _ if code.contains(name) => (Class::Module, name),
        _ => (Class::File, name),
    }
}

/// Whether the kernel names memory like this that is in no file system but in memory.
fn is_shared_memory(name: &str) -> bool {
    let prefixes = ["/dev/shm/", "/memfd:", "/SYSV", "/dev/zero", "[anon_shmem"];
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

fn anonymous(range: &AccountRange, account: &Account) -> Class {
    let has_blocks = range.is(format::RANGE_BLOCKS);
    let is_aligned = range.start.is_multiple_of(ARENA_BYTES) && range.length <= ARENA_BYTES;
    let is_odd = !range.length.is_multiple_of(HUGE_PAGE);
    if account.allocator.is_some() && is_aligned && (has_blocks || is_odd) {
        return Class::Arena;
    }
    if has_blocks {
        return Class::Blocks;
    }
    let is_stack = range.is(format::RANGE_GUARDED) && range.is(format::RANGE_WRITE);
    if is_stack { Class::Stack } else { Class::Anonymous }
}

impl<'a> Sorted<'a> {
    /// The mappings of a class.
    pub(super) fn of(&self, class: Class) -> impl Iterator<Item = &'a AccountRange> {
        self.ranges.iter().filter(move |range| range.0 == class).map(|range| range.2)
    }

    /// A class as a row, with a child for each name.
    pub(super) fn by_name(&self, row: &str, class: Class) -> Row {
        let mut names: BTreeMap<&str, Row> = BTreeMap::new();
        let mut all = Row { name: row.to_owned(), ..Row::default() };
        for (_, name, range) in self.ranges.iter().filter(|range| range.0 == class) {
            let name = if name.is_empty() { "other threads" } else { name };
            let child = names.entry(name).or_default();
            for row in [child, &mut all] {
                row.add(range.resident_bytes, range.length, range.swap_bytes);
            }
        }
        let child = |(name, row): (&str, Row)| Row { name: name.to_owned(), ..row };
        all.children = names.into_iter().map(child).collect();
        all
    }

    /// Mappings that are neither the heap's nor of a kind of their own; `anonymous` are those
    /// without a name.
    pub(super) fn mappings(&self, anonymous: Row) -> Row {
        let files = with_largest(self.by_name("files", Class::File));
        let shared = with_largest(self.by_name("shared memory", Class::Shared));
        let mut row = row::sum("mappings".to_owned(), [&anonymous, &files, &shared].into_iter());
        row.children = vec![anonymous, files, shared];
        row.children.retain(|child| child.resident_bytes > 0 || child.swap_bytes > 0);
        row
    }
}
