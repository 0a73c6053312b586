//! Export of folded stacks, for flamegraph.pl, inferno and speedscope: a line for each stack,
//! outermost function first, followed by its value.
//!
//! For millions of stacks, the text is thousands of times as large as the tables. Lines are written
//! in depth-first order, so that each differs from the previous one only at its end. Two threads
//! format lines; the calling thread writes them in order.

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

/// Threads that format lines.
const MAKERS: usize = 2;
/// Branches that a thread formats per turn.
const TURN: usize = 2048;
/// Bytes per piece of output; the pieces of two threads fit into a cache.
const PIECE: usize = 256 << 10;
/// Pieces that a thread can be ahead of the writer.
const AHEAD: usize = 4;

/// Annotation of each line, besides its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Notes {
    /// No annotation.
    #[default]
    None,
    /// The number and average size of the blocks, as an innermost frame:
    /// `[12 allocations, 341 B each]`.
    Counts,
}

/// Writes the stacks of a process with a value of the metric. Names are complete and printable;
/// semicolons in them become colons. With lanes apart, the names of lanes are outermost frames.
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

/// Returns the count of blocks that corresponds to a metric, the word for one of them, and the
/// metric of their bytes.
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

/// Data that all threads share.
struct Folding<'a> {
    process: &'a Process,
    functions: Functions,
    /// By function.
    names: Vec<String>,
}

impl Folding<'_> {
    /// Writes the stacks of a lane, or of all lanes, after `name` if it is not empty.
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

/// Returns the branches in depth-first order: descendants directly follow their ancestor.
fn before_what_is_inside<const N: usize>(tree: &[Branch<N>]) -> Vec<u32> {
    let mut sizes = vec![1u32; tree.len()];
    for index in (1..tree.len()).rev() {
        sizes[tree[index].parent as usize] += sizes[index];
    }
    // For each branch, the position of its next child.
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

/// A part of the output, or `None` at the end of a turn.
type Piece = Option<Vec<u8>>;

/// Writes the pieces in order of the turns. The threads end when their receivers are dropped.
fn hand_on(out: &mut dyn Write, makers: &[Receiver<Piece>], turns: usize) -> io::Result<()> {
    for maker in (0..turns).map(|turn| &makers[turn % makers.len()]) {
        while let Ok(Some(piece)) = maker.recv() {
            out.write_all(&piece)?;
        }
    }
    Ok(())
}

/// State of a thread that formats lines.
struct Lines<'a, const N: usize, F> {
    folding: &'a Folding<'a>,
    tree: &'a [Branch<N>],
    note: &'a F,
    name: &'a str,
    sender: SyncSender<Piece>,
    open: Option<Path>,
}

/// The branches on the path of the last line.
struct Path {
    /// Branches, each with the length of `text` up to it.
    branches: Vec<(u32, usize)>,
    text: Vec<u8>,
    /// Branches still to be entered, the next one last.
    way: Vec<u32>,
}

impl<const N: usize, F: Fn(&[u64; N]) -> String> Lines<'_, N, F> {
    /// Formats the lines of this thread's turns, until the receiver is dropped.
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

    /// Moves the path to a branch: up to the common ancestor, then down.
    fn go_to(&self, path: &mut Path, branch: u32) {
        let mut at = branch;
        // In every tree, branches on the path have lower indices than branches that are not yet on
        // it.
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
        let _ = writeln!(piece, " {}", values[0]); // writing to a Vec cannot fail
    }
}

/// Appends a frame to a line.
fn push(line: &mut Vec<u8>, frame: &str) {
    push_after(line, 0, frame);
}

/// Appends a frame to the line that begins at `start`; does nothing if the frame is empty.
fn push_after(text: &mut Vec<u8>, start: usize, frame: &str) {
    if frame.is_empty() {
        return;
    }
    if text.len() > start {
        text.push(b';');
    }
    text.extend_from_slice(frame.as_bytes());
}
