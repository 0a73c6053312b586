//! Groups and trees of a small process with known numbers.

use heaptide_analysis::attribution::Owners;
use heaptide_analysis::model::{Measure, Process, Recording};
use heaptide_analysis::views::aggregate::{Group, GroupBy, Key, Order, group, top};
use heaptide_analysis::views::tree::{Recursion, Tree};
use heaptide_fixtures::{ProfileBuilder, Scratch, site};
use heaptide_format as format;

const BASE: u64 = 0x7f00_0000_0000;

/// Stored names: the upper byte of an offset is the number of the function's letter.
const SYMBOLS: &str = r#"{"version":1,"modules":[{"path":"/nowhere/module","build_id":"ab","strings":
["a","b","c","d"],"places":[[0,1,0,0],[256,2,0,0],[257,2,0,0],[512,3,0,0],[513,3,0,0],[768,4,0,0]]}]}"#;

/// ```text
/// a ─ b ─ b ─ c      1 × 10 (lane 0), 2 × 10 (lane 1)
///     │   └── b ─ d  1 × 100
///     └── c          1 × 1000
/// (no stack)         1 × 7
/// ```
fn process(name: &str) -> Process {
    let scratch = Scratch::new(name);
    scratch.write("symbols.json", SYMBOLS.as_bytes());
    let mut p = ProfileBuilder::new(format::Mode::Stacks, 12, 0);
    let module = p.module("/nowhere/module", BASE, &[0xab]);
    let mut place = |name: char, line: u64, parent| {
        p.node(0, module, BASE + ((name as u64 - 'a' as u64) << 8) + line + 1, parent)
    };
    let a = place('a', 0, 0);
    let b = place('b', 0, a);
    let bb = place('b', 1, b);
    let bbc = place('c', 0, bb);
    let bbb = place('b', 1, bb);
    let bbbd = place('d', 0, bbb);
    let bc = place('c', 1, b);
    p.site(0, site(bbc, 1, 10));
    p.site(1, site(bbc, 2, 10));
    p.site(0, site(bbbd, 1, 100));
    p.site(0, site(bc, 1, 1000));
    p.site(0, site(0, 1, 7));
    p.lane(0, "main", |lane| lane.usable_classes[4] = 4);
    p.lane(1, "other", |_| {});
    p.exited();
    let path = scratch.write("12-0.profile", &p.finish());
    Recording::open(&path).unwrap().processes.remove(0)
}

fn rows(process: &Process, owners: &Owners, groups: &[Group]) -> Vec<(String, u64, u64)> {
    let label = |key: Key| match key {
        Key::Function(Some(f)) => process.label(owners.functions.first_frame(f)).into_owned(),
        Key::Module(Some(m)) => process.tables.modules[m.0 as usize].file_name().to_owned(),
        Key::Lane(l) => process.tables.lanes[l.0 as usize].name.clone(),
        Key::Size(class) => process.tables.histogram[class as usize].size_max.to_string(),
        Key::Stack(stack) => process.path_of(stack).iter().map(|&f| process.label(f)).collect(),
        Key::Line(Some(frame)) => {
            let line = process.tables.frames[frame.0 as usize].line.expect("a line");
            format!("{}:{line}", process.label(frame))
        }
        Key::Function(None) | Key::Line(None) | Key::Module(None) => "none".to_owned(),
        Key::Scope(_) | Key::Label(..) | Key::Type(_) | Key::Call(_) => "all".to_owned(),
    };
    let row = |g: &Group| (label(g.key), g.own.usable_bytes, g.inclusive.usable_bytes);
    groups.iter().map(row).collect()
}

fn check(by: GroupBy, order: Order, expected: &[(&str, u64, u64)]) {
    let process = process(&format!("group-{}-{order:?}", by.name()));
    let owners = Owners::of(&process);
    let groups = top(group(&process, &owners, by), Measure::UsableBytes, order, 9);
    let found = rows(&process, &owners, &groups);
    let found: Vec<_> = found.iter().map(|(l, own, all)| (l.as_str(), *own, *all)).collect();
    assert_eq!(found, expected);
}

#[test]
fn functions_count_a_site_once_however_often_they_are_in_it() {
    check(
        GroupBy::Function,
        Order::Inclusive,
        &[("a", 0, 1130), ("b", 0, 1130), ("c", 1030, 1030), ("d", 100, 100), ("none", 7, 7)],
    );
    check(GroupBy::Function, Order::Own, &[("c", 1030, 1030), ("d", 100, 100), ("none", 7, 7)]);
}

/// Returns the process with a source file: functions begin at line 10, and calls at odd addresses
/// are at line 11.
fn process_with_lines(name: &str) -> Process {
    let mut process = process(name);
    for frame in &mut process.tables.frames {
        let line = 10 + (frame.offset & 1) as u32;
        (frame.file, frame.line) = (Some("letters.c".into()), Some(line));
    }
    process
}

#[test]
fn lines_divide_functions() {
    let process = process_with_lines("lines");
    let owners = Owners::of(&process);
    let groups = group(&process, &owners, GroupBy::Line);
    let groups = top(groups, Measure::UsableBytes, Order::Inclusive, 9);
    let found = rows(&process, &owners, &groups);
    let found: Vec<_> = found.iter().map(|(l, own, all)| (l.as_str(), *own, *all)).collect();
    let expected = [
        ("a:10", 0, 1130),
        ("b:10", 0, 1130),
        ("c:11", 1000, 1000),
        ("b:11", 0, 130),
        ("d:10", 100, 100),
        ("c:10", 30, 30),
        ("none", 7, 7),
    ];
    assert_eq!(found, expected);
}

