//! Stacks as lines of text: folded recursion, omitted frames.

use heaptide_analysis::attribution::is_own;
use heaptide_analysis::model::{Frame, FrameId, Process};

use crate::shared::distinct_names::Labels;
use crate::shared::frames::{is_starter, place};

/// One line of a printed stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Index of its first frame.
    pub at: usize,
    /// The function, or a description of several frames.
    pub label: String,
    /// Source place; empty if unknown.
    pub place: String,
    /// Whether it is the program's own code.
    pub is_own: bool,
}

impl Line {
    /// Returns whether it represents omitted frames.
    pub fn is_left_out(&self) -> bool {
        self.label.starts_with('…')
    }
}

/// Returns frames, innermost first, as at most `limit` lines, but at least three. Recursion is
/// folded, and frames that start the program are omitted. Of a long stack, the innermost and the
/// outermost function are kept, then those of the program's own code, then other inner ones. Lines
/// between them state the number of omitted frames.
pub fn lines(labels: &Labels, frames: &[FrameId], limit: usize, width: usize) -> Vec<Line> {
    let table = &labels.process.tables.frames;
    let frames: Vec<&Frame> = frames.iter().map(|id| &table[id.0 as usize]).collect();
    lines_of(labels, &frames, limit, width)
}

/// Like [`lines`], for frames that need not be in the table.
pub(crate) fn lines_of(
    labels: &Labels,
    frames: &[&Frame],
    limit: usize,
    width: usize,
) -> Vec<Line> {
    let runs = fold(&frames[..without_starters(frames)]);
    let own: Vec<bool> = runs.iter().map(|run| run.is_own(labels.process)).collect();
    let chosen = chosen(&own, limit.max(3));
    let mut lines = Vec::new();
    let mut index = 0;
    while let Some(run) = runs.get(index) {
        if chosen[index] {
            lines.push(run.line(labels, width));
            index += 1;
            continue;
        }
        let end = (index..runs.len()).find(|&at| chosen[at]).unwrap_or(runs.len());
        let left_out = &runs[index..end];
        let frames: usize = left_out.iter().map(Run::len).sum();
        let of = if own[index..end].contains(&true) { "more" } else { "library" };
        let label = format!("… {frames} {of} {}", if frames == 1 { "frame" } else { "frames" });
        lines.push(Line { at: run.at, label, place: String::new(), is_own: false });
        index = end;
    }
    lines
}

/// Selects the runs to show in `limit` lines; `own` marks runs of own code. Adjacent omitted runs
/// share one line.
fn chosen(own: &[bool], limit: usize) -> Vec<bool> {
    if own.len() <= limit {
        return vec![true; own.len()];
    }
    let mut chosen = vec![false; own.len()];
    (chosen[0], chosen[own.len() - 1]) = (true, true);
    let lines = |chosen: &[bool]| {
        let gaps = chosen.windows(2).filter(|pair| pair[0] && !pair[1]).count();
        chosen.iter().filter(|&&chosen| chosen).count() + gaps
    };
    for own_first in [true, false] {
        for index in (1..own.len() - 1).filter(|&index| own[index] == own_first) {
            chosen[index] = true;
            if lines(&chosen) > limit {
                chosen[index] = false;
            }
        }
    }
    chosen
}

/// Returns the number of frames without those that start the program. One or two outermost nameless
/// frames belong to the `_start` of a stripped program.
fn without_starters(frames: &[&Frame]) -> usize {
    const NAMELESS_MAX: usize = 2;
    let named = frames.iter().rposition(|f| f.function.is_some()).map_or(0, |i| i + 1);
    let mut end = if frames.len() - named <= NAMELESS_MAX { named } else { frames.len() };
    let before = end;
    while end > 0 && is_starter(frames[end - 1]) {
        end -= 1;
    }
    if end == before { frames.len() } else { end }
}

/// A sequence of frames that is repeated `times` times.
struct Run<'a> {
    /// Index of its first frame.
    at: usize,
    frames: &'a [&'a Frame],
    times: usize,
}

