//! Finds modules whose missing function names make stacks unreadable.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::attribution::{Owners, Role, is_of_libc, known};
use crate::model::{Frame, Process, Recording, Site};

/// A module without names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unnamed {
    /// Path of the module; `None` for code without a file, such as that of a JIT compiler.
    pub module: Option<String>,
    /// Bytes allocated by stacks that are unreadable because of it.
    pub bytes: u64,
}

/// Returns the modules that make stacks unreadable, ordered by allocated bytes, and the bytes of
/// all stacks. A stack is unreadable if its innermost function, the one that owns its blocks or at
/// least half of its functions have no name; the innermost of these is the reason. Code of the C
/// library that starts the program is ignored.
pub fn unnamed(recording: &Recording) -> (Vec<Unnamed>, u64) {
    let mut by_module: BTreeMap<Option<&str>, u64> = BTreeMap::new();
    let mut total_bytes = 0;
    for process in &recording.processes {
        let owners = Owners::of(process);
        for site in &process.tables.sites {
            let bytes = site.measures.usable_bytes;
            total_bytes = bytes.saturating_add(total_bytes);
            if let Some(frame) = reason(process, &owners, site) {
                *by_module.entry(module(process, frame)).or_default() += bytes;
            }
        }
    }
    let mut all: Vec<_> = by_module
        .into_iter()
        .map(|(module, bytes)| Unnamed { module: module.map(str::to_owned), bytes })
        .collect();
    all.sort_by_key(|unnamed| Reverse(unnamed.bytes));
    (all, total_bytes)
}

/// Returns the frame that makes a stack unreadable; `None` if the stack is readable.
fn reason<'a>(process: &'a Process, owners: &Owners, site: &Site) -> Option<&'a Frame> {
    let frames = || process.frames_of(site.stack).map(|id| &process.tables.frames[id.0 as usize]);
    let innermost = frames().position(|frame| frame.function.is_none())?;
    let mut frames: Vec<&Frame> = frames().collect();
    let reason = frames[innermost];
    while frames.last().is_some_and(|frame| starts(process, frame)) {
        frames.pop();
    }
    let unnamed = frames.iter().filter(|frame| frame.function.is_none()).count();
    let owner = owners.frame(process, site.stack).map(|id| &process.tables.frames[id.0 as usize]);
    let is_owned = owner.is_some_and(|owner| owner.function.is_some());
    let is_half = unnamed > 0 && 2 * unnamed >= frames.len();
    (innermost == 0 || unnamed > 0 && !is_owned || is_half).then_some(reason)
}

/// Returns whether a frame, as outermost frame, is code that starts the program or a thread.
fn starts(process: &Process, frame: &Frame) -> bool {
    match &frame.function {
        Some(function) => known().role(function) == Role::Starter,
        None => is_of_libc(process, frame),
    }
}

fn module<'a>(process: &'a Process, frame: &Frame) -> Option<&'a str> {
    let module = process.tables.modules.get(frame.module?.0 as usize)?;
    Some(module.path.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::with_stacks;
    use crate::model::ModuleId;

    /// Returns the reason why a stack is unreadable. Functions are `name@module`, outermost first.
    fn reason_of(stack: &[&str]) -> Option<String> {
        let names: Vec<String> = (0..stack.len()).map(|n| format!("f{n}")).collect();
        let mut process = with_stacks(&[&names.join(";")]);
        let site = process.tables.sites[0];
        let ids: Vec<_> = process.path_of(site.stack);
        let first = process.tables.modules[0].clone();
        for (id, function) in ids.into_iter().zip(stack) {
            let (name, module) = function.split_once('@').expect("name@module");
            let path = format!("/usr/lib/{module}");
            let frame = &mut process.tables.frames[id.0 as usize];
            frame.function = (!name.is_empty()).then(|| name.into());
            frame.module = Some(ModuleId(process.tables.modules.len() as u32));
            process.tables.modules.push(crate::model::Module { path, ..first.clone() });
        }
        let owners = Owners::of(&process);
        let frame = reason(&process, &owners, &site)?;
        module(&process, frame).map(str::to_owned)
    }

    #[test]
    fn a_stack_cannot_be_read_without_its_innermost_or_half_of_its_names() {
        assert_eq!(reason_of(&["main@app", "parse@app"]), None);
        assert_eq!(reason_of(&["main@app", "@libz.so"]).as_deref(), Some("/usr/lib/libz.so"));
        assert_eq!(reason_of(&["@app", "strdup@libc.so.6"]).as_deref(), Some("/usr/lib/app"));
        assert_eq!(reason_of(&["@app", "main@app", "strdup@libc.so.6"]), None);
    }

    /// nginx's own wrapper has a name, since it is exported, and the code that owns the blocks has
    /// none.
    #[test]
    fn a_named_wrapper_does_not_make_its_caller_readable() {
        let names = ["main", "start", "load", "", "xmalloc"];
        let mut process = with_stacks(&["main;start;load;owner;xmalloc"]);
        for (frame, name) in process.tables.frames.iter_mut().zip(names) {
            frame.function = (!name.is_empty()).then(|| name.into());
        }
        let (site, owners) = (process.tables.sites[0], Owners::of(&process));
        assert!(reason(&process, &owners, &site).is_some());
        process.tables.frames[3].function = Some("parse".into());
        let owners = Owners::of(&process);
        assert!(reason(&process, &owners, &site).is_none());
    }

    /// The start of a Python program with the stripped C library of Debian 13.
    #[test]
    fn what_starts_a_program_needs_no_name() {
        let start = ["_start@python3", "@libc.so.6", "@libc.so.6"];
        assert_eq!(reason_of(&[&start[..], &["<module app.py>@python3"]].concat()), None);
        assert_eq!(reason_of(&[&start[..], &["main@app", "f@app"]].concat()), None);
        let stripped = [&start[1..], &["@app", "@app", "strdup@libc.so.6"]].concat();
        assert_eq!(reason_of(&stripped).as_deref(), Some("/usr/lib/app"));
        assert_eq!(reason_of(&["@libc.so.6"]).as_deref(), Some("/usr/lib/libc.so.6"));
    }
}
