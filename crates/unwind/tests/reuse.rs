//! Reuse is exact: for any behaviour of a simulated program between two captures, reuse finds the
//! same node as unwinding every frame.

#![forbid(unsafe_code)]

mod thread;

use heaptide_fixtures::Random;
use heaptide_unwind::Rule;
use heaptide_unwind::kept::Registers;
use heaptide_unwind::rule::{Bp, Cfa, Ra, Step};
use std::ops::Range;
use thread::{Answers, TOO_DEEP, Thread, Tree, World};

/// The location of the return address on x86-64.
const BELOW: Ra = Ra::AtCfa(-8);

const CODE: u64 = 0x40_0000;
/// The return address of signal handlers, set by the kernel.
const RESTORER: u64 = 0x60_0000;
const SITES: u64 = 4;
/// Bytes of one stack. Each coroutine has one for itself and one for its signal handlers.
const STACK: u64 = 1 << 15;
const STACKS: u64 = 0x7f00_0000_0000;
const COROUTINES: usize = 2;

/// How a function keeps its frame, and how its unwind rule describes that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Uses sp only, and does not change rbp.
    Plain,
    /// Uses sp only, and saves rbp to use it for something else.
    Saves,
    /// Uses a frame pointer.
    Linked,
    /// Uses a frame pointer, but has no unwind information.
    Unlisted,
    /// Uses sp only, without unwind information: the frame pointer leads to an outer frame.
    Skipped,
    /// Realigns the stack: the CFA and rbp are relative to rbp.
    Realigned,
    /// The CFA is read from a word relative to sp.
    Dynamic,
    /// No usable unwind information.
    Lost,
    /// Is marked as outermost.
    Last,
}

#[derive(Clone, Copy, Debug)]
struct Function {
    kind: Kind,
    /// Bytes of its frame below the CFA when nothing is pushed.
    size: u64,
    /// Additional bytes pushed at each call site, times its index.
    pushed: u64,
}

/// The call of a function: the function, the address of the call, and the bytes that it allocates
/// with alloca.
#[derive(Clone, Copy, Debug)]
struct Call {
    function: u64,
    /// The return address in its caller.
    from: u64,
    alloca: u64,
    /// The value that it stores in rbp if it uses it.
    scribble: u64,
}

/// An active function.
#[derive(Clone, Copy, Debug)]
struct Activation {
    call: Call,
    cfa: u64,
    low: u64,
    bp: u64,
    /// The address at which the caller's rbp or the CFA was stored, if it was.
    slot: u64,
    /// Whether it is a signal handler that interrupted its caller.
    handler: bool,
}

struct Program {
    functions: Vec<Function>,
    memory: Vec<u64>,
    active: [Vec<Activation>; COROUTINES],
    current: usize,
    /// The call site of the function that returned last.
    left: u64,
    random: Random,
}

impl World for Program {
    fn stack_of(&self, sp: u64) -> Option<Range<u64>> {
        let low = sp / STACK * STACK;
        self.index(low).map(|_| low..low + STACK)
    }

    fn load(&self, address: u64) -> u64 {
        self.memory[self.index(address).expect("an address in a stack")]
    }

    fn rule(&self, pc: u64, _: bool) -> Rule {
        if pc == RESTORER {
            return Rule::new(Step::Signal, 2);
        }
        let index = pc.wrapping_sub(CODE) / 0x100;
        let Some(f) = self.functions.get(index as usize) else {
            return Rule::new(Step::Unknown, 0);
        };
        let size = (f.size + f.pushed * site_of(pc)) as i32;
        let step = match f.kind {
            Kind::Plain => Step::Frame(Cfa::Sp(size), Bp::Same, BELOW),
            Kind::Saves => Step::Frame(Cfa::Sp(size), Bp::AtCfa(-16), BELOW),
            Kind::Linked => Step::Frame(Cfa::Bp(16), Bp::AtCfa(-16), BELOW),
            Kind::Unlisted | Kind::Skipped => Step::FramePointer,
            Kind::Realigned => Step::Frame(Cfa::BpDeref(-8, 0), Bp::AtBp(0), BELOW),
            Kind::Dynamic => {
                let below = (f.pushed * site_of(pc)) as i16;
                Step::Frame(Cfa::SpDeref(8 + below, 16), Bp::Same, BELOW)
            }
            Kind::Lost => Step::Unknown,
            Kind::Last => Step::End,
        };
        Rule::new(step, 1 + (index % 2) as u16)
    }
}

