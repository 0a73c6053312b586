//! The lines of source files, with the memory that each allocates.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::aggregate::by_stack;
use crate::attribution::Owners;
use crate::model::{Measures, Process};

/// A source file, and what its lines allocate.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// The path, as debug information or the interpreter has it.
    pub path: Arc<str>,
    /// Sums over the sites whose owner is in the file.
    pub own: Measures,
    /// Sums over the sites whose stack contains the file.
    pub inclusive: Measures,
}

/// What a line of a source file allocates.
#[derive(Clone, Debug, Default)]
pub struct SourceLine {
    /// Sums over the sites whose owner is at the line. Over all lines, these add up to those of the
    /// file.
    pub own: Measures,
    /// Sums over the sites whose stack contains the line, counting each site once.
    pub inclusive: Measures,
}

/// The lines of a file by number; `None` has allocations of the file whose line is unknown.
pub type SourceLines = BTreeMap<Option<u32>, SourceLine>;

/// Returns the source files of stacks that allocated, those that own most bytes at peak first.
pub fn files(process: &Process, owners: &Owners) -> Vec<SourceFile> {
    let frames = &process.tables.frames;
    let mut ids: FxHashMap<&str, usize> = FxHashMap::default();
    let mut files: Vec<SourceFile> = Vec::new();
    let mut seen_in: Vec<usize> = Vec::new();
    for (index, (stack, measures)) in by_stack(process).enumerate() {
        let owner = owners.frame(process, stack);
        let mut is_owned = false;
        for id in process.frames_of(stack) {
            let Some(path) = &frames[id.0 as usize].file else { continue };
            let at = *ids.entry(path).or_insert_with(|| {
                let none = Measures::default();
                files.push(SourceFile { path: path.clone(), own: none, inclusive: none });
                seen_in.push(usize::MAX);
                files.len() - 1
            });
            if seen_in[at] != index {
                seen_in[at] = index;
                files[at].inclusive.add(&measures);
            }
            // A recursive function has the owner's frame several times.
            if Some(id) == owner && !std::mem::replace(&mut is_owned, true) {
                files[at].own.add(&measures);
            }
        }
    }
    files.sort_by_key(|file| {
        let sizes = [&file.own, &file.inclusive].map(|m| (m.at_peak_bytes, m.usable_bytes));
        (Reverse(sizes), file.path.clone())
    });
    files
}

/// Returns whether a name selects a path: one of them ends with all parts of the other.
///
/// ```
/// use heaptide_analysis::views::lines::selects;
/// assert!(selects("lru.py", "/app/cache/lru.py") && selects("cache/lru.py", "/app/cache/lru.py"));
/// assert!(selects("./src/a.c", "src/a.c") && selects("/app/src/a.c", "src/a.c"));
/// assert!(!selects("ru.py", "/app/lru.py") && !selects("app/lru.py", "/app/cache/lru.py"));
/// assert!(!selects("", "/app/lru.py"));
/// ```
pub fn selects(name: &str, path: &str) -> bool {
    fn parts(path: &str) -> impl Iterator<Item = &str> {
        path.split('/').rev().filter(|part| !part.is_empty() && *part != ".")
    }
    let (name_parts, path_parts) = (parts(name).count(), parts(path).count());
    let common = name_parts.min(path_parts);
    let is_whole = !name.starts_with('/') || name_parts <= path_parts || !path.starts_with('/');
    common > 0 && is_whole && parts(name).take(common).eq(parts(path).take(common))
}

/// Returns the lines of the file with this path that allocated.
pub fn of_file(process: &Process, owners: &Owners, path: &str) -> SourceLines {
    let frames = &process.tables.frames;
    let is_in_file: Vec<bool> =
        frames.iter().map(|frame| frame.file.as_deref() == Some(path)).collect();
    let mut lines = SourceLines::new();
    for (stack, measures) in by_stack(process) {
        let line = |id: crate::model::FrameId| {
            is_in_file[id.0 as usize].then(|| frames[id.0 as usize].line) //
        };
        if let Some(owner) = owners.frame(process, stack).and_then(line) {
            lines.entry(owner).or_default().own.add(&measures);
        }
        let mut here: Vec<Option<u32>> = process.frames_of(stack).filter_map(line).collect();
        here.sort_unstable();
        here.dedup();
        for number in here {
            lines.entry(number).or_default().inclusive.add(&measures);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{site, with_stacks};
    use crate::model::StackId;

    /// Returns a process whose functions are at lines of `/src/app.c`: `main` at 30, `read` at 10,
    /// `read2` at 12; `malloc` has no file.
    fn process() -> Process {
        let mut process = with_stacks(&["main;read;malloc", "main;read2;malloc", "main"]);
        for frame in &mut process.tables.frames {
            let line = match frame.function.as_deref() {
                Some("main") => 30,
                Some("read") => 10,
                Some("read2") => 12,
                _ => {
                    frame.file = None;
                    continue;
                }
            };
            (frame.file, frame.line) = (Some("/src/app.c".into()), Some(line));
        }
        process
    }

    #[test]
    fn own_values_of_lines_add_up_to_the_file_and_callers_include_callees() {
        let process = process();
        let owners = Owners::of(&process);
        let found = of_file(&process, &owners, "/src/app.c");
        let rows: Vec<(Option<u32>, u64, u64)> = found
            .iter()
            .map(|(line, of)| (*line, of.own.live_bytes, of.inclusive.live_bytes))
            .collect();
        assert_eq!(rows, [(Some(10), 1, 1), (Some(12), 2, 2), (Some(30), 4, 7)]);
        let all = files(&process, &owners);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].own.live_bytes, all[0].inclusive.live_bytes), (7, 7));
    }

    #[test]
    fn a_recursive_line_counts_each_block_once() {
        let mut process = with_stacks(&["main;walk;walk;malloc"]);
        for frame in &mut process.tables.frames {
            if frame.function.as_deref() == Some("walk") {
                (frame.file, frame.line) = (Some("walk.c".into()), Some(5));
            }
        }
        let innermost = StackId(process.tables.stacks.len() as u32 - 1);
        process.tables.sites = vec![site(innermost.0, 0, 64)];
        let owners = Owners::of(&process);
        let found = of_file(&process, &owners, "walk.c");
        let line = &found[&Some(5)];
        assert_eq!((line.own.live_bytes, line.inclusive.live_bytes), (64, 64));
        let all = files(&process, &owners);
        assert_eq!((all[0].own.live_bytes, all[0].inclusive.live_bytes), (64, 64));
    }
}
