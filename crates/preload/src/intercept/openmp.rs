//! Finds the runtime libraries of OpenMP among loaded objects, and intercepts the functions that
//! start parallel regions and create tasks ([`crate::openmp`]). Nothing is exported for that: a
//! program without such a library finds none of these functions.

use super::island::Island;
use super::kept;
use super::patch::{Function as Code, Patch, write_all};
use crate::openmp::{Body, FUNCTIONS, Function, entry};
use heaptide_recorder::sys::loader::{LinkMap, defines, each_code};
use heaptide_recorder::sys::options::Options;

/// The functions of which every runtime library exports at least one.
const STARTS: [&[u8]; 2] = [b"GOMP_parallel\0", b"__kmpc_fork_call\0"];
/// The most definitions: a name can have several versions.
const DEFINITIONS_MAX: usize = 64;

/// Intercepts the functions of an object, if it is such a library and no other thread executes its
/// code. A function whose start cannot be moved is left alone.
pub fn look_at(map: &'static LinkMap, is_safe: bool) {
    let is_runtime = STARTS.iter().any(|name| defines(map, name));
    if is_runtime && is_safe && Options::known().is_some_and(|options| options.intercept) {
        intercept(map);
    }
}

fn intercept(map: &'static LinkMap) {
    let mut codes = [const { None::<Code> }; DEFINITIONS_MAX];
    let mut patches = [const { None::<Patch> }; DEFINITIONS_MAX];
    let mut island = None;
    for (name, body) in &FUNCTIONS {
        each_code(map, name, |address, size| {
            let code = Code { address, size };
            let is_new = !codes.iter().flatten().any(|other| other.address == address);
            let place = codes.iter().position(Option::is_none).filter(|_| is_new);
            if let Some(place) = place
                && let Some(island) = island.get_or_insert_with(|| Island::near(address))
            {
                codes[place] = Some(code);
                patches[place] = plan(code, *body, island);
            }
        });
    }
    let Some(island) = island.flatten() else { return };
    let patches = patches.iter().flatten();
    let is_done = patches.clone().next().is_some()
        && kept::keep_island(&island, map.dynamic_address())
        && island.seal()
        && write_all(patches);
    if !is_done {
        // SAFETY: no jump to it was written.
        unsafe { kept::release(island) };
    }
}

fn plan(code: Code, body: Body, island: &mut Island) -> Option<Patch> {
    let patch = Patch::plan(code, 0, island).ok()?;
    let record = island.keep(Function::new(body, patch.moved))?;
    patch.pass(record, entry());
    Some(patch)
}