#[test]
fn trees_of_lines() {
    let process = process_with_lines("tree-lines");
    let owners = Owners::of(&process).by_line(&process);
    let tree = Tree::top_down(&process, &owners.functions, Measure::UsableBytes, Recursion::Fold);
    let expected = [
        "root 7 1137",
        " a 0 1130",
        "  b 0 1130",
        "   c 1000 1000",
        "   b 0 130",
        "    d 100 100",
        "    c 30 30",
    ];
    assert_eq!(draw(&tree, &process, &owners), expected);
    let tree = Tree::bottom_up(&process, &owners, Measure::UsableBytes, Recursion::Fold, 0);
    let roots = draw(&tree, &process, &owners);
    let roots: Vec<&str> = roots.iter().map(|row| &**row).filter(|row| &row[1..2] != " ").collect();
    assert_eq!(roots, ["root 7 1137", " c 0 1000", " d 0 100", " c 0 30"]);
}

#[test]
fn stacks_modules_and_lanes() {
    check(
        GroupBy::Stack,
        Order::Own,
        &[("abc", 1000, 1000), ("abbbd", 100, 100), ("abbc", 30, 30), ("", 7, 7)],
    );
    check(GroupBy::Module, Order::Own, &[("module", 1130, 1130), ("none", 7, 7)]);
    check(GroupBy::Scope, Order::Own, &[("all", 1137, 1137)]);
    check(GroupBy::Label, Order::Own, &[("all", 1137, 1137)]);
    check(GroupBy::Call, Order::Own, &[("all", 1137, 1137)]);
    check(GroupBy::Lane, Order::Own, &[("main", 1117, 1117), ("other", 20, 20)]);
}

#[test]
fn sizes_come_from_the_histogram() {
    let process = process("sizes");
    let sizes = group(&process, &Owners::of(&process), GroupBy::Size);
    assert_eq!(sizes.len(), 1);
    assert_eq!(
        (sizes[0].key, sizes[0].own.allocations, sizes[0].own.live_blocks),
        (Key::Size(0), 4, 4)
    );
}

#[test]
fn top_keeps_the_first_and_drops_zeros() {
    let process = process("top");
    let owners = Owners::of(&process);
    let groups = group(&process, &owners, GroupBy::Function);
    assert_eq!(top(groups.clone(), Measure::UsableBytes, Order::Inclusive, 2).len(), 2);
    assert_eq!(top(groups, Measure::Temporary, Order::Inclusive, 2).len(), 0);
}

/// Returns a tree as indented lines.
fn draw(tree: &Tree, process: &Process, owners: &Owners) -> Vec<String> {
    let mut lines = Vec::new();
    let mut todo = vec![(0, 0)];
    while let Some((index, depth)) = todo.pop() {
        let node = tree.nodes[index as usize];
        let label =
            node.function.map(|f| process.label(owners.functions.first_frame(f)).into_owned());
        let label = label.unwrap_or_else(|| "root".to_owned());
        lines.push(format!("{}{label} {} {}", " ".repeat(depth), node.own, node.inclusive));
        todo.extend(tree.children(index).iter().rev().map(|&child| (child, depth + 1)));
    }
    lines
}

#[test]
fn top_down_trees() {
    let process = process("down");
    let owners = Owners::of(&process);
    let tree = Tree::top_down(&process, &owners.functions, Measure::UsableBytes, Recursion::Keep);
    let expected = [
        "root 7 1137",
        " a 0 1130",
        "  b 0 1130",
        "   c 1000 1000",
        "   b 0 130",
        "    b 0 100",
        "     d 100 100",
        "    c 30 30",
    ];
    assert_eq!(draw(&tree, &process, &owners), expected);
    let tree = Tree::top_down(&process, &owners.functions, Measure::UsableBytes, Recursion::Fold);
    let expected = ["root 7 1137", " a 0 1130", "  b 0 1130", "   c 1030 1030", "   d 100 100"];
    assert_eq!(draw(&tree, &process, &owners), expected);
    let tree = Tree::top_down(&process, &owners.functions, Measure::LargestBytes, Recursion::Fold);
    let expected = ["root 5 998", " a 0 998", "  b 0 998", "   c 998 998", "   d 98 98"];
    assert_eq!(draw(&tree, &process, &owners), expected);
}

#[test]
fn bottom_up_trees() {
    let process = process("up");
    let owners = Owners::of(&process);
    let measure = Measure::UsableBytes;
    let tree = Tree::bottom_up(&process, &owners, measure, Recursion::Keep, 0);
    let expected = [
        "root 7 1137",
        " c 0 1030",
        "  b 0 1030",
        "   a 1000 1000",
        "   b 0 30",
        "    a 30 30",
        " d 0 100",
        "  b 0 100",
        "   b 0 100",
        "    b 0 100",
        "     a 100 100",
    ];
    assert_eq!(draw(&tree, &process, &owners), expected);
    let tree = Tree::bottom_up(&process, &owners, measure, Recursion::Fold, 200);
    let expected = ["root 107 1137", " c 0 1030", "  b 0 1030", "   a 1030 1030"];
    assert_eq!(draw(&tree, &process, &owners), expected);
}

#[test]
fn what_glue_allocates_is_its_callers() {
    let mut process = process("glued");
    for frame in &mut process.tables.frames {
        if frame.function.as_deref() == Some("c") {
            frame.function = Some("operator new(unsigned long)".into());
        }
    }
    let owners = Owners::of(&process);
    let groups = group(&process, &owners, GroupBy::Function);
    let own = rows(&process, &owners, &top(groups, Measure::UsableBytes, Order::Own, 9));
    let expected = [("b", 1030, 1130), ("d", 100, 100), ("none", 7, 7)];
    assert_eq!(own, expected.map(|(name, own, all)| (name.to_owned(), own, all)));
}
