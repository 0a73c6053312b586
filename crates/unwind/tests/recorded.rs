//! Unwinds recorded stacks: `stacks/*.txt` contain registers, words, rules, and the expected
//! frames, which must not depend on the stack that was captured before.
//!
//! ```text
//! registers PC sp=SP bp=BP     at the allocation
//! stack LOW HIGH               one line per stack
//! rule PC RULE                 for a return address; `exact` for an interrupted pc
//! word ADDRESS VALUE           other words are 0
//! frames PC…                   innermost first; `=PC` is an exact one
//! ended WHY                    if the stack was not followed to its end
//! RULE: CFA [bp=*(BASE±N)] | end | unknown | signal | frame-pointer
//! CFA: sp±N | bp±N | *(sp±N)+M | *(bp±N)+M
//! ```

#![forbid(unsafe_code)]

mod thread;

use heaptide_unwind::Rule;
use heaptide_unwind::kept::Registers;
use heaptide_unwind::rule::{Bp, Cfa, Ra, Step};
use heaptide_unwind::stack::Early;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use thread::{TOO_DEEP, Thread, Tree, World};

/// The location of the return address on x86-64.
const BELOW: Ra = Ra::AtCfa(-8);

const FRAMES: usize = 64;
const ADDRESS: u64 = (1 << 48) - 1;

#[derive(Clone, Debug)]
struct Recorded {
    name: String,
    at: Registers,
    stacks: Vec<Range<u64>>,
    rules: HashMap<(u64, bool), Rule>,
    words: HashMap<u64, u64>,
    frames: Vec<(u64, bool)>,
    ended: Option<Early>,
}

impl World for Recorded {
    fn stack_of(&self, sp: u64) -> Option<Range<u64>> {
        self.stacks.iter().find(|s| s.contains(&sp)).cloned()
    }

    fn load(&self, address: u64) -> u64 {
        self.words.get(&address).copied().unwrap_or(0)
    }

    fn rule(&self, pc: u64, exact: bool) -> Rule {
        self.rules.get(&(pc, exact)).copied().unwrap_or(Rule::new(Step::Unknown, 0))
    }
}

/// Parses a number, decimal or with 0x, with an optional sign.
fn number(text: &str) -> i64 {
    let digits = text.trim_start_matches(['+', '-']);
    let value = match digits.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    let value = value.unwrap_or_else(|_| panic!("not a number: {text}"));
    if text.starts_with('-') { -value } else { value }
}

fn address(text: &str) -> u64 {
    number(text) as u64
}

/// Parses `sp+8` into the register and the number.
fn place(text: &str) -> (&str, i64) {
    let (register, n) = text.split_at(text.find(['+', '-']).expect("register±number"));
    (register, number(n))
}

fn step(words: &[&str]) -> Step {
    match words[0] {
        "end" => return Step::End,
        "unknown" => return Step::Unknown,
        "signal" => return Step::Signal,
        "frame-pointer" => return Step::FramePointer,
        _ => {}
    }
    let cfa = match words[0].strip_prefix("*(").and_then(|rest| rest.split_once(')')) {
        Some((slot, m)) => match place(slot) {
            ("sp", n) => Cfa::SpDeref(n as i16, number(m) as i16),
            ("bp", n) => Cfa::BpDeref(n as i16, number(m) as i16),
            other => panic!("{other:?}"),
        },
        None => match place(words[0]) {
            ("sp", n) => Cfa::Sp(n as i32),
            ("bp", n) => Cfa::Bp(n as i32),
            other => panic!("{other:?}"),
        },
    };
    let bp = words.get(1).map_or(Bp::Same, |text| {
        let slot = text.strip_prefix("bp=*(").and_then(|rest| rest.strip_suffix(')'));
        match place(slot.expect("bp=*(…)")) {
            ("cfa", n) => Bp::AtCfa(n as i32),
            ("bp", n) => Bp::AtBp(n as i32),
            other => panic!("{other:?}"),
        }
    });
    Step::Frame(cfa, bp, BELOW)
}

fn parse(name: &str, text: &str) -> Recorded {
    let mut r = Recorded {
        name: name.to_string(),
        at: Registers { pc: 0, sp: 0, bp: 0 },
        stacks: Vec::new(),
        rules: HashMap::new(),
        words: HashMap::new(),
        frames: Vec::new(),
        ended: None,
    };
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "registers" => {
                let value = |i: usize, name| address(words[i].strip_prefix(name).expect(name));
                r.at = Registers { pc: value(1, ""), sp: value(2, "sp="), bp: value(3, "bp=") };
            }
            "stack" => r.stacks.push(address(words[1])..address(words[2])),
            kind @ ("rule" | "exact") => {
                let module = (address(words[1]) >> 20) as u16;
                let rule = Rule::new(step(&words[2..]), module);
                r.rules.insert((address(words[1]), kind == "exact"), rule);
            }
            "word" => drop(r.words.insert(address(words[1]), address(words[2]))),
            "frames" => {
                let frame = |w: &&str| (address(w.trim_start_matches('=')), w.starts_with('='));
                r.frames = words[1..].iter().map(frame).collect();
            }
            "ended" if words[1] == "no" => r.ended = Some(Early::NoRule),
            "ended" => r.ended = Some(Early::OutsideStack),
            other => panic!("{name}: {other}"),
        }
    }
    r
}

