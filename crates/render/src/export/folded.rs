//! Folded stacks, as flamegraph.pl, inferno and speedscope read them: a line for each, outermost
//! function first, and its value.
//!
//! Of millions of stacks the text is thousands of times the tables. Lines come in the order of the
//! tree, so that a line is the one before it with its end changed; two threads make them, a third
//! hands them on in order.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;

use heaptide_analysis::attribution::{FunctionId, Functions};
use heaptide_analysis::model::{LaneId, Measure, Process};

use crate::export::folded_lines::plain;
use crate::shared::branches::Lanes;
use crate::shared::branches::{Branch, Branches, What, lanes_by};
use crate::shared::names::printable;
use crate::shared::quantity::{bytes, counted};

/// Threads that make lines.
const MAKERS: usize = 2;
/// Branches that a maker takes at a time.
const TURN: usize = 2048;
/// Bytes that are handed on at a time; two makers' fit into a cache.
const PIECE: usize = 256 << 10;
/// Pieces that a maker may be ahead.
const AHEAD: usize = 4;

/// What each line says besides its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Notes {
    /// Nothing.
    #[default]
    None,
    /// As an innermost frame, how many blocks and of what size: `[12 allocations, 341 B each]`.
    Counts,
}

/// Writes the stacks of a process that have a value of the measure. Names are whole and printable;
/// semicolons in them are colons. With lanes apart, their names are outermost frames.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    process: &Process,
    measure: Measure,
    lanes: Lanes,
    notes: Notes,
) -> io::Result<()> {
    let functions = Functions::of(process);
    let names = (0..functions.len() as u32).map(|id| {
        let frame = functions.first_frame(FunctionId(id));
        plain(&printable(&process.label(frame)))
    });
    let folding = Folding { process, names: names.collect(), functions };
    let trees = match lanes {
        Lanes::Merged => vec![(None, String::new())],
        Lanes::Apart => lanes_by(process, measure)
            .into_iter()
            .map(|(id, lane)| (Some(id), plain(&printable(&lane.name))))
            .collect(),
    };
    for (lane, name) in trees {
        match notes {
            Notes::None => folding.write(out, lane, &name, [measure], |_| String::new())?,
            Notes::Counts => {
                let (blocks, word, bytes) = counts(measure);
                let note = |values: &[u64; 3]| note(values[1], word, values[2]);
                folding.write(out, lane, &name, [measure, blocks, bytes], note)?;
            }
        }
    }
    Ok(())
}

/// The blocks that a measure is of, what one of them is called, and their bytes.
fn counts(measure: Measure) -> (Measure, &'static str, Measure) {
    match measure.of_sites() {
        Measure::AtPeakBytes | Measure::AtPeakBlocks => {
            (Measure::AtPeakBlocks, "block", Measure::AtPeakBytes)
        }
        Measure::LiveBytes | Measure::LiveBlocks => {
            (Measure::LiveBlocks, "block", Measure::LiveBytes)
        }
        Measure::FreedBytes | Measure::Frees => (Measure::Frees, "free", Measure::FreedBytes),
        Measure::FreesHere | Measure::FreedHereBytes => {
            (Measure::FreesHere, "free", Measure::FreedHereBytes)
        }
        Measure::UsableBytes => (Measure::Allocations, "allocation", Measure::UsableBytes),
        _ => (Measure::Allocations, "allocation", Measure::RequestedBytes),
    }
}

fn note(blocks: u64, word: &str, sum: u64) -> String {
    match blocks {
        0 => String::new(),
        _ => format!("[{}, {} each]", counted(blocks, word), bytes(sum / blocks)),
    }
}

/// A process whose stacks are written.
struct Folding<'a> {
    process: &'a Process,
    functions: Functions,
    /// By function.
    names: Vec<String>,
}

impl Folding<'_> {
    /// Writes the stacks of a lane, or of all, the name in front of each if there is one.
    fn write<const N: usize>(
        &self,
        out: &mut dyn Write,
        lane: Option<LaneId>,
        name: &str,
        measures: [Measure; N],
        note: impl Fn(&[u64; N]) -> String + Sync,
    ) -> io::Result<()> {
        let tree = Branches::calls(self.process, &self.functions, lane, measures);
        let order = before_what_is_inside(&tree.all);
        let (tree, order, note) = (&tree.all, &order, &note);
        std::thread::scope(|scope| {
            let makers: Vec<Receiver<Piece>> = (0..MAKERS)
                .map(|number| {
                    let (sender, receiver) = sync_channel(AHEAD);
                    let mut lines = Lines { folding: self, tree, note, name, sender, open: None };
                    let make = move || lines.make(order, number);
                    Builder::new().spawn_scoped(scope, make).map(|_| receiver)
                })
                .collect::<io::Result<_>>()?;
            hand_on(out, &makers, order.len().div_ceil(TURN))
        })
    }
}

