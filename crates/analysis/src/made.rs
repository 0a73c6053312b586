//! A small process made by hand, for the tests of what turns tables into tables.

use std::path::PathBuf;
use std::sync::Arc;

use crate::aggregate::Sum;
use crate::model::{
    End, Frame, FrameId, Lane, LaneId, Measures, Mode, Module, ModuleId, Moved, Process, Scope,
    ScopeId, Site, SiteKind, StackId, StackNode,
};

/// Stacks 1 `main`, 2 `main;read`; scopes 1 `load`, 2 `load > parse=3`; lanes `app` and `worker`;
/// modules `/bin/app` and `/lib/libc.so`; no sites.
pub(crate) fn process() -> Process {
    let mut process = Process {
        file: PathBuf::from("app.heaptide/1-0.profile"),
        pid: 1,
        ppid: 0,
        image: 0,
        process_number: 0,
        execs: 0,
        forked: false,
        program: "app".to_owned(),
        command: vec!["app".to_owned()],
        host: String::new(),
        rank: None,
        job: String::new(),
        run: None,
        images: 1,
        start_realtime_ns: 0,
        duration_ns: 1,
        duration_is_known: true,
        end: End::Exited(0),
        mode: Mode::Stacks,
        totals: Measures::default(),
        peak_time_ns: 0,
        peak_bound_bytes: 0,
        unmatched_frees: 0,
        unrecorded: None,
        has_own_malloc: false,
        losses: Vec::new(),
        histogram: Vec::new(),
        lanes: ["app", "worker"].map(lane).to_vec(),
        modules: ["/bin/app", "/lib/libc.so"].map(module).to_vec(),
        frames: Vec::new(),
        stacks: vec![StackNode { parent: StackId(0), frame: FrameId(0) }],
        scopes: vec![scope(0, "", ""), scope(0, "region", "load"), scope(1, "parse", "3")],
        entered: Vec::new(),
        labels: Vec::new(),
        sites: Vec::new(),
        windows: Vec::new(),
        marks: Vec::new(),
        timeline: Vec::new(),
        traces: Vec::new(),
        unwinder: (0, 0),
        lanes_at_once: 1,
        part: None,
        notes: Vec::new(),
    };
    stack(&mut process, "main;read");
    process
}

/// The stack of these functions, outermost first, added where it is not there; a function with `@`
/// in front is in libc.
pub(crate) fn stack(process: &mut Process, path: &str) -> StackId {
    let mut parent = StackId(0);
    for name in path.split(';').filter(|name| !name.is_empty()) {
        let node = StackNode { parent, frame: frame(process, name) };
        let known = process.stacks.iter().skip(1).position(|other| *other == node);
        parent = StackId(known.map_or(process.stacks.len(), |at| at + 1) as u32);
        if known.is_none() {
            process.stacks.push(node);
        }
    }
    parent
}

fn frame(process: &mut Process, name: &str) -> FrameId {
    let (name, module) = match name.strip_prefix('@') {
        Some(name) => (name, ModuleId(1)),
        None => (name, ModuleId(0)),
    };
    let made = Frame {
        function: Some(Arc::from(name)),
        module: Some(module),
        offset: 0x100,
        file: Some(Arc::from(format!("/src/{name}.c"))),
        line: Some(1),
        inlined: false,
    };
    let known = process.frames.iter().position(|frame| *frame == made);
    let at = known.unwrap_or_else(|| {
        process.frames.push(made);
        process.frames.len() - 1
    });
    FrameId(at as u32)
}

/// One block of so many bytes, live and live at the peak, on the first lane.
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
        kind: SiteKind::Heap,
        measures,
        moved: Moved::default(),
        lent_bytes: 0,
    }
}

/// The process with a block for each stack, of 1, 2, 4, 8, … bytes, summed up.
pub(crate) fn with_stacks(paths: &[&str]) -> Process {
    let mut process = process();
    for (index, path) in paths.iter().enumerate() {
        let stack = stack(&mut process, path);
        process.sites.push(site(stack.0, 0, 1 << index));
    }
    process.totals = Sum::over(&process.sites);
    process.totals.peak_bytes = process.totals.at_peak_bytes;
    process
}

/// A stack as its functions, outermost first.
pub(crate) fn path_names(process: &Process, stack: StackId) -> String {
    let names = process.path_of(stack).into_iter().map(|frame| process.label(frame).into_owned());
    names.collect::<Vec<_>>().join(";")
}

/// Every stack with its live bytes, sorted.
pub(crate) fn lines(process: &Process) -> Vec<String> {
    let line =
        |site: &Site| format!("{} {}", path_names(process, site.stack), site.measures.live_bytes);
    let mut lines: Vec<_> = process.sites.iter().map(line).collect();
    lines.sort();
    lines
}

fn lane(name: &str) -> Lane {
    Lane { name: name.to_owned(), threads: 1, measures: Measures::default() }
}

fn module(path: &str) -> Module {
    let path = path.to_owned();
    Module { path, start: 0, end: 0, bias: 0, build_id: Vec::new(), unloaded: false }
}

fn scope(parent: u32, attribute: &str, value: &str) -> Scope {
    Scope {
        parent: ScopeId(parent),
        attribute: attribute.into(),
        value: value.into(),
        entered: 1,
        frees_here: 0,
        freed_here_bytes: 0,
    }
}
