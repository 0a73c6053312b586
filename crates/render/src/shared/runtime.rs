//! A text about the heap of a language runtime.

use heaptide_analysis::model::Process;
use heaptide_analysis::views::memory::runtime_heap::RuntimeHeap;

use crate::shared::names::printable;
use crate::shared::quantity::bytes;

/// Returns which runtime of a process has a heap of its own, its resident bytes and what shows its
/// contents; `None` without a runtime.
pub(crate) fn runtime_says(process: &Process) -> Option<String> {
    let RuntimeHeap { runtime, file, resident } = RuntimeHeap::of(process)?;
    let (name, hint) = (runtime.name, runtime.hint);
    Some(match resident {
        Some(resident) => format!(
            "{name}'s heap is not the malloc heap: {} resident in mappings of {}; {hint}",
            bytes(resident.bytes),
            printable(&file)
        ),
        None => format!("{name} has a heap of its own; {hint}"),
    })
}
