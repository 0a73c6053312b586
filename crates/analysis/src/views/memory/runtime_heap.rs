//! The memory that a language runtime mapped for its own heap.

pub use super::own_mappings::Resident;
use super::runtimes::{self, RUNTIMES, Runtime};
use super::{Memory, Row};
use crate::model::Process;

/// The memory that a runtime mapped for its own heap.
#[derive(Clone, Debug)]
pub struct RuntimeHeap {
    /// The runtime.
    pub runtime: &'static Runtime,
    /// The file whose code mapped the memory, without its directory.
    pub file: String,
    /// These mappings in the account in which most of them are resident; `None` if there is no
    /// account, or the runtime mapped nothing.
    pub resident: Option<Resident>,
}

impl RuntimeHeap {
    /// Returns the runtime of a process; of several, the one with most resident memory. `None`
    /// without one.
    pub fn of(process: &Process) -> Option<RuntimeHeap> {
        // Accounts near peak usage of blocks can be far from that of the runtime.
        let all = Memory::over_time(process).flat_map(|memory| heaps(&memory));
        let bytes = |heap: &RuntimeHeap| heap.resident.map_or(0, |resident| resident.bytes);
        let larger = |a: RuntimeHeap, b: RuntimeHeap| if bytes(&b) > bytes(&a) { b } else { a };
        if let Some(largest) = all.reduce(larger) {
            return Some(largest);
        }
        let modules = process.tables.modules.iter().map(|module| module.file_name());
        modules.into_iter().find_map(|file| {
            let runtime = RUNTIMES.iter().find(|runtime| runtime.has_file(file))?;
            Some(RuntimeHeap { runtime, file: file.to_owned(), resident: None })
        })
    }
}

/// Returns the heaps of runtimes in an account.
fn heaps(memory: &Memory) -> Vec<RuntimeHeap> {
    let account = memory.account;
    let heap = |row: &Row| {
        let runtime = runtimes::of_row(row)?;
        let file = row.children.first().and_then(|child| runtimes::file_of(&child.name));
        let resident = Resident {
            bytes: row.resident_bytes,
            of_bytes: account.resident_bytes,
            time_ns: account.time_ns,
        };
        let file = file.unwrap_or_default().to_owned();
        Some(RuntimeHeap { runtime, file, resident: Some(resident) })
    };
    let rows = memory.row("mappings").map_or(&[][..], |row| &row.children);
    rows.iter().filter_map(heap).collect()
}
