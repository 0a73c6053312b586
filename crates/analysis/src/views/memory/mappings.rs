//! Classifies the mappings of an account.

use std::collections::BTreeMap;

use heaptide_format as format;
use rustc_hash::{FxHashMap, FxHashSet};

use super::row::{self, Row, with_largest};
use super::runtimes;
use crate::model::{Account, AccountRange, MappingClass, Mode, Process};

/// All glibc arenas except the first are aligned to their maximum size.
const ARENA_BYTES: u64 = 64 << 20;
/// The kernel aligns large mappings to this.
const HUGE_PAGE: u64 = 2 << 20;

/// The class of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Class {
    /// Memory of the allocator only.
    Arena,
    /// Memory without a name that contains live blocks: the allocator's, and possibly adjacent
    /// memory of others that the kernel merged with it.
    Blocks,
    /// Recorded mappings of an allocator whose blocks are recorded.
    Taken,
    /// Other recorded mappings without a file.
    Recorded(MappingClass),
    /// Memory without a name and without blocks that was not recorded.
    Anonymous,
    /// Code and data of a program or library.
    Module,
    /// Any other file.
    File,
    /// Memory shared with other processes.
    Shared,
    /// The stack of a thread.
    Stack,
    /// Memory of the recorder.
    Recorder,
}

/// The mappings of an account, each with its class and a name.
pub(super) struct Sorted<'a> {
    ranges: Vec<(Class, &'a str, &'a AccountRange)>,
}

/// Where a process had blocks. Memory without blocks stays the allocator's after all of them were
/// freed, as in the teardown of a program.
pub(super) struct History {
    /// Whether each mapping that contained live blocks was recorded, its begin, and the first time
    /// of an account in which it did. Addresses are used again: a mapping of the program may be
    /// where a block of glibc was.
    since_ns: BTreeMap<(bool, u64), u64>,
    /// The first time at which recorded mappings of allocators contained blocks.
    takes_since_ns: Option<u64>,
}

impl History {
    pub(super) fn of(process: &Process) -> History {
        let mut history = History { since_ns: BTreeMap::new(), takes_since_ns: None };
        for account in &process.time.accounts {
            let time_ns = account.time_ns;
            let earlier = |since: u64| since.min(time_ns);
            for range in account.ranges.iter().filter(|range| range.is(format::RANGE_BLOCKS)) {
                let start = (range.mapping.is_some(), range.start);
                let since = history.since_ns.entry(start).or_insert(time_ns);
                *since = earlier(*since);
                if is_of(range, MappingClass::Allocator) {
                    let takes = history.takes_since_ns.map_or(time_ns, earlier);
                    history.takes_since_ns = Some(takes);
                }
            }
        }
        history
    }

    /// Returns whether a mapping contains live blocks, or did so before.
    fn has_blocks(&self, range: &AccountRange, time_ns: u64) -> bool {
        let at = |address: u64| (range.mapping.is_some(), address);
        let inside = self.since_ns.range(at(range.start)..at(range.end().max(range.start)));
        range.is(format::RANGE_BLOCKS) || inside.into_iter().any(|(_, &since)| since <= time_ns)
    }
}

/// Classifies the mappings of an account.
pub(super) fn sort<'a>(
    process: &'a Process,
    account: &'a Account,
    history: &'a History,
) -> Sorted<'a> {
    let classifier = Classifier::of(process, account, history);
    let mut ranges: Vec<(Class, &str, &AccountRange)> = Vec::with_capacity(account.ranges.len());
    for range in &account.ranges {
        let before = ranges.last().filter(|(class, name, before)| {
            *class == Class::Module
                && before.end() == range.start
                && classifier.is_zeroed_data(range, name)
        });
        let (class, name) = match before {
            Some((class, name, _)) => (*class, *name),
            None => classifier.class_of(range),
        };
        ranges.push((class, name, range));
    }
    Sorted { ranges }
}

/// Properties of the account that determine the class of a mapping.
struct Classifier<'a> {
    account: &'a Account,
    history: &'a History,
    /// Files with code.
    code: FxHashSet<&'a str>,
    /// Addresses of modules by path.
    modules: FxHashMap<&'a str, Vec<(u64, u64)>>,
    /// Whether recorded mappings of allocators contain recorded blocks.
    takes_blocks: bool,
    /// Whether stacks were recorded, which determine the purpose of mappings.
    has_stacks: bool,
}

