//! Intercepted functions of drivers, and those that CUDA's driver looks up for programs
//! (`cuGetProcAddress`). Usually these are functions that it exports, whose entries are
//! intercepted. For others, the program gets a stub, which calls the function that the driver
//! returned.

use crate::driver_table::{ROWS, Row};
use core::ffi::CStr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU64, AtomicUsize};
use heaptide_format::DeviceApi;

/// The body of an intercepted function, which gets the argument registers and its record. Returns
/// the value for the result register.
pub type Body = extern "C" fn(&[usize; 7], sp: u64, bp: u64, function: &Function) -> usize;

/// An intercepted function. The stub at its entry passes it to [`crate::family_calls::entry`].
#[repr(C)]
pub struct Function {
    /// Its [`Body`]: the first field, because the entry calls it.
    body: AtomicUsize,
    /// The moved function, or one that a driver returned; 0: the stub is not in use.
    moved: AtomicUsize,
    /// Its index in [`ROWS`].
    row: AtomicUsize,
    /// Functions of its driver.
    queries: [AtomicUsize; 2],
}

/// The functions of a driver that return the current device and the current context; 0 if there is
/// none.
#[derive(Clone, Copy)]
pub struct Queries(pub [usize; 2]);

impl Function {
    const fn unused() -> Function {
        let [body, moved, row] = [const { AtomicUsize::new(0) }; 3];
        Function { body, moved, row, queries: [const { AtomicUsize::new(0) }; 2] }
    }

    /// Returns the function of a row, with the address at which it can be called.
    pub fn new(body: Body, row: usize, moved: u64, queries: Queries) -> Function {
        let function = Function::unused();
        function.body.store(body as usize, Relaxed);
        function.set(row, moved as usize, queries);
        function
    }

    pub fn moved(&self) -> usize {
        self.moved.load(Acquire)
    }

    pub fn row(&self) -> usize {
        self.row.load(Relaxed)
    }

    pub fn queries(&self) -> Queries {
        Queries([0, 1].map(|index| self.queries[index].load(Relaxed)))
    }

    /// Makes it the function of a row.
    fn set(&self, row: usize, moved: usize, Queries(queries): Queries) {
        self.row.store(row, Relaxed);
        self.queries.iter().zip(queries).for_each(|(to, query)| to.store(query, Relaxed));
        self.moved.store(moved, Release);
    }

    /// Returns whether it is the function of a row at an address.
    fn is(&self, row: usize, moved: usize) -> bool {
        self.moved() == moved && self.row() == row
    }
}

/// Number of stubs.
pub const SPARES: usize = 64;

/// The functions of the stubs, and how many are in use.
static FUNCTIONS: [Function; SPARES] = [const { Function::unused() }; SPARES];
static USED: AtomicUsize = AtomicUsize::new(0);
/// The addresses of the stubs; 0 before a driver is intercepted.
static STUBS: [AtomicU64; SPARES] = [const { AtomicU64::new(0) }; SPARES];
/// The addresses of functions whose entries are intercepted.
static INTERCEPTED: [AtomicU64; ROWS.len()] = [const { AtomicU64::new(0) }; ROWS.len()];

/// The version of CUDA, as the program passes it, since which addresses have 64 bits. Functions of
/// earlier versions have other arguments.
const WITH_64_BITS: i32 = 3020;

/// Returns the function of a stub.
pub fn function(index: usize) -> &'static Function {
    &FUNCTIONS[index]
}

/// Returns whether the stubs were made.
pub fn has_stubs() -> bool {
    STUBS[0].load(Acquire) != 0
}

/// Sets the addresses of the stubs, and the body of their functions. They are made once: programs
/// keep the functions that they looked up, whatever driver is loaded or unloaded later.
pub fn set_stubs(stubs: [u64; SPARES], body: Body) {
    FUNCTIONS.iter().for_each(|function| function.body.store(body as usize, Relaxed));
    STUBS.iter().zip(stubs).for_each(|(known, stub)| known.store(stub, Release));
}

/// Notes that the entry of the function of a row is intercepted.
pub fn note(row: usize, address: u64) {
    INTERCEPTED[row].store(address, Relaxed);
}

/// Replaces the function that the driver has returned at `out` for a name and a version, unless its
/// entry is intercepted.
pub fn replace(name: usize, out: usize, version: i32, queries: Queries) {
    if name == 0 || out == 0 || version < WITH_64_BITS {
        return;
    }
    // SAFETY: the driver has read the name and written the function.
    let (name, out) = unsafe { (CStr::from_ptr(name as *const _), &mut *(out as *mut usize)) };
    let is_known = |known: &AtomicU64| known.load(Relaxed) == *out as u64;
    if *out == 0 || INTERCEPTED.iter().any(is_known) {
        return;
    }
    let is_it = |symbol: &[u8]| base(symbol) == base(name.to_bytes_with_nul());
    let is_row = |row: &Row| row.api == DeviceApi::Cuda && is_it(row.symbol);
    if let Some(row) = ROWS.iter().position(is_row)
        && let Some(stub) = stub_of(row, *out, queries)
    {
        *out = stub as usize;
    }
}

/// Returns the stub for a function of a row; `None` if all are in use.
fn stub_of(row: usize, function: usize, queries: Queries) -> Option<u64> {
    let known = FUNCTIONS.iter().position(|known| known.is(row, function));
    let index = known.or_else(|| {
        let index = USED.fetch_add(1, Relaxed);
        FUNCTIONS.get(index)?.set(row, function, queries);
        Some(index)
    })?;
    let stub = STUBS[index].load(Acquire);
    (stub != 0).then_some(stub)
}

/// Returns a name without its version, which ends with a zero byte.
fn base(symbol: &[u8]) -> &[u8] {
    let name = symbol.strip_suffix(b"\0").unwrap_or(symbol);
    let name = name.strip_suffix(b"_ptsz").unwrap_or(name);
    name.strip_suffix(b"_v2").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_versions() {
        for symbol in ["cuMemAlloc\0", "cuMemAlloc_v2\0", "cuMemAlloc_v2_ptsz\0", "cuMemAlloc_ptsz"]
        {
            assert_eq!(base(symbol.as_bytes()), b"cuMemAlloc", "{symbol}");
        }
    }
}
