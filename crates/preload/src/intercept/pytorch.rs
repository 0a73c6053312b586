//! Finds PyTorch's core library among loaded objects, and intercepts the function to which its
//! caching allocators report blocks ([`crate::pytorch`]).

use super::island::Island;
use super::kept;
use super::patch::{Function as Code, Patch, write_all};
use crate::pytorch::{Function, REPORTS, entry};
use heaptide_recorder::sys::loader::{LinkMap, look_up};
use heaptide_recorder::sys::options::Options;

/// Intercepts the function of an object, if it has one and no other thread executes its code.
pub fn look_at(map: &'static LinkMap, is_safe: bool) {
    if is_safe
        && let Some((address, size)) = REPORTS.iter().find_map(|name| look_up(map, name))
        && Options::known().is_some_and(|options| options.intercept)
    {
        intercept(map, Code { address: address as u64, size });
    }
}

fn intercept(map: &'static LinkMap, code: Code) {
    let Some(mut island) = Island::near(code.address) else { return };
    let is_done = plan(code, &mut island).is_some_and(|patch| {
        kept::keep_island(&island, map.dynamic_address())
            && island.seal()
            && write_all(core::iter::once(&patch))
    });
    if !is_done {
        // SAFETY: no jump to it was written.
        unsafe { kept::release(island) };
    }
}

fn plan(code: Code, island: &mut Island) -> Option<Patch> {
    let patch = Patch::plan(code, 0, island).ok()?;
    let record = island.keep(Function::new(patch.moved))?;
    patch.pass(record, entry());
    Some(patch)
}
