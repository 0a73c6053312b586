//! Finds device drivers among loaded objects, and intercepts their functions ([`crate::driver`]).
//! Nothing is exported for that: a program without a driver finds none of these functions.

use super::island::Island;
use super::patch::{Function as Code, Patch, write_all};
use super::{kept, outcome};
use crate::driver_lookup::{Function, Queries};
use crate::driver_table::{Effect, ROW_COUNT, ROWS};
use crate::{driver, driver_lookup, driver_state, family_calls};
use heaptide_format::{DeviceApi, NotIntercepted};
use heaptide_recorder::sys::loader::{LinkMap, defines, look_up};
use heaptide_recorder::sys::options::Options;

/// A function that each driver of an API exports.
const MARKS: [(DeviceApi, &[u8]); 3] = [
    (DeviceApi::Cuda, b"cuMemAlloc_v2\0"),
    (DeviceApi::Hip, b"hipMalloc\0"),
    (DeviceApi::LevelZero, b"zeMemAllocDevice\0"),
];

/// Intercepts the functions of an object, if it is a driver and no other thread executes its code.
pub fn look_at(map: &'static LinkMap, is_safe: bool) {
    for (api, mark) in MARKS {
        if defines(map, mark) {
            outcome::note_driver(api, intercept(map, api, is_safe));
        }
    }
}

/// Writes jumps to all entries, or none. An allocating function whose start cannot be moved is left
/// alone, and the result is an error.
fn intercept(map: &'static LinkMap, api: DeviceApi, is_safe: bool) -> Result<(), NotIntercepted> {
    if !Options::known().is_some_and(|options| options.intercept) {
        return Err(NotIntercepted::TurnedOff);
    }
    if !is_safe {
        return Err(NotIntercepted::Threads);
    }
    let mut plan = Plan { codes: [None; ROW_COUNT], patches: [None; ROW_COUNT], is_whole: true };
    let (_, mark) = MARKS.into_iter().find(|(of, _)| *of == api).ok_or(NotIntercepted::Unknown)?;
    let (near, _) = look_up(map, mark).ok_or(NotIntercepted::Unmovable)?;
    if api == DeviceApi::Cuda && !driver_lookup::has_stubs() {
        make_stubs(near as u64).ok_or(NotIntercepted::Refused)?;
    }
    let mut island = Island::near(near as u64).ok_or(NotIntercepted::Refused)?;
    let outcome = plan.make(map, api, &mut island).and_then(|()| {
        let patches = plan.patches.iter().flatten();
        let is_done = kept::keep_island(&island, map.dynamic_address())
            && island.seal()
            && write_all(patches);
        if is_done { Ok(()) } else { Err(NotIntercepted::Refused) }
    });
    if outcome.is_err() {
        // SAFETY: no jump to it was written.
        unsafe { kept::release(island) };
        return outcome;
    }
    for (row, code) in plan.codes.iter().enumerate() {
        if let Some(code) = code {
            driver_lookup::note(row, code.address);
        }
    }
    if plan.is_whole { Ok(()) } else { Err(NotIntercepted::Unmovable) }
}

struct Plan {
    /// The functions of the object, by row.
    codes: [Option<Code>; ROW_COUNT],
    patches: [Option<Patch>; ROW_COUNT],
    /// Whether all functions can be intercepted.
    is_whole: bool,
}

impl Plan {
    fn make(
        &mut self,
        map: &LinkMap,
        api: DeviceApi,
        island: &mut Island,
    ) -> Result<(), NotIntercepted> {
        let entry = family_calls::entry();
        let address = |name: Option<&[u8]>| name.and_then(|name| look_up(map, name));
        let queries = driver_state::queries(api).map(|name| address(name).map_or(0, |(at, _)| at));
        let queries = Queries(queries);
        for (index, row) in ROWS.iter().enumerate().filter(|(_, row)| row.api == api) {
            let Some((address, size)) = look_up(map, row.symbol) else { continue };
            let code = Code { address: address as u64, size };
            // Two names of one function share a jump.
            let is_new = !self.codes.iter().flatten().any(|other| other.address == code.address);
            if !is_new {
                continue;
            }
            match Patch::plan(code, 0, island) {
                Ok(patch) => {
                    let function = Function::new(driver::body, index, patch.moved, queries);
                    let record = island.keep(function).ok_or(NotIntercepted::Refused)?;
                    patch.pass(record, entry);
                    (self.codes[index], self.patches[index]) = (Some(code), Some(patch));
                }
                Err(_) if only_allocates(row.effect) => self.is_whole = false,
                Err(_) => return Err(NotIntercepted::Unmovable),
            }
        }
        Ok(())
    }
}

/// Makes the stubs for functions that drivers look up, in an island that stays.
fn make_stubs(near: u64) -> Option<()> {
    let mut island = Island::near(near)?;
    let mut stubs = [0; driver_lookup::SPARES];
    for (index, stub) in stubs.iter_mut().enumerate() {
        let record = core::ptr::from_ref(driver_lookup::function(index)) as u64;
        *stub = island.take()?.call(record, family_calls::entry());
    }
    island.seal().then(|| driver_lookup::set_stubs(stubs, driver::body))
}

/// Returns whether all other numbers are right if a function is not intercepted.
fn only_allocates(effect: Effect) -> bool {
    matches!(effect, Effect::Allocate { .. } | Effect::AllocateHost { .. })
}