impl<'a> Classifier<'a> {
    fn of(process: &'a Process, account: &'a Account, history: &'a History) -> Classifier<'a> {
        let with_code = account.ranges.iter().filter(|range| range.is(format::RANGE_EXECUTE));
        let mut code: FxHashSet<&str> = with_code.map(|range| &*range.name).collect();
        let mut modules: FxHashMap<&str, Vec<(u64, u64)>> = FxHashMap::default();
        for module in &process.tables.modules {
            code.insert(&module.path);
            modules.entry(&module.path).or_default().push((module.start, module.end));
        }
        let takes_blocks = history.takes_since_ns.is_some_and(|since| since <= account.time_ns);
        let has_stacks = process.mode == Mode::Stacks;
        Classifier { account, history, code, modules, takes_blocks, has_stacks }
    }

    /// Returns whether a mapping directly after one of this module is its zeroed data: anonymous
    /// memory without other properties, within the bounds of the module, if these are known.
    fn is_zeroed_data(&self, range: &AccountRange, module: &str) -> bool {
        let known = format::RANGE_RECORDER
            | format::RANGE_STACK
            | format::RANGE_SHARED
            | format::RANGE_BLOCKS;
        let is_plain = range.name.is_empty() && !range.is(known) && range.is(format::RANGE_WRITE);
        let is_within = |&(start, end): &(u64, u64)| (start..end).contains(&range.start);
        let is_inside = || self.modules.get(module).is_none_or(|all| all.iter().any(is_within));
        is_plain && range.mapping.is_none() && is_inside()
    }

    fn class_of(&self, range: &'a AccountRange) -> (Class, &'a str) {
        let name = &*range.name;
        if range.is(format::RANGE_RECORDER) {
            return (Class::Recorder, name);
        }
        if range.is(format::RANGE_STACK) {
            return (Class::Stack, range.thread.as_deref().unwrap_or("unknown"));
        }
        match name {
            "" if range.is(format::RANGE_SHARED) => (Class::Shared, "anonymous"),
            "" => self.anonymous(range),
            "[heap]" if is_of(range, MappingClass::Other) => self.anonymous(range),
            "[heap]" => (Class::Arena, name),
            "[stack]" => (Class::Stack, "first thread"),
            _ if is_shared_memory(name) => (Class::Shared, name),
            // Code of the kernel, such as [vdso].
            _ if name.starts_with('[') && !name.starts_with("[anon") => (Class::Module, name),
            _ if name.starts_with('[') => self.anonymous(range),
            _ if self.code.contains(name) => (Class::Module, name),
            _ => (Class::File, name),
        }
    }

    /// Returns the class and the name of a private mapping without a file.
    fn anonymous(&self, range: &'a AccountRange) -> (Class, &'a str) {
        let has_blocks = self.history.has_blocks(range, self.account.time_ns);
        let Some(mapping) = &range.mapping else {
            return (self.unrecorded(range), "");
        };
        let caller = mapping.caller.as_deref().unwrap_or("without a stack");
        match mapping.class {
            MappingClass::ThreadStack => (Class::Stack, ""),
            MappingClass::Allocator if self.takes_blocks => (Class::Taken, caller),
            _ if has_blocks => (Class::Taken, caller),
            MappingClass::Other if !self.has_stacks => (Class::Anonymous, ""),
            class => (Class::Recorded(class), caller),
        }
    }

    fn unrecorded(&self, range: &AccountRange) -> Class {
        let has_blocks = self.history.has_blocks(range, self.account.time_ns);
        let is_aligned = range.start.is_multiple_of(ARENA_BYTES) && range.length <= ARENA_BYTES;
        let is_odd = !range.length.is_multiple_of(HUGE_PAGE);
        if self.account.glibc().is_some() && is_aligned && (has_blocks || is_odd) {
            return Class::Arena;
        }
        if has_blocks {
            return Class::Blocks;
        }
        let is_stack = range.is(format::RANGE_GUARDED) && range.is(format::RANGE_WRITE);
        if is_stack { Class::Stack } else { Class::Anonymous }
    }
}

/// Moves the children that language runtimes mapped for their own heaps to a row for each runtime.
fn take_runtimes(row: &mut Row) -> Vec<Row> {
    let mut found: Vec<Row> = Vec::new();
    for child in std::mem::take(&mut row.children) {
        let Some(runtime) = runtimes::of_caller(&child.name) else {
            row.children.push(child);
            continue;
        };
        row.subtract(&child);
        let name = runtimes::row_name(runtime);
        let at = found.iter().position(|row| row.name == name).unwrap_or_else(|| {
            found.push(Row { name, ..Row::default() });
            found.len() - 1
        });
        found[at].add(child.resident_bytes, child.size_bytes, child.swap_bytes);
        found[at].children.push(child);
    }
    found.into_iter().map(with_largest).collect()
}

/// Returns whether a mapping was recorded and is of a class.
fn is_of(range: &AccountRange, class: MappingClass) -> bool {
    range.mapping.as_ref().is_some_and(|mapping| mapping.class == class)
}

/// Returns whether a name is one that the kernel gives to shared memory without a file on disk.
fn is_shared_memory(name: &str) -> bool {
    let prefixes = ["/dev/shm/", "/memfd:", "/SYSV", "/dev/zero", "[anon_shmem"];
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

impl<'a> Sorted<'a> {
    /// Returns the mappings of a class.
    pub(super) fn of(&self, class: Class) -> impl Iterator<Item = &'a AccountRange> {
        self.ranges.iter().filter(move |range| range.0 == class).map(|range| range.2)
    }

    /// Returns a class as a row, with a child for each name.
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

    /// Returns a row for mappings that belong neither to the heap nor to another row; `anonymous`
    /// are the unrecorded ones.
    pub(super) fn mappings(&self, anonymous: Row) -> Row {
        let recorded = MappingClass::ALL.map(|class| (class.name(), Class::Recorded(class)));
        let by_file = [("files", Class::File), ("shared memory", Class::Shared)];
        let known = recorded.into_iter().chain(by_file);
        let mut children: Vec<Row> = Vec::new();
        for (name, class) in known {
            let mut row = self.by_name(name, class);
            if class == Class::Recorded(MappingClass::Other) {
                children.extend(take_runtimes(&mut row));
            }
            children.push(with_largest(row));
        }
        children.push(anonymous);
        let mut row = row::sum("mappings".to_owned(), children.iter());
        row.children = children;
        row.children.retain(|child| child.resident_bytes > 0 || child.swap_bytes > 0);
        row
    }
}