fn pc_of(function: u64, site: u64) -> u64 {
    CODE + function * 0x100 + site * 0x10 + 5
}

fn site_of(pc: u64) -> u64 {
    pc >> 4 & (SITES - 1)
}

/// Functions of all kinds, mostly with usual rules.
fn mixed(random: &mut Random) -> Vec<Function> {
    let usual = [Kind::Plain, Kind::Saves, Kind::Linked, Kind::Realigned, Kind::Dynamic];
    let mut functions = vec![Function { kind: Kind::Last, size: 32, pushed: 0 }];
    for i in 0..23 {
        let kind = match i {
            0 => Kind::Lost,
            1 | 2 => Kind::Unlisted,
            3 | 4 => Kind::Skipped,
            _ => usual[random.below(5) as usize],
        };
        // At least the space that the kind needs; few sizes, so that other chains fit the same
        // memory.
        let size = 32 + 16 * random.below(3);
        functions.push(Function { kind, size, pushed: 16 * random.below(2) });
    }
    functions
}

impl Program {
    fn new(seed: u64, functions: impl Fn(&mut Random) -> Vec<Function>) -> Program {
        let mut random = Random::new(seed);
        let words = (COROUTINES as u64 * 2 * STACK / 8) as usize;
        let mut program = Program {
            functions: functions(&mut random),
            memory: vec![0; words],
            active: Default::default(),
            current: 0,
            left: 0,
            random,
        };
        for current in 0..COROUTINES {
            program.current = current;
            program.begin();
        }
        program
    }

    fn index(&self, address: u64) -> Option<usize> {
        let index = (address.wrapping_sub(STACKS) / 8) as usize;
        (index < self.memory.len()).then_some(index)
    }

    fn store(&mut self, address: u64, value: u64) {
        if let Some(index) = self.index(address) {
            self.memory[index] = value;
        }
    }

    /// Starts the current coroutine in the function that is marked as outermost, or in another one
    /// with 0 as return address.
    fn begin(&mut self) {
        let marked = self.random.chance(50);
        let function = if marked { 0 } else { self.some_function() };
        let top = STACKS + (2 * self.current as u64 + 2) * STACK - 64;
        let from = if marked { self.random.below(1 << 20) } else { 0 };
        let call = Call { function, from, alloca: 0, scribble: 0 };
        self.active[self.current].clear();
        self.enter(call, top, 0, false);
    }

    fn some_function(&mut self) -> u64 {
        1 + self.random.below(self.functions.len() as u64 - 1)
    }

    fn depth(&self) -> usize {
        self.active[self.current].len()
    }

    fn top(&self) -> Activation {
        *self.active[self.current].last().expect("an outermost function")
    }

    /// Returns the stack pointer of an active function while it calls from `pc`.
    fn sp_at(&self, a: &Activation, pc: u64) -> u64 {
        a.low - self.functions[a.call.function as usize].pushed * site_of(pc)
    }

    /// Returns the registers when an allocation function returns to `pc` in the innermost function.
    fn registers(&self, pc: u64) -> Registers {
        let top = self.top();
        Registers { pc, sp: self.sp_at(&top, pc), bp: top.bp }
    }

    /// Creates the frame of a called function; `cfa` is the stack pointer after its return.
    fn enter(&mut self, call: Call, cfa: u64, bp: u64, handler: bool) {
        let f = self.functions[call.function as usize];
        self.store(cfa - 8, call.from);
        let mut a = Activation { call, cfa, low: cfa - f.size, bp, slot: 0, handler };
        match f.kind {
            Kind::Plain | Kind::Skipped | Kind::Lost | Kind::Last => {}
            Kind::Saves => {
                (a.bp, a.slot) = (call.scribble, cfa - 16);
                self.store(a.slot, bp);
            }
            Kind::Linked | Kind::Unlisted => {
                (a.bp, a.slot, a.low) = (cfa - 16, cfa - 16, a.low - call.alloca);
                self.store(a.slot, bp);
            }
            Kind::Realigned => {
                let aligned = (cfa - 16 - call.alloca) & !31;
                (a.bp, a.slot, a.low) = (aligned, aligned - 8, aligned - f.size);
                self.store(aligned + 8, call.from);
                self.store(aligned, bp);
                self.store(a.slot, cfa);
            }
            Kind::Dynamic => {
                a.low -= call.alloca;
                a.slot = a.low + 8;
                self.store(a.slot, cfa - 16);
            }
        }
        self.active[self.current].push(a);
    }