impl Run<'_> {
    fn len(&self) -> usize {
        self.frames.len() * self.times
    }

    fn is_own(&self, process: &Process) -> bool {
        self.frames.iter().any(|frame| is_own(process, frame))
    }

    fn line(&self, labels: &Labels, width: usize) -> Line {
        let process = labels.process;
        let first = self.frames[0];
        let (at, place, is_own) = (self.at, place(process, first), self.is_own(process));
        if self.times == 1 {
            return Line { at, label: labels.label(first, width), place, is_own };
        }
        let repeat = format!(" … ×{}", self.times);
        let share = (width.saturating_sub(repeat.chars().count())) / self.frames.len();
        let label = |frame: &&Frame| labels.label(frame, share.saturating_sub(3).max(8));
        let functions: Vec<String> = self.frames.iter().map(label).collect();
        Line { at, label: functions.join(" ← ") + &repeat, place, is_own }
    }
}

/// The longest cycle of functions that is folded.
const CYCLE_MAX: usize = 4;

fn fold<'a>(frames: &'a [&'a Frame]) -> Vec<Run<'a>> {
    let mut runs = Vec::new();
    let mut at = 0;
    while at < frames.len() {
        let rest = &frames[at..];
        let longest = (1..=CYCLE_MAX.min(rest.len()))
            .map(|period| (repeats(rest, period), period))
            .filter(|&(times, _)| times > 1)
            .max_by_key(|&(times, period)| (times * period, usize::MAX - period));
        let (times, period) = longest.unwrap_or((1, 1));
        runs.push(Run { at, frames: &rest[..period], times });
        at += times * period;
    }
    runs
}

/// Returns how many times the first `period` frames occur in succession.
fn repeats(frames: &[&Frame], period: usize) -> usize {
    let same = |a: &Frame, b: &Frame| a.function.is_some() && a.function == b.function;
    let equal = (period..frames.len()).take_while(|&i| same(frames[i], frames[i - period])).count();
    1 + equal / period
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptide_analysis::model::CodeKind;

    fn frame(function: &str) -> Frame {
        Frame {
            function: (!function.is_empty()).then(|| function.into()),
            module: None,
            offset: 16,
            file: None,
            line: None,
            inlined: false,
            code: CodeKind::Native,
        }
    }

    /// Folds frames of these functions, innermost first, and returns them as `function` or
    /// `f+g×times`.
    fn folded(functions: &[&str]) -> String {
        let frames: Vec<Frame> = functions.iter().map(|f| frame(f)).collect();
        let frames: Vec<&Frame> = frames.iter().collect();
        let name = |f: &&Frame| f.function.as_deref().unwrap_or_default().to_owned();
        let run = |r: &Run| {
            let names = r.frames.iter().map(name).collect::<Vec<_>>().join("+");
            if r.times == 1 { names } else { format!("{names}×{}", r.times) }
        };
        fold(&frames[..without_starters(&frames)]).iter().map(run).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn recursion_is_folded_also_through_several_functions() {
        assert_eq!(folded(&["a", "b", "c"]), "a b c");
        assert_eq!(folded(&["a", "b", "b", "b", "c"]), "a b×3 c");
        assert_eq!(folded(&["x", "a", "b", "a", "b", "a", "c"]), "x a+b×2 a c");
        assert_eq!(folded(&["", "", "a"]), "  a", "nameless frames need not be the same");
    }

    #[test]
    fn what_starts_a_program_is_left_out() {
        assert_eq!(folded(&["f", "main", "__libc_start_call_main", "_start"]), "f main");
        assert_eq!(folded(&["f", "main", "__libc_start_main_impl", ""]), "f main", "stripped");
        assert_eq!(folded(&["f", "work", "start_thread", "clone3"]), "f work");
        assert_eq!(folded(&["f", "", ""]), "f  ", "no starter, so nothing is known of the rest");
    }

    #[test]
    fn own_code_stays_when_a_stack_is_shortened() {
        let kept = |own: &str, limit| {
            let own: Vec<bool> = own.bytes().map(|b| b == b'o').collect();
            chosen(&own, limit).into_iter().map(|kept| if kept { 'x' } else { '-' }).collect()
        };
        let same = |own, limit, expected: &str| {
            let found: String = kept(own, limit);
            assert_eq!(found, expected, "{own} in {limit} lines");
        };
        same("lllll", 5, "xxxxx");
        same("llllllll", 5, "xxx----x");
        same("llllollll", 6, "xx--x---x");
        same("llloolll", 5, "x--x---x");
        same("looooool", 6, "xxxx---x");
        same("lllllloll", 3, "x-------x");
    }
}