fn all() -> Vec<Recorded> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stacks");
    let entries = std::fs::read_dir(folder).expect("tests/stacks");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| std::fs::read_to_string(path).expect("a text file");
    let name = |path: &std::path::PathBuf| path.file_stem().expect("a name").to_owned();
    paths.iter().map(|p| parse(&name(p).to_string_lossy(), &read(p))).collect()
}

/// Returns stacks to capture before this one: variants with each of its words, and rbp, replaced by
/// values that occur elsewhere in it.
fn before(r: &Recorded) -> Vec<Recorded> {
    let mut before = vec![r.clone()];
    let frames = r.frames.iter().map(|&(pc, _)| pc);
    let values: Vec<_> = frames.chain([0, 0x401777]).chain(r.words.values().copied()).collect();
    for address in r.words.keys() {
        for &value in &values {
            // The restored registers of a signal could lead to a cycle.
            if r.rules.values().all(|rule| rule.step() != Step::Signal) || value == 0 {
                let mut other = r.clone();
                other.words.insert(*address, value);
                before.push(other);
            }
        }
    }
    for bp in values {
        before.push(Recorded { at: Registers { bp, ..r.at }, ..r.clone() });
    }
    before
}

/// Unwinds a recorded stack first without reuse, then after each of some other stacks, each of
/// which is captured often enough to be remembered.
fn check(r: &Recorded) {
    let mut tree = Tree::default();
    let mut plain = Thread::new(FRAMES, false);
    let node = plain.capture(r, &mut tree, r.at);
    let path = tree.path(node);
    let frames: Vec<_> = path.iter().map(|&(key, exact)| (key & ADDRESS, exact)).collect();
    assert_eq!(frames, r.frames, "{}", r.name);
    assert_eq!(plain.ended, r.ended, "{}", r.name);
    for &(key, exact) in &path {
        // The rule of the kernel's frame is looked up by return address, though its node is exact.
        let rule = [exact, false].iter().find_map(|&exact| r.rules.get(&(key & ADDRESS, exact)));
        let module = rule.map_or(0, |rule| rule.module());
        assert_eq!(key >> 48, u64::from(module), "{}: the module of {key:x}", r.name);
    }
    for other in before(r) {
        let mut reusing = Thread::new(FRAMES, true);
        let expected = Thread::new(FRAMES, false).capture(&other, &mut tree, other.at);
        for _ in 0..4 {
            let found = reusing.capture(&other, &mut tree, other.at);
            assert_eq!(tree.path(found), tree.path(expected), "{} before {}", other.name, r.name);
            for _ in 0..2 {
                let found = reusing.capture(r, &mut tree, r.at);
                assert_eq!(tree.path(found), path, "{} after {other:x?}", r.name);
            }
        }
    }
}

#[test]
fn recorded_stacks_unwind_to_their_frames_after_others() {
    let all = all();
    assert!(all.len() >= 14, "tests/stacks has {} files", all.len());
    for r in &all {
        check(r);
    }
}

/// Capturing an unchanged stack again takes no steps, and one with a changed outer part only the
/// steps from there.
#[test]
fn unchanged_frames_are_not_stepped_again() {
    let all = all();
    let r = all.iter().find(|r| r.name == "rbp_saved_far_inside").expect("the file");
    let (mut tree, mut thread) = (Tree::default(), Thread::new(FRAMES, true));
    thread.capture(r, &mut tree, r.at);
    assert_eq!((thread.stepped(), thread.answers.unwound), (7, 1));
    thread.capture(r, &mut tree, r.at);
    assert_eq!((thread.stepped(), thread.answers.same), (7, 1));
    assert_eq!(thread.answers.recalled, 0);
}

/// A stack that exceeds the space is below the marker node, with the frames next to its top.
#[test]
fn a_stack_that_exceeds_the_space_is_truncated() {
    let all = all();
    let r = all.iter().find(|r| r.name == "rbp_saved_far_inside").expect("the file");
    let (mut tree, mut thread) = (Tree::default(), Thread::new(5, true));
    let node = thread.capture(r, &mut tree, r.at);
    let keys: Vec<_> = tree.path(node).iter().map(|&(key, _)| key & ADDRESS).collect();
    assert_eq!(keys, [0x401015, 0x401125, 0x401235, TOO_DEEP]);
}
