//! A simulated thread for tests: the recorder's calls of the unwinder, in the same order, on memory
//! and rules that a test defines.

use heaptide_unwind::Rule;
use heaptide_unwind::kept::{Extent, Frame, Kept, Registers, Same, words_of};
use heaptide_unwind::memo::{Memo, Recalled, place};
use heaptide_unwind::stack::{Bounds, Early, Machine, Stack, Walked};
use std::collections::HashMap;
use std::ops::Range;

/// The key of the parent node of truncated stacks, which is no address in a test.
pub const TOO_DEEP: u64 = 1;

/// The generation of rules, which never change here; any number except 0.
const GENERATION: u32 = 1;
const MEMOS: usize = 256;

/// Simulated memory and code.
pub trait World {
    /// Returns the stack that contains `sp`.
    fn stack_of(&self, sp: u64) -> Option<Range<u64>>;
    /// Returns the word at an address inside a stack.
    fn load(&self, address: u64) -> u64;
    /// Returns the rule for a return address, or for an exact pc.
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

    /// Returns the keys from a node to the root, innermost first, and whether each is an exact pc.
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

/// Counts how captures were answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answers {
    pub same: usize,
    pub recalled: usize,
    pub unwound: usize,
}

/// One thread's part of the recorder.
pub struct Thread {
    unwinder: Stack<'static>,
    memos: Vec<Memo>,
    stack: Range<u64>,
    pub answers: Answers,
    /// The reason if the last unwinding ended early.
    pub ended: Option<Early>,
}

impl Thread {
    /// Creates a thread with space for this many frames, including one for frames that cannot be
    /// kept.
    pub fn new(frames: usize, reuse: bool) -> Thread {
        let words = words_of(frames);
        let kept = Kept {
            frames: vec![Frame::default(); frames].leak(),
            slots: vec![0; words].leak(),
            words: vec![0; words].leak(),
            extent: Extent::default(),
        };
        let scratch = vec![Walked::default(); frames].leak();
        Thread {
            unwinder: Stack { kept, scratch, stepped: 0, reuse },
            memos: vec![Memo::default(); MEMOS],
            stack: 0..0,
            answers: Answers::default(),
            ended: None,
        }
    }

    /// Returns the number of frames that were stepped by a rule, not proven.
    pub fn stepped(&self) -> u64 {
        self.unwinder.stepped
    }

    /// Returns the node of the thread's stack.
    pub fn capture<W: World>(&mut self, world: &W, tree: &mut Tree, at: Registers) -> u32 {
        if !self.stack.contains(&at.sp) {
            self.unwinder.kept.extent.forget();
            self.stack = world.stack_of(at.sp).expect("a stack pointer in a stack");
        }
        let seen = self.unwinder.kept.same(at, |address| world.load(address));
        if let Same::Node(node) = seen {
            self.answers.same += 1;
            return node;
        }
        let mut guest = Guest { world, tree, range: self.stack.clone(), ended: None };
        let memo = &mut self.memos[place(at, MEMOS)];
        let recalled = memo.recall(&mut self.unwinder.kept, at, GENERATION, |a| world.load(a));
        if recalled != Recalled::No {
            self.answers.recalled += 1;
        }
        match recalled {
            Recalled::Node(node) => return node,
            Recalled::Below(node) => {
                return memo.rename(node, |parent, key| guest.child(parent, key, false));
            }
            Recalled::No => {}
        }
        self.answers.unwound += 1;
        let (node, new) = self.unwinder.capture(at, seen, &mut guest);
        self.ended = guest.ended;
        if self.unwinder.reuse {
            memo.remember(&self.unwinder.kept, new, at, GENERATION);
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
    fn bounds(&self) -> Bounds {
        Bounds { low: self.range.start, words: (self.range.end - self.range.start) / 8 }
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

    fn is_return_address(&mut self, pc: u64, _: bool) -> bool {
        self.world.rule(pc, false).module() != 0
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
