//! Finds wrappers by behaviour: functions that allocate what their callers request, regardless of
//! their name.

use rustc_hash::FxHashSet;

use super::functions::Functions;
use super::known::Role;
use crate::model::{Process, StackId};

/// Number of passes, so that wrappers of wrappers of wrappers are found.
pub(super) const ROUNDS: usize = 3;
/// A wrapper has at least this many callers …
const CALLERS: usize = 6;
/// … which request sizes that differ by at least this factor …
const SPREAD: u64 = 8;
/// … and at most this many allocating call sites.
const PLACES: usize = 3;

/// An allocation of an owner.
struct Use {
    function: u32,
    caller: u32,
    /// The average of the requested bytes.
    size: u64,
    /// The allocating call site in the function.
    frame: u32,
}

/// Marks owners as wrappers that behave like one: they have many callers and few allocating call
/// sites, and the caller determines the size, so that there are about as many sizes as callers. A
/// constructor has many callers and one size; a parser has many sizes and few callers. Returns
/// whether any were found.
pub(super) fn find_wrappers(
    process: &Process,
    functions: &Functions,
    owners: &[StackId],
    roles: &mut [Role],
) -> bool {
    let mut uses = uses(process, functions, owners, roles);
    uses.sort_unstable_by_key(|of| of.function);
    let found: Vec<u32> = uses
        .chunk_by(|a, b| a.function == b.function)
        .filter(|of| is_wrapper(of))
        .map(|of| of[0].function)
        .collect();
    found.iter().for_each(|&function| roles[function as usize] = Role::Wrapper);
    !found.is_empty()
}

fn uses(process: &Process, functions: &Functions, owners: &[StackId], roles: &[Role]) -> Vec<Use> {
    let stacks = &process.tables.stacks;
    let of_node = |at: StackId| functions.of_frame(stacks[at.0 as usize].frame).0;
    let is_named = |at: StackId| {
        let frame = &process.tables.frames[stacks[at.0 as usize].frame.0 as usize];
        frame.function.is_some() && !frame.is_scope()
    };
    let mut uses = Vec::new();
    for site in &process.tables.sites {
        let owner = owners.get(site.stack.0 as usize).copied().unwrap_or(StackId(0));
        if owner == StackId(0) || site.measures.allocations == 0 || !is_named(owner) {
            continue;
        }
        let caller = stacks[owner.0 as usize].parent;
        let function = of_node(owner);
        // A recursive call is not a caller.
        if caller == StackId(0)
            || of_node(caller) == function
            || roles[function as usize] != Role::Owner
        {
            continue;
        }
        uses.push(Use {
            function,
            caller: of_node(caller),
            size: site.measures.requested_bytes / site.measures.allocations,
            frame: stacks[owner.0 as usize].frame.0,
        });
    }
    uses
}

fn is_wrapper(uses: &[Use]) -> bool {
    if uses.len() < CALLERS {
        return false;
    }
    let count = |of: fn(&Use) -> u64| uses.iter().map(of).collect::<FxHashSet<u64>>().len();
    let (callers, places) = (count(|of| of.caller.into()), count(|of| of.frame.into()));
    if callers < CALLERS || places > PLACES {
        return false;
    }
    let sizes = count(|of| of.size);
    let least = uses.iter().map(|of| of.size).min().unwrap_or_default().max(1);
    let most = uses.iter().map(|of| of.size).max().unwrap_or_default();
    sizes * 3 >= callers * 2 && most / least >= SPREAD
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns uses of one function by `callers` callers, each with a size.
    fn by(callers: u32, size: impl Fn(u32) -> u64, places: u32) -> Vec<Use> {
        let of = |n| Use { function: 1, caller: 10 + n, size: size(n), frame: n % places };
        (0..callers).map(of).collect()
    }

    #[test]
    fn a_wrapper_has_many_callers_that_decide_its_size() {
        assert!(is_wrapper(&by(8, |n| 16 << n, 1)));
        assert!(!is_wrapper(&by(8, |_| 64, 1)), "a constructor");
        assert!(!is_wrapper(&by(5, |n| 16 << n, 1)), "few callers");
        assert!(!is_wrapper(&by(8, |n| 64 + n as u64, 1)), "sizes alike");
        assert!(!is_wrapper(&by(8, |n| 16 << n, 5)), "allocates in many places");
        assert!(!is_wrapper(&by(12, |n| 16 << (n % 4), 1)), "few sizes");
    }
}
