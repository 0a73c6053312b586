//! Shared by targets: a directory and a process per thread.

use std::path::PathBuf;

use heaptide_analysis::model::{Process, Recording};
use heaptide_fixtures::{ProgramBuilder, Scratch};

/// Stacks like those of C++, Python and Rust.
const STACKS: [&str; 5] = [
    "main;std::vector<int, std::allocator<int> >::reserve(unsigned long);operator new(unsigned long)",
    "main;load;parse_config;load;@strdup;@malloc",
    "_start;@__libc_start_main;main;_PyEval_EvalFrameDefault;PyObject_Malloc",
    "std::rt::lang_start::{{closure}};app::main;<alloc::vec::Vec<u8> as Clone>::clone",
    "@_dl_init;@call_init;__cxa_guard_acquire",
];

std::thread_local! {
    static SCRATCH: Scratch = Scratch::new("fuzz");
    /// The profile of a program with [`STACKS`].
    static PROFILE: (Scratch, PathBuf) = {
        let scratch = Scratch::new("fuzz-process");
        let profile = ProgramBuilder::with_stacks(&STACKS).write(&scratch);
        (scratch, profile)
    };
}

/// Calls `run` with this thread's directory for inputs.
pub(crate) fn in_scratch<T>(run: impl FnOnce(&Scratch) -> T) -> T {
    SCRATCH.with(run)
}

/// Returns a process with [`STACKS`].
pub(crate) fn process() -> Process {
    let recording = PROFILE.with(|(_, profile)| Recording::open(profile));
    recording.expect("a recording").processes.remove(0)
}
