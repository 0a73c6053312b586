//! Comparisons of synthetic processes with known results.

use super::*;
use crate::model::{
    CodeKind, Frame, FrameId, LaneId, Measure, Measures, Module, ModuleId, Moved, Process, Scope,
    ScopeId, Site, SiteKind, StackId, StackNode,
};

/// A process of a program with one library. Stacks are `outermost;…;innermost BYTES`; a frame is
/// `name`, `name@library`, or `@library` without a name; scopes are `outermost>…>innermost`.
struct Made {
    process: Process,
}

fn made(program: &str, library: &str) -> Made {
    let mut bytes = vec![0; 4096];
    bytes[..8].copy_from_slice(b"HEAPTIDE");
    (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    let mut process = Process::from_bytes(&bytes, "1-0.profile".as_ref()).expect("a profile");
    let module = |path: &str| Module {
        path: path.to_owned(),
        start: 0,
        end: 0,
        bias: 0,
        build_id: Vec::new(),
        unloaded: false,
    };
    process.identity.program = program.to_owned();
    process.tables.modules = vec![module(program), module(library)];
    Made { process }
}

impl Made {
    fn frame(&mut self, text: &str) -> FrameId {
        let (name, module) = match text.split_once('@') {
            Some((name, _)) => (name, 1),
            None => (text, 0),
        };
        let offset = self.process.tables.frames.len() as u64;
        self.process.tables.frames.push(Frame {
            function: (!name.is_empty()).then(|| name.into()),
            module: Some(ModuleId(module)),
            offset,
            file: None,
            line: None,
            inlined: false,
            code: CodeKind::Native,
        });
        FrameId(offset as u32)
    }

    fn site(&mut self, stack: StackId, scope: ScopeId, bytes: u64) {
        let measures = Measures { live_bytes: bytes, largest_bytes: bytes, ..Measures::default() };
        self.process.totals.add(&measures);
        self.process.tables.sites.push(Site {
            stack,
            scope,
            label: None,
            lane: LaneId(0),
            size: None,
            call: None,
            kind: SiteKind::Heap,
            measures,
            moved: Moved::default(),
            lent_bytes: 0,
        });
    }

    fn stack(mut self, path: &str, bytes: u64) -> Made {
        let mut parent = StackId(0);
        for name in path.split(';').filter(|name| !name.is_empty() && *name != "-") {
            let frame = self.frame(name);
            self.process.tables.stacks.push(StackNode { parent, frame });
            parent = StackId(self.process.tables.stacks.len() as u32 - 1);
        }
        self.site(parent, ScopeId(0), bytes);
        self
    }

    fn scope(mut self, path: &str, bytes: u64) -> Made {
        let mut parent = ScopeId(0);
        for value in path.split('>').filter(|value| !value.is_empty()) {
            self.process.tables.scopes.push(Scope {
                parent,
                attribute: "region".into(),
                value: value.into(),
                entered: 1,
                frees_here: 0,
                freed_here_bytes: 0,
                peak_bytes: None,
                active_bytes: None,
            });
            parent = ScopeId(self.process.tables.scopes.len() as u32 - 1);
        }
        self.site(StackId(0), parent, bytes);
        self
    }
}

fn compared(measure: Measure, by: By, before: Made, after: Made) -> Difference {
    Comparison::new(measure, by).before(before.process).after(after.process)
}

fn word(difference: &Difference, name: u32) -> String {
    match &difference.names[name as usize] {
        Name::Function { name, .. } => name.to_string(),
        Name::Nameless(file) => format!("[{file}]"),
        place @ (Name::Place { .. } | Name::Line { .. }) => place.called().into_owned(),
        Name::Scope { value, .. } => value.to_string(),
    }
}

/// Returns `name own inclusive` of each function that changed.
fn functions(difference: &Difference) -> Vec<String> {
    let change = |c: Change| format!("{}>{}", c.before, c.after);
    let row = |row: &FunctionChange| {
        let name = row.name.map_or("-".to_owned(), |name| word(difference, name));
        format!("{name} {} {}", change(row.own), change(row.inclusive))
    };
    difference.functions().rows.iter().map(row).collect()
}

/// Returns `path before>after` of each path that changed.
fn paths(difference: &Difference) -> Vec<String> {
    let row = |row: &PathChange| {
        let names = difference.paths.names_of(row.path).map(|name| word(difference, name));
        let mut names: Vec<String> = names.collect();
        names.reverse();
        format!("{} {}>{}", names.join(";"), row.own.before, row.own.after)
    };
    difference.paths().rows.iter().map(row).collect()
}

#[test]
fn builds_are_joined_by_names() {
    let before = made("/old/app-1", "/usr/lib/libz.so.1.2")
        .stack("main;load;malloc", 100)
        .stack("main;load;grow.isra.0;malloc", 40)
        .stack("main;old;malloc", 7)
        .stack("main;deflate@z;@z;@z", 30)
        .stack("", 5);
    let after = made("/new/app-2", "/opt/libz.so.1.3")
        .stack("main;deflate@z;@z", 10)
        .stack("main;deflate@z;@z;@z;@z", 25)
        .stack("main;load;malloc", 300)
        .stack("main;load;grow.constprop.1;malloc", 40)
        .stack("main;new;malloc", 9)
        .stack("", 5);
    let difference = compared(Measure::LiveBytes, By::Stacks, before, after);
    assert_eq!(difference.total(), Change { before: 182, after: 389 });
    assert_eq!(
        paths(&difference),
        [
            "main;load;malloc 100>300",
            "main;new;malloc 0>9",
            "main;old;malloc 7>0",
            "main;deflate;[libz.so.1.2] 30>35",
        ]
    );
    assert_eq!(
        functions(&difference),
        [
            "load 100>300 140>340",
            "new 0>9 0>9",
            "old 7>0 7>0",
            "[libz.so.1.2] 30>35 30>35",
            "main 0>0 177>384",
            "malloc 0>0 147>349",
            "deflate 0>0 30>35",
        ]
    );
}

#[test]
fn calls_without_names_are_told_apart_in_one_build_only() {
    let library = |build: &[u8], inner: u64| {
        let mut made = made("app", "libz.so").stack("main;@z;@z;f@z", 5).stack("main;@z;g@z", 6);
        made.process.tables.modules[1].build_id = build.to_vec();
        made.process.tables.frames[2].offset = inner;
        made
    };
    let same = || library(&[7], 0x20);
    let difference = compared(Measure::LiveBytes, By::Stacks, same(), library(&[7], 0x30));
    assert_eq!(
        paths(&difference),
        ["main;libz.so+0x1;libz.so+0x20;f 5>0", "main;libz.so+0x1;libz.so+0x30;f 0>5"]
    );
    let other = library(&[8], 0x30).stack("main;@z;@z", 1);
    let difference = compared(Measure::LiveBytes, By::Stacks, same(), other);
    assert_eq!(paths(&difference), ["main;[libz.so] 0>1"]);
}

#[test]
fn functions_of_one_name_in_two_files_are_two() {
    let before = made("app", "libz.so").stack("main;grow", 8);
    let after = made("app", "libz.so").stack("main;grow@z", 8);
    let difference = compared(Measure::LiveBytes, By::Stacks, before, after);
    assert_eq!(functions(&difference), ["grow 8>0 8>0", "grow 0>8 0>8"]);
}

#[test]
fn recursion_counts_once_and_a_refactored_middle_is_two_stacks() {
    let before = made("app", "l").stack("main;walk;walk;walk", 8).stack("main;walk;leaf;walk", 1);
    let after = made("app", "l").stack("main;walk;enter;walk;walk", 10);
    let difference = compared(Measure::LiveBytes, By::Stacks, before, after);
    assert_eq!(
        paths(&difference),
        ["main;walk;enter;walk;walk 0>10", "main;walk;walk;walk 8>0", "main;walk;leaf;walk 1>0"]
    );
    assert_eq!(
        functions(&difference),
        ["walk 9>10 9>10", "enter 0>0 0>10", "main 0>0 9>10", "leaf 0>0 1>0",]
    );
}

#[test]
fn the_largest_is_no_sum() {
    let before = made("app", "l").stack("main;a", 8).stack("main;b", 9);
    let after = made("app", "l").stack("main;a", 5).stack("main;b", 9);
    let difference = compared(Measure::LargestBytes, By::Stacks, before, after);
    assert_eq!(functions(&difference), ["a 8>5 8>5"]);
    assert_eq!(difference.total(), Change { before: 9, after: 9 });
}

#[test]
fn scopes_are_joined_by_their_paths() {
    let before = made("app", "l").scope("load", 10).scope("run>step", 5).scope("", 3);
    let after = made("app", "l").scope("run>step", 7).scope("run>step>more", 1).scope("", 2);
    let difference = compared(Measure::LiveBytes, By::Scopes, before, after);
    assert_eq!(
        paths(&difference),
        ["load 10>0", "run;step 5>7", " 3>2", "run;step;more 0>1", "run 0>0"]
    );
    let run = difference.paths().rows.pop().expect("a row");
    assert_eq!(run.inclusive, Change { before: 5, after: 8 });
}

#[test]
fn equal_processes_have_no_rows() {
    let one = || made("app", "l").stack("main;a;", 8).stack("main;@l", 9).scope("a>b", 4);
    for by in [By::Stacks, By::Scopes] {
        let difference = compared(Measure::LiveBytes, by, one(), one());
        assert!(difference.paths().rows.is_empty());
        assert!(by == By::Scopes || difference.functions().rows.is_empty());
    }
    let empty = || made("app", "l");
    assert!(compared(Measure::LiveBytes, By::Stacks, empty(), empty()).functions().rows.is_empty());
}