/// The branches in an order in which all that grows from one follows it.
fn before_what_is_inside<const N: usize>(tree: &[Branch<N>]) -> Vec<u32> {
    let mut sizes = vec![1u32; tree.len()];
    for index in (1..tree.len()).rev() {
        sizes[tree[index].parent as usize] += sizes[index];
    }
    // Of each branch, where the next one that grows from it comes.
    let mut next = vec![1u32; tree.len()];
    let mut order = vec![0u32; tree.len()];
    for (index, branch) in tree.iter().enumerate().skip(1) {
        let place = &mut next[branch.parent as usize];
        let at = *place;
        *place += sizes[index];
        next[index] = at + 1;
        order[at as usize] = index as u32;
    }
    order
}

/// Lines, or the end of a maker's turn.
type Piece = Option<Vec<u8>>;

/// Writes the pieces in order of the turns. Makers end once nobody takes their pieces.
fn hand_on(out: &mut dyn Write, makers: &[Receiver<Piece>], turns: usize) -> io::Result<()> {
    for maker in (0..turns).map(|turn| &makers[turn % makers.len()]) {
        while let Ok(Some(piece)) = maker.recv() {
            out.write_all(&piece)?;
        }
    }
    Ok(())
}

/// A maker of lines.
struct Lines<'a, const N: usize, F> {
    folding: &'a Folding<'a>,
    tree: &'a [Branch<N>],
    note: &'a F,
    name: &'a str,
    sender: SyncSender<Piece>,
    open: Option<Path>,
}

/// The branches that the last line went through.
struct Path {
    /// Each with the bytes of the line up to it.
    branches: Vec<(u32, usize)>,
    text: Vec<u8>,
    /// Those that it is to go on to, the next one last.
    way: Vec<u32>,
}

impl<const N: usize, F: Fn(&[u64; N]) -> String> Lines<'_, N, F> {
    /// Makes the lines of every turn that is this maker's, until nobody wants them.
    fn make(&mut self, order: &[u32], number: usize) {
        let turns = order.chunks(TURN).skip(number).step_by(MAKERS);
        for turn in turns {
            if self.turn(turn).is_none() {
                return;
            }
        }
    }

    fn turn(&mut self, turn: &[u32]) -> Option<()> {
        let mut path = self.open.take().unwrap_or_else(|| self.root());
        let mut piece = Vec::with_capacity(PIECE);
        for &at in turn {
            let branch = &self.tree[at as usize];
            if branch.inclusive == [0; N] {
                continue;
            }
            self.go_to(&mut path, at);
            if branch.own[0] > 0 {
                self.line(&mut piece, &path, &branch.own);
            }
            if piece.len() >= PIECE {
                let full = std::mem::replace(&mut piece, Vec::with_capacity(PIECE));
                self.sender.send(Some(full)).ok()?;
            }
        }
        self.open = Some(path);
        self.sender.send(Some(piece)).ok()?;
        self.sender.send(None).ok()
    }

    fn root(&self) -> Path {
        let text = self.name.as_bytes().to_vec();
        Path { branches: vec![(0, text.len())], text, way: Vec::new() }
    }

    /// Goes back to where the way to a branch parted, and on to the branch.
    fn go_to(&self, path: &mut Path, branch: u32) {
        let mut at = branch;
        // What is on the path was made before what is not, in every tree.
        loop {
            while path.branches.last().is_some_and(|open| open.0 > at) {
                path.branches.pop();
            }
            if at == 0 || path.branches.last().is_some_and(|open| open.0 == at) {
                break;
            }
            path.way.push(at);
            at = self.tree[at as usize].parent;
        }
        path.text.truncate(path.branches.last().map_or(0, |open| open.1));
        while let Some(at) = path.way.pop() {
            if let What::Call(frame) = self.tree[at as usize].what {
                let name = &self.folding.names[self.folding.functions.of_frame(frame).0 as usize];
                push(&mut path.text, name);
            }
            path.branches.push((at, path.text.len()));
        }
    }

    fn line(&self, piece: &mut Vec<u8>, path: &Path, values: &[u64; N]) {
        let start = piece.len();
        piece.extend_from_slice(&path.text);
        if path.branches.len() == 1 {
            push_after(piece, start, "(no stack)");
        }
        push_after(piece, start, &(self.note)(values));
        let _ = writeln!(piece, " {}", values[0]); // a Vec takes all
    }
}

/// Adds a frame to a line.
fn push(line: &mut Vec<u8>, frame: &str) {
    push_after(line, 0, frame);
}

/// Adds a frame, if it is one, to a line that starts there.
fn push_after(text: &mut Vec<u8>, start: usize, frame: &str) {
    if frame.is_empty() {
        return;
    }
    if text.len() > start {
        text.push(b';');
    }
    text.extend_from_slice(frame.as_bytes());
}
