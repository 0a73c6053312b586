//! Frames as text: labels, modules, source places.

use std::borrow::Cow;

use heaptide_analysis::attribution::{Role, known};
use heaptide_analysis::model::{Frame, Process};

use crate::shared::names::{elide_middle, printable, shorten};

/// Returns the last component of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

/// Returns the path of the file that contains a frame's code; empty if there is none.
pub fn module_path<'a>(process: &'a Process, frame: &Frame) -> &'a str {
    let module = frame.module.and_then(|id| process.tables.modules.get(id.0 as usize));
    module.map_or("", |m| &m.path)
}

/// Returns the name of that file without its directory; `?` if there is none.
pub fn module_name<'a>(process: &'a Process, frame: &Frame) -> &'a str {
    match module_path(process, frame) {
        "" => "?",
        path => file_name(path),
    }
}

/// Like [`module_name`], but printable.
pub(crate) fn module_shown<'a>(process: &'a Process, frame: &Frame) -> Cow<'a, str> {
    printable(module_name(process, frame))
}

/// Returns `  [module]` to append to the name of a function, or the source file if the code is in
/// no module. Empty if neither is known, or if the name includes the module.
pub fn in_module(process: &Process, frame: &Frame) -> String {
    match (&frame.function, frame.module) {
        (Some(_), Some(_)) => format!("  [{}]", module_shown(process, frame)),
        (Some(_), None) => match &frame.file {
            Some(file) => format!("  [{}]", printable(file_name(file))),
            None => String::new(),
        },
        _ => String::new(),
    }
}

/// Returns the label of a frame in at most `width` characters: its function, else
/// `module+0xoffset`.
pub fn label(process: &Process, frame: &Frame, width: usize) -> String {
    match &frame.function {
        Some(scope) if frame.is_scope() => elide_middle(scope, width),
        Some(function) => shorten(function, width),
        None if frame.module.is_none() => elide_middle(&format!("{:#x}", frame.offset), width),
        None => {
            elide_middle(&format!("{}+{:#x}", module_name(process, frame), frame.offset), width)
        }
    }
}

/// Returns the source place of a frame, such as `file.c:12`, else its module.
pub fn place(process: &Process, frame: &Frame) -> String {
    let file = frame.file.as_deref().map(|file| printable(file_name(file)));
    match (file, frame.line) {
        (Some(file), Some(line)) => format!("{file}:{line}"),
        (Some(file), None) => file.into_owned(),
        (None, _) if frame.module.is_none() || frame.function.is_none() => String::new(),
        (None, _) => module_shown(process, frame).into_owned(),
    }
}

/// Returns whether a frame starts a program or a thread.
pub fn is_starter(frame: &Frame) -> bool {
    frame.function.as_deref().is_some_and(|f| known().role(f) == Role::Starter)
}
