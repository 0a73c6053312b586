//! Small synthetic processes for the unit tests of selections and views.

use heaptide_fixtures::{ProgramBuilder, Scratch};

use crate::model::{LaneId, Measures, Moved, Process, Recording, ScopeId, Site, SiteKind, StackId};

/// Returns a process with stacks 1 `main`, 2 `main;read`; scopes 1 `load`, 2 `load > parse=3`;
/// lanes `app` and `worker`; modules `/bin/app` and `/lib/libc.so`; no sites.
pub(crate) fn process() -> Process {
    let mut program = ProgramBuilder::new();
    program.stack("main;read");
    let p = &mut program.profile;
    let (load, parse) = (p.name("region", "load"), p.name_int("parse", 3));
    let root = p.scope(0, 0, 0, |_| {});
    let load = p.scope(0, root, load, |scope| scope.entered = 1);
    p.scope(0, load, parse, |scope| scope.entered = 1);
    read(&program)
}

/// Writes and reads the recording of a synthetic program.
pub(crate) fn read(program: &ProgramBuilder) -> Process {
    let scratch = Scratch::new("made");
    let mut recording = Recording::open(&program.write(&scratch)).expect("a recording");
    recording.processes.remove(0)
}

/// Returns a process with a block for each stack, of 1, 2, 4, 8, … bytes.
pub(crate) fn with_stacks(paths: &[&str]) -> Process {
    read(&ProgramBuilder::with_stacks(paths))
}

/// Returns the site of one block of `bytes` bytes, live and live at peak, on the first lane.
pub(crate) fn site(stack: u32, scope: u32, bytes: u64) -> Site {
    let measures = Measures {
        allocations: 1,
        requested_bytes: bytes,
        usable_bytes: bytes,
        live_blocks: 1,
        live_bytes: bytes,
        at_peak_blocks: 1,
        at_peak_bytes: bytes,
        largest_bytes: bytes,
        ..Measures::default()
    };
    Site {
        stack: StackId(stack),
        scope: ScopeId(scope),
        label: None,
        lane: LaneId(0),
        size: None,
        call: None,
        kind: SiteKind::Heap,
        measures,
        moved: Moved::default(),
        lent_bytes: 0,
    }
}

/// Returns the functions of a stack, outermost first.
pub(crate) fn path_names(process: &Process, stack: StackId) -> String {
    let names = process.path_of(stack).into_iter().map(|frame| process.label(frame).into_owned());
    names.collect::<Vec<_>>().join(";")
}

/// Returns every stack with its live bytes, sorted.
pub(crate) fn lines(process: &Process) -> Vec<String> {
    let line =
        |site: &Site| format!("{} {}", path_names(process, site.stack), site.measures.live_bytes);
    let mut lines: Vec<_> = process.tables.sites.iter().map(line).collect();
    lines.sort();
    lines
}
