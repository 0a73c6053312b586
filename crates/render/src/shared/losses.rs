//! Events that the totals or their stacks lack.

use heaptide_analysis::model::{Loss, Process, UnrecordedProgram};

use super::names::printable;
use super::quantity::count;

/// Maximum number of programs named per reason.
const PROGRAMS: usize = 5;

/// Losses of events are significant if they exceed this fraction of the allocations, …
const EVENTS_PART: u64 = 1000;
/// … other losses, which truncate stacks or the trace, if they exceed this fraction.
const OTHER_PART: u64 = 50;
/// Prefixes of losses that always are: losses of whole processes and snapshots.
const ALWAYS: [&str; 2] = ["child_", "no_snapshot"];

/// Returns whether a loss is a significant part of `allocations`.
pub(crate) fn is_significant(loss: &Loss, allocations: u64) -> bool {
    let part = if loss.is_of_events() { EVENTS_PART } else { OTHER_PART };
    ALWAYS.iter().any(|always| loss.name.starts_with(always))
        || loss.count >= allocations.div_ceil(part)
}

/// Describes which blocks a process freed without their allocation being known.
pub(crate) fn of_unmatched(process: &Process) -> &'static str {
    if process.identity.forked {
        "that its parent allocated before the fork, or whose allocation was not recorded"
    } else {
        "whose allocation was not recorded"
    }
}

/// Describes a loss, with the programs that were not recorded:
/// `MEANING: /bin/a, /bin/b (12 times)`.
pub(crate) fn meaning<'a>(processes: impl Iterator<Item = &'a Process>, loss: &Loss) -> String {
    let mut programs: Vec<UnrecordedProgram> = Vec::new();
    let all = processes.flat_map(|process| &process.completeness.unrecorded_programs);
    for program in all.filter(|program| program.reason == loss.name) {
        match programs.iter_mut().find(|known| known.path == program.path) {
            Some(known) => known.count = known.count.saturating_add(program.count),
            None => programs.push(program.clone()),
        }
    }
    if programs.is_empty() {
        return counted_meaning(loss);
    }
    programs.sort_by_key(|program| std::cmp::Reverse(program.count));
    let name = |program: &UnrecordedProgram| match program.count {
        1 => printable(&program.path).into_owned(),
        times => format!("{} ({} times)", printable(&program.path), count(times)),
    };
    let named: Vec<String> = programs.iter().take(PROGRAMS).map(name).collect();
    let counts = programs.iter().take(PROGRAMS).map(|program| program.count);
    let rest = match loss.count.saturating_sub(counts.fold(0, u64::saturating_add)) {
        0 => String::new(),
        rest => format!(", {} more", count(rest)),
    };
    format!("{}: {}{rest}", counted_meaning(loss), named.join(", "))
}

/// Returns what a loss is, in the singular for a single program or process.
fn counted_meaning(loss: &Loss) -> String {
    if loss.count != 1 {
        return loss.meaning.to_owned();
    }
    let meaning = loss.meaning.replace("child processes", "child process");
    let meaning = meaning.replace("programs started by exec", "program started by exec");
    meaning.replace(" that are ", " that is ").replace(" that were ", " that was ")
}