    /// Returns a value for rbp that may be a plausible frame pointer.
    fn scribble(&mut self) -> u64 {
        let some = self.random.below(self.depth() as u64) as usize;
        match self.random.below(4) {
            0 => 0,
            1 => self.random.below(1 << 20),
            2 => self.top().cfa + 8 * self.random.below(64),
            _ => self.active[self.current][some].cfa - 16,
        }
    }

    /// Returns a call from a random site in the innermost function.
    fn some_call(&mut self) -> Call {
        let scribble = self.scribble();
        Call {
            function: self.some_function(),
            from: pc_of(self.top().call.function, self.random.below(SITES)),
            alloca: 8 * self.random.below(4),
            scribble,
        }
    }

    fn call(&mut self, call: Call) {
        let top = self.top();
        self.enter(call, self.sp_at(&top, call.from), top.bp, false);
    }

    /// Makes 1 to `most` nested calls.
    fn call_some(&mut self, most: u64) {
        for _ in 0..=self.random.below(most) {
            let call = self.some_call();
            self.call(call);
        }
    }

    /// Interrupts the innermost function, on its own stack or on the one for handlers.
    fn signal(&mut self) {
        let top = self.top();
        let pc = pc_of(top.call.function, self.random.below(SITES));
        let sp = self.sp_at(&top, pc);
        let own = STACKS + 2 * self.current as u64 * STACK;
        let ours = sp >= own + STACK;
        let from = if ours && self.random.chance(50) { own + STACK - 64 } else { sp - 128 };
        let context = (from - 256) & !15;
        // A handler may change the registers that are restored.
        let bp = if self.random.chance(20) { self.scribble() } else { top.bp };
        for (register, value) in [(10, bp), (15, sp), (16, pc)] {
            self.store(context + 40 + 8 * register, value);
        }
        let call = Call { from: RESTORER, ..self.some_call() };
        self.enter(call, context, top.bp, true);
    }

    /// Returns from the `n` innermost functions, but not from the outermost one.
    fn leave(&mut self, n: usize) {
        let left = self.depth().saturating_sub(n).max(1);
        let active = &mut self.active[self.current];
        if let Some(first) = active.get(left) {
            self.left = first.call.from;
        }
        active.truncate(left);
    }

    /// Calls the innermost functions again, the first of them from a different site.
    fn again_from_elsewhere(&mut self) {
        let n = 1 + self.random.below(8) as usize;
        let from = self.depth().saturating_sub(n).max(1);
        let mut calls: Vec<_> = self.active[self.current].drain(from..).collect();
        if calls.iter().any(|a| a.handler) {
            return;
        }
        let site = self.random.below(SITES);
        if let Some(first) = calls.first_mut() {
            first.call.from = pc_of(self.top().call.function, site);
        }
        for a in calls {
            self.call(a.call);
        }
    }

    /// Overwrites a word that unwinding depends on.
    fn poke(&mut self) {
        let a = self.active[self.current][self.random.below(self.depth() as u64) as usize];
        let slot = if self.random.chance(50) && a.slot != 0 { a.slot } else { a.cfa - 8 };
        let value = match self.random.below(5) {
            0 => 0,
            1 => a.cfa,
            2 => a.cfa + 8 * self.random.below(32),
            _ => pc_of(self.some_function(), self.random.below(SITES)),
        };
        self.store(slot, value);
        // Memory below the stack pointer can change at any time.
        let dead = self.top().low - 64 - 8 * self.random.below(32);
        self.store(dead, value);
    }

    /// Returns a random site for an allocation of the innermost function, or the site of the last
    /// call.
    fn some_site(&mut self) -> u64 {
        let function = self.top().call.function;
        let own = pc_of(function, site_of(self.left)) == self.left;
        if own && self.random.chance(50) {
            return self.left;
        }
        pc_of(function, self.random.below(SITES))
    }

    fn step(&mut self, most: usize) {
        let few = 1 + self.random.below(3) as usize;
        let many = self.random.below(self.depth() as u64) as usize;
        match self.random.below(100) {
            0..40 => self.call_some(3),
            40..65 => self.leave(few),
            65..70 => self.leave(many),
            70..85 => self.again_from_elsewhere(),
            85..90 => self.poke(),
            90..94 => self.signal(),
            94..97 => self.current = self.random.below(COROUTINES as u64) as usize,
            97 => self.begin(),
            _ => {}
        }
        if self.depth() > most {
            self.leave(most / 2);
        }
    }
}

