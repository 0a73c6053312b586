//! A simulated thread for the tests: what the capture library does round the unwinder, in the same
//! order, over memory and rules that a test makes up.

use heaptide_unwind::Rule;
use heaptide_unwind::memo::{Memo, place};
use heaptide_unwind::stack::{Early, Frame, Machine, Registers, Same, Stack, Work, same_stack};
use std::collections::HashMap;
use std::ops::Range;

/// The key of the node under which cut stacks are put: no address of a test.
pub const TOO_DEEP: u64 = 1;
/// Rules nothing was forgotten since; any number but 0.
const GENERATION: u32 = 1;
const MEMOS: usize = 256;

/// Memory and code.
pub trait World {
    /// The stack that holds `sp`.
    fn stack_of(&self, sp: u64) -> Option<Range<u64>>;
    /// The word at an address inside a stack.
    fn load(&self, address: u64) -> u64;
    /// The rule for a return address, or for an exact pc.
    fn rule(&self, pc: u64, exact: bool) -> Rule;
}

/// The stack tree; node 0 is its root.
#[derive(Default)]
pub struct Tree {
    nodes: Vec<(u32, u64, bool)>,
    children: HashMap<(u32, u64), u32>,
}

impl Tree {
    fn child(&mut self, parent: u32, key: u64, exact: bool) -> u32 {
        *self.children.entry((parent, key)).or_insert_with(|| {
            self.nodes.push((parent, key, exact));
            self.nodes.len() as u32
        })
    }

    /// The keys from a node to the root, innermost first, and whether each is an exact pc.
    pub fn path(&self, mut node: u32) -> Vec<(u64, bool)> {
        let mut path = Vec::new();
        while node != 0 {
            let (parent, key, exact) = self.nodes[node as usize - 1];
            path.push((key, exact));
            node = parent;
        }
        path
    }
}

/// How captures were answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answers {
    pub same: usize,
    pub recalled: usize,
    pub unwound: usize,
}

/// One thread's part of the recorder.
pub struct Thread {
    kept: Vec<Frame>,
    scratch: Vec<Frame>,
    depth: usize,
    cut: usize,
    work: Work,
    memos: Vec<Memo>,
    stack: Range<u64>,
    reuse: bool,
    pub answers: Answers,
    /// Why the last unwinding ended early, if it did.
    pub ended: Option<Early>,
}

impl Thread {
    /// With room for this many frames, one of which is for those that cannot be kept.
    pub fn new(frames: usize, reuse: bool) -> Thread {
        Thread {
            kept: vec![Frame::default(); frames],
            scratch: vec![Frame::default(); frames],
            depth: 0,
            cut: 0,
            work: Work::default(),
            memos: vec![Memo::default(); MEMOS],
            stack: 0..0,
            reuse,
            answers: Answers::default(),
            ended: None,
        }
    }

    /// Frames that were stepped by a rule, not proven.
    pub fn stepped(&self) -> u64 {
        self.work.stepped
    }

    /// The node of the thread's stack.
    pub fn capture<W: World>(&mut self, world: &W, tree: &mut Tree, at: Registers) -> u32 {
        if !self.stack.contains(&at.sp) {
            (self.depth, self.cut) = (0, 0);
            self.stack = world.stack_of(at.sp).expect("a stack pointer in a stack");
        }
        if !self.reuse {
            return self.unwind(world, tree, at, Same::No);
        }
        let word = |address| world.load(address);
        let seen = match same_stack(&mut self.kept, &mut self.depth, self.cut, at, word) {
            Same::Node(node) => {
                self.answers.same += 1;
                return node;
            }
            seen => seen,
        };
        match self.recall(world, tree, at) {
            Some(node) => node,
            None => self.unwind(world, tree, at, seen),
        }
    }

    fn recall<W: World>(&mut self, world: &W, tree: &mut Tree, at: Registers) -> Option<u32> {
        if self.cut != 0 {
            return None;
        }
        let memo = &mut self.memos[place(at, MEMOS)];
        let (word, child) = (|a| world.load(a), |parent, key| tree.child(parent, key, false));
        let node = memo.recall(&mut self.kept, &mut self.depth, at, GENERATION, word, child)?;
        self.answers.recalled += 1;
        Some(node)
    }

    fn unwind<W: World>(&mut self, world: &W, tree: &mut Tree, at: Registers, seen: Same) -> u32 {
        let mut guest = Guest { world, tree, range: self.stack.clone(), ended: None };
        let mut stack = Stack {
            kept: &mut self.kept,
            scratch: &mut self.scratch,
            depth: &mut self.depth,
            cut: &mut self.cut,
            work: &mut self.work,
            reuse: self.reuse,
        };
        let (node, new) = stack.capture(at, seen, &mut guest);
        self.ended = guest.ended;
        self.answers.unwound += 1;
        if self.reuse && new > 0 {
            let memo = &mut self.memos[place(at, MEMOS)];
            memo.remember(&self.kept[..self.depth], new, at, GENERATION);
        }
        node
    }
}

struct Guest<'a, W> {
    world: &'a W,
    tree: &'a mut Tree,
    range: Range<u64>,
    ended: Option<Early>,
}

impl<W: World> Machine for Guest<'_, W> {
    fn word(&self, address: u64) -> Option<u64> {
        let inside = self.range.contains(&address) && address & 7 == 0;
        inside.then(|| self.world.load(address))
    }

    fn known_word(&self, address: u64) -> u64 {
        self.world.load(address)
    }

    fn enter(&mut self, sp: u64) -> bool {
        match self.world.stack_of(sp) {
            Some(range) => self.range = range,
            None => return false,
        }
        sp & 7 == 0
    }

    fn rule(&mut self, pc: u64, exact: bool) -> Rule {
        self.world.rule(pc, exact)
    }

    fn child(&mut self, parent: u32, key: u64, exact: bool) -> u32 {
        self.tree.child(parent, key, exact)
    }

    fn too_deep(&mut self) -> u32 {
        self.tree.child(0, TOO_DEEP, true)
    }

    fn ended(&mut self, why: Early) {
        self.ended = Some(why);
    }
}
