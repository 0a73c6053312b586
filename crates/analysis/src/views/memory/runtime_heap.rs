//! The memory that a language runtime mapped for its own heap.

use super::runtimes::{self, RUNTIMES, Runtime};
use super::{At, Memory};
use crate::model::Process;

/// The memory that a runtime mapped for its own heap.
#[derive(Clone, Debug)]
pub struct RuntimeHeap {
    /// The runtime.
    pub runtime: &'static Runtime,
    /// The file whose code mapped the memory, without its directory.
    pub file: String,
    /// Resident bytes of these mappings in the account nearest to peak usage; `None` if there is no
    /// account, or the runtime mapped nothing.
    pub resident_bytes: Option<u64>,
}

impl RuntimeHeap {
    /// Returns the runtime of a process; of several, the one with most resident memory. `None`
    /// without one.
    pub fn of(process: &Process) -> Option<RuntimeHeap> {
        let memory = Memory::of(process, At::Peak);
        let row = memory.as_ref().and_then(|memory| memory.row("mappings"));
        let rows = row.map_or(&[][..], |row| &row.children);
        let found = rows.iter().filter_map(|row| Some((runtimes::of_row(row)?, row)));
        let largest = found.max_by_key(|(_, row)| row.resident_bytes);
        if let Some((runtime, row)) = largest {
            let file = row.children.first().and_then(|child| runtimes::file_of(&child.name));
            let file = file.unwrap_or_default().to_owned();
            return Some(RuntimeHeap { runtime, file, resident_bytes: Some(row.resident_bytes) });
        }
        let modules = process.tables.modules.iter().map(|module| module.file_name());
        modules.into_iter().find_map(|file| {
            let runtime = RUNTIMES.iter().find(|runtime| runtime.has_file(file))?;
            Some(RuntimeHeap { runtime, file: file.to_owned(), resident_bytes: None })
        })
    }
}