/// Both ways to find the node of a stack, with one tree.
struct Check {
    tree: Tree,
    reusing: Thread,
    plain: Thread,
    cut: usize,
}

impl Check {
    fn new(frames: usize) -> Check {
        let (reusing, plain) = (Thread::new(frames, true), Thread::new(frames, false));
        Check { tree: Tree::default(), reusing, plain, cut: 0 }
    }

    fn capture(&mut self, program: &Program, at: Registers, what: &str) {
        let found = self.reusing.capture(program, &mut self.tree, at);
        let expected = self.plain.capture(program, &mut self.tree, at);
        let path = self.tree.path(expected);
        assert!(
            found == expected,
            "{what}: with reuse {:x?},\nwithout {path:x?}\nin {:x?}",
            self.tree.path(found),
            program.active[program.current],
        );
        self.cut += usize::from(path.last() == Some(&(TOO_DEEP, true)));
    }

    fn capture_anywhere(&mut self, program: &mut Program, what: &str) {
        let pc = program.some_site();
        self.capture(program, program.registers(pc), what);
    }

    fn answers(&self) -> Answers {
        self.reusing.answers
    }
}

/// A loop that calls one of a few chains each time, under outer frames that sometimes change.
fn run_loop(program: &mut Program, check: &mut Check, what: &str) {
    let base = program.depth();
    let mut chains = Vec::new();
    for _ in 0..3 {
        program.call_some(5);
        let site = program.random.below(SITES);
        let pc = pc_of(program.top().call.function, site);
        let calls = program.active[program.current][base..].iter().map(|a| a.call);
        chains.push((calls.collect::<Vec<_>>(), pc));
        program.leave(program.depth() - base);
    }
    for _ in 0..12 {
        let (calls, pc) = chains[program.random.below(3) as usize].clone();
        for &call in &calls {
            let other = program.random.chance(10);
            let scribble = if other { program.scribble() } else { call.scribble };
            program.call(Call { scribble, ..call });
        }
        let at = program.registers(pc);
        check.capture(program, at, what);
        // The function has since stored something else in rbp, regardless of its rule.
        if program.random.chance(30) {
            let bp = program.scribble();
            check.capture(program, Registers { bp, ..at }, what);
        }
        program.leave(calls.len());
        if program.random.chance(10) {
            program.poke();
        }
    }
}

#[test]
fn reuse_finds_the_same_nodes_as_unwinding() {
    let mut all = Answers::default();
    let (mut stepped, mut stepped_without) = (0, 0);
    for seed in 0..40 {
        let mut program = Program::new(seed, mixed);
        let mut check = Check::new(1024);
        for step in 0..1500 {
            let what = format!("seed {seed}, step {step}");
            program.step(40);
            check.capture_anywhere(&mut program, &what);
            if program.random.chance(5) {
                run_loop(&mut program, &mut check, &what);
            }
        }
        let answers = check.answers();
        all.same += answers.same;
        all.recalled += answers.recalled;
        all.unwound += answers.unwound;
        stepped += check.reusing.stepped();
        stepped_without += check.plain.stepped();
    }
    assert!(stepped < stepped_without / 3 * 2, "{stepped} of {stepped_without} frames stepped");
    // Each path was taken often; otherwise this test would prove nothing about it.
    assert!(all.same > 1000 && all.recalled > 1000 && all.unwound > 1000, "{all:?}");
}

/// Frames of one size, so that only the stack pointer distinguishes how many were truncated.
fn equal(_: &mut Random) -> Vec<Function> {
    let mut functions = vec![Function { kind: Kind::Plain, size: 32, pushed: 0 }; 12];
    functions[0].kind = Kind::Last;
    functions
}

#[test]
fn stacks_that_exceed_the_space_are_truncated_consistently() {
    for frames in [9, 10, 16, 17, 33] {
        for seed in 0..10 {
            let mut program = Program::new(seed, equal);
            let mut check = Check::new(frames);
            for step in 0..1500 {
                let what = format!("room {frames}, seed {seed}, step {step}");
                match program.random.below(10) {
                    0..5 => program.call_some(6),
                    5..8 => {
                        let n = program.random.below(3);
                        program.leave(1 + n as usize);
                    }
                    8 => program.again_from_elsewhere(),
                    _ => program.leave(program.depth() / 3),
                }
                if program.depth() > 5 * frames {
                    program.leave(frames);
                }
                check.capture_anywhere(&mut program, &what);
            }
            assert!(check.cut > 100, "room {frames}, seed {seed}: cut {} stacks", check.cut);
        }
    }
}
