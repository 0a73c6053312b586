//! Records the calls of functions of families, and of those of the process's allocator that have
//! names of their own.

use crate::allocator::{Address, NULL};
use crate::block_sizes::{keep_size, size_of, take_size};
use crate::calls;
use crate::family::{Shape, Sizes};
use crate::{Preload, arch, inlined};
use core::ffi::CStr;
use heaptide_format::shared::Word;
use heaptide_format::{Call, Mode};
use heaptide_recorder::event::inside::{Entry, Inside};
use heaptide_recorder::event::record::{self, Moving, MovingNested};
use heaptide_recorder::event::step;
use heaptide_recorder::store::shared::store;

/// A function with up to six arguments; additional ones are ignored.
pub type Moved = extern "C" fn(usize, usize, usize, usize, usize, usize) -> usize;

/// The argument registers in order, followed by the result register.
type Registers = [usize; 7];

/// The body of an intercepted function. Returns the value for the result register.
type Body = extern "C" fn(&Registers, sp: u64, bp: u64, function: &Function) -> usize;

/// An intercepted function. The stub at its entry passes it to [`entry`].
#[repr(C)]
pub struct Function {
    /// The first field, because `entered` calls it.
    body: Body,
    /// The moved function, callable with the function's arguments.
    pub moved: Moved,
    /// Returns the size of a block, if the object's allocator has such a function.
    pub usable: Option<extern "C" fn(Address, usize) -> usize>,
    pub sizes: Sizes,
    /// Visits the blocks of a heap, likewise.
    pub visit: Option<Visit>,
    pub shape: Shape,
    /// Its kind, for sites recorded by call.
    pub kind: Call,
}

impl Function {
    pub fn new(
        name: &str,
        moved: Moved,
        usable: Option<extern "C" fn(Address, usize) -> usize>,
        sizes: Sizes,
        shape: Shape,
    ) -> Function {
        let body: Body = match shape {
            Shape::Reallocate
            | Shape::ReallocateFlags
            | Shape::ReallocateProduct
            | Shape::ReallocateSecond => reallocate,
            Shape::ReallocateProductSecond
            | Shape::ReallocateSecondFourth
            | Shape::ReallocateThird
            | Shape::ReallocateFourth
            | Shape::Resize => long,
            Shape::Free | Shape::FreeSecond | Shape::FreeSlow => free,
            Shape::FreeHeap => free_heap,
            Shape::AllocateSlow => allocate_slow,
            _ => allocate,
        };
        Function { body, moved, usable, sizes, visit: None, shape, kind: shape.kind(name) }
    }

    /// Returns a function of the process's allocator, whose blocks are those of the hooks.
    pub fn of_process(name: &str, moved: Moved, shape: Shape) -> Function {
        let function = Function::new(name, moved, None, Sizes::Requested, shape);
        Function { body: of_process, ..function }
    }

    /// Returns the function with another one that visits the blocks of its heaps.
    pub fn visiting(self, visit: Option<Visit>) -> Function {
        Function { visit, ..self }
    }

    fn call(&self, a: usize, b: usize, c: usize) -> usize {
        (self.moved)(a, b, c, 0, 0, 0)
    }

    /// Returns the requested size, and the alignment in jemalloc's flags, if any.
    fn request(&self, a: usize, b: usize, c: usize) -> (usize, u32) {
        /// The logarithm of the alignment in jemalloc's flags.
        const LG_ALIGN: usize = 63;
        match self.shape {
            Shape::Allocate | Shape::AllocateSlow | Shape::Free | Shape::FreeSlow => (a, 0),
            Shape::AllocateSecond | Shape::FreeSecond | Shape::Reallocate => (b, 0),
            Shape::AllocateProduct => (a.saturating_mul(b), 0),
            Shape::AllocateFlags => (a, (b & LG_ALIGN) as u32),
            Shape::AllocateOut => (c, 0),
            Shape::ReallocateFlags => (b, (c & LG_ALIGN) as u32),
            Shape::ReallocateProduct | Shape::AllocateProductSecond => (b.saturating_mul(c), 0),
            Shape::ReallocateSecond => (c, 0),
            // The size is that of the result; the others need all arguments, see `long`.
            Shape::AllocateText
            | Shape::ReallocateProductSecond
            | Shape::ReallocateSecondFourth
            | Shape::ReallocateThird
            | Shape::ReallocateFourth
            | Shape::Resize
            | Shape::FreeHeap => (0, 0),
        }
    }

    /// Returns the block that a function with this result and these arguments has allocated, null
    /// if it failed, and the request as above.
    fn allocated(&self, result: usize, &[a, b, c]: &[usize; 3]) -> (Address, (usize, u32)) {
        let request = self.request(a, b, c);
        match self.shape {
            Shape::AllocateOut if result as i32 == 0 => {
                // SAFETY: posix_memalign's contract: it succeeded, so the first argument points to
                // the block.
                (unsafe { *(a as *const Address) }, request)
            }
            Shape::AllocateOut => (NULL, request),
            Shape::AllocateText if result != 0 => {
                // SAFETY: the function has written a text to the block.
                let text = unsafe { CStr::from_ptr(result as *const _) };
                (result as Address, (text.count_bytes() + 1, 0))
            }
            _ => (result as Address, request),
        }
    }

    /// Returns the block that a function with these arguments resizes, and its requested size.
    fn resized(&self, &[a, b, c, d]: &[usize; 4]) -> (Address, usize) {
        let (old, size) = match self.shape {
            Shape::ReallocateProductSecond => (b, c.saturating_mul(d)),
            Shape::ReallocateSecondFourth => (b, d),
            Shape::ReallocateFourth => (a, d),
            Shape::ReallocateThird => (a, c),
            Shape::ReallocateSecond => (b, c),
            Shape::ReallocateProduct => (a, b.saturating_mul(c)),
            _ => (a, b),
        };
        (old as Address, size)
    }

    /// Returns the usable size of a new block.
    fn usable(&self, block: Address, (size, lg_align): (usize, u32)) -> u64 {
        match (self.usable, self.sizes) {
            (Some(usable), _) => usable(block, 0) as u64,
            (None, Sizes::Jemalloc) => {
                let aligned = (size as u64).checked_next_multiple_of(1 << lg_align);
                size_class(aligned.unwrap_or(size as u64))
            }
            (None, Sizes::Requested) => size as u64,
        }
    }
}

/// Returns jemalloc's size class for a request: four per power of two, at least 16 apart, and 8
/// (`sz_s2u_compute` in jemalloc).
fn size_class(size: u64) -> u64 {
    const TINY: u64 = 8;
    const QUANTUM_LG: u32 = 4;
    const GROUP_LG: u32 = 2;
    if size <= TINY {
        return TINY;
    }
    let lg = (2 * size - 1).ilog2();
    let step = lg.saturating_sub(GROUP_LG + 1).max(QUANTUM_LG);
    size.checked_next_multiple_of(1 << step).unwrap_or(size)
}

fn record_new(inside: &mut Inside, function: &Function, block: Address, request: (usize, u32)) {
    inside.lane().gate.note_call(function.kind);
    if block.is_null() {
        return step::on_failed_alloc(inside);
    }
    inside.lane().count_call(function.kind);
    let usable = function.usable(block, request);
    keep_size(block, usable);
    step::on_alloc_of_size(inside, block, (request.0 as u64).min(usable), usable);
}

extern "C" fn allocate(&[a, b, c, ..]: &Registers, sp: u64, bp: u64, function: &Function) -> usize {
    let entry = Entry { sp, bp };
    let Some(mut inside) = Inside::enter::<Preload>(entry) else {
        return function.call(a, b, c);
    };
    let result = function.call(a, b, c);
    let (block, request) = function.allocated(result, &[a, b, c]);
    record_new(&mut inside, function, block, request);
    result
}

/// Blocks of at least this size never take an inlined fast path, to be allocated or freed: those of
/// jemalloc take blocks that share pages, which have at most 14 KiB, and 224 KiB with pages of
/// 64 KiB.
const ALWAYS_SLOW_BYTES: usize = 256 << 10;

/// The slow path of an allocation. If no function of the allocator was entered before, the compiler
/// inlined one: the allocations and frees of its fast path are unknown, so a recorded block could
/// seem to stay live. Only blocks that never take the fast path are recorded.
extern "C" fn allocate_slow(
    &[size, b, c, ..]: &Registers,
    sp: u64,
    bp: u64,
    function: &Function,
) -> usize {
    let entry = Entry { sp, bp };
    let Some(mut inside) = Inside::enter::<Preload>(entry) else {
        return function.call(size, b, c);
    };
    inlined::note();
    let block = function.call(size, b, c);
    if size >= ALWAYS_SLOW_BYTES {
        record_new(&mut inside, function, block as Address, (size, 0));
    }
    block
}

extern "C" fn reallocate(
    &[a, b, c, ..]: &Registers,
    sp: u64,
    bp: u64,
    function: &Function,
) -> usize {
    let entry = Entry { sp, bp };
    let old = if function.shape == Shape::ReallocateSecond { b } else { a } as Address;
    let request = function.request(a, b, c);
    change(old, request, entry, function, || function.call(a, b, c))
}

/// Resizes a block with `call`, usually moving it.
#[inline(always)]
fn change(
    old: Address,
    request: (usize, u32),
    entry: Entry,
    function: &Function,
    call: impl FnOnce() -> usize,
) -> usize {
    let Some(mut inside) = Inside::enter::<Preload>(entry) else {
        return reallocate_nested(old, call);
    };
    let Some(had) = take_size(old) else {
        let block = call();
        record_new(&mut inside, function, block as Address, request);
        return block;
    };
    let moving = Moving::begin(&mut inside, old, had);
    let result = call();
    let block = result as Address;
    if !block.is_null() {
        let usable = function.usable(block, request);
        keep_size(block, usable);
        step::on_realloc(&mut inside, moving, block, request.0 as u64, usable);
    } else if request.0 == 0 {
        step::on_realloc_to_nothing(&mut inside, moving);
    } else {
        keep_size(old, had);
        step::on_failed_realloc(&mut inside, moving);
    }
    result
}

/// A reallocation in a signal handler or in the allocator itself: the new block is not recorded.
#[cold]
fn reallocate_nested(old: Address, call: impl FnOnce() -> usize) -> usize {
    let Some(had) = take_size(old) else {
        return call();
    };
    let moving = MovingNested::begin(old, |_| had);
    let block = call();
    if block == 0 {
        keep_size(old, had);
    }
    moving.end(block as Address);
    block
}

extern "C" fn free(
    &[a, b, c, .., result]: &Registers,
    sp: u64,
    bp: u64,
    function: &Function,
) -> usize {
    let entry = Entry { sp, bp };
    let block = if function.shape == Shape::FreeSecond { b } else { a } as Address;
    // A block that was not recorded, or that an outer call has freed, counts nothing.
    if let Some(usable) = take_size(block) {
        if function.shape == Shape::FreeSlow {
            inlined::note();
        }
        count_free(entry, block, usable);
    }
    function.call(a, b, c);
    result
}

fn count_free(entry: Entry, block: Address, usable: u64) {
    match Inside::enter::<Preload>(entry) {
        Some(mut inside) => step::on_free_of_size(&mut inside, block, usable),
        None => record::count_nested_free(block, || usable),
    }
}

/// A function that calls another one for each block of a heap, if its second argument is true, and
/// for each area: with the heap, the area, the block or null, its size, and the last argument. It
/// ends if that returns false.
pub type Visit = extern "C" fn(
    usize,
    bool,
    extern "C" fn(usize, usize, usize, usize, usize) -> bool,
    usize,
) -> bool;

extern "C" fn free_heap(
    &[heap, b, c, .., result]: &Registers,
    sp: u64,
    bp: u64,
    function: &Function,
) -> usize {
    let entry = Entry { sp, bp };
    free_blocks_of(heap, function, |block| {
        if let Some(usable) = take_size(block) {
            count_free(entry, block, usable);
        }
    });
    function.call(heap, b, c);
    result
}

/// Calls `free` with each recorded block of a heap.
fn free_blocks_of(heap: usize, function: &Function, free: impl Fn(Address)) {
    extern "C" fn each<F: Fn(Address)>(
        _heap: usize,
        _area: usize,
        block: usize,
        size: usize,
        free: usize,
    ) -> bool {
        // SAFETY: the address of the function below, which lives until the visit has ended.
        let free = unsafe { &*(free as *const F) };
        if let Some(block) = recorded_in(block as u64, size as u64) {
            free(block as Address);
        }
        true
    }
    fn visit<F: Fn(Address)>(visit: Visit, heap: usize, free: &F) {
        visit(heap, true, each::<F>, core::ptr::from_ref(free) as usize);
    }
    if let Some(function) = function.visit.filter(|_| heap != 0) {
        visit(function, heap, &free);
    }
}

/// Returns the address of a recorded block that an allocator knows by its first byte: a block with
/// an alignment can begin later. In modes without sites, all blocks count as recorded.
fn recorded_in(start: u64, bytes: u64) -> Option<u64> {
    const LATER_MAX: u64 = 64 << 10;
    let shadow = &store().shadow;
    let mode = store().header().mode.get();
    let has_sites = mode != Mode::Counters as u32 && mode != Mode::Sampled as u32;
    if start == 0 || !has_sites || shadow.get(start) != 0 {
        return (start != 0).then_some(start);
    }
    let last = start.checked_add(bytes.clamp(1, LATER_MAX) - 1)?;
    shadow.last_before(last, start).map(|(block, _)| block)
}

/// Returns the target of the stubs of all functions.
pub fn entry() -> u64 {
    arch::family_entry!()
}

/// Functions with more than three arguments.
extern "C" fn long(
    &[a, b, c, d, e, f, _]: &Registers,
    sp: u64,
    bp: u64,
    function: &Function,
) -> usize {
    let entry = Entry { sp, bp };
    let call = || (function.moved)(a, b, c, d, e, f);
    if function.shape == Shape::Resize {
        return resize(a as Address, b, entry, call);
    }
    let (old, size) = function.resized(&[a, b, c, d]);
    change(old, (size, 0), entry, function, call)
}

/// A function of the process's allocator: it does what a hook does.
extern "C" fn of_process(
    &[a, b, c, d, e, f, result]: &Registers,
    sp: u64,
    bp: u64,
    function: &Function,
) -> usize {
    let entry = Entry { sp, bp };
    let call = || (function.moved)(a, b, c, d, e, f);
    match function.shape {
        Shape::Free | Shape::FreeSecond => {
            let block = if function.shape == Shape::FreeSecond { b } else { a } as Address;
            calls::release_within(block, entry, || _ = call());
            result
        }
        Shape::FreeHeap => {
            free_blocks_of(a, function, |block| calls::release_within(block, entry, || ()));
            call()
        }
        Shape::Resize | Shape::AllocateSlow | Shape::FreeSlow => call(),
        shape if shape.only_allocates() => {
            let Some(mut inside) = Inside::enter::<Preload>(entry) else {
                return call();
            };
            let result = call();
            let (block, (size, _)) = function.allocated(result, &[a, b, c]);
            inside.lane().gate.note_call(function.kind);
            if !block.is_null() {
                inside.lane().count_call(function.kind);
            }
            calls::record_allocation(&mut inside, block, size as u64);
            result
        }
        _ => {
            let (old, size) = function.resized(&[a, b, c, d]);
            calls::reallocate(old, size, entry, || call() as Address) as usize
        }
    }
}

/// Resizes a block in place with `call`, as far as possible; `call` returns the size.
fn resize(block: Address, size: usize, entry: Entry, call: impl FnOnce() -> usize) -> usize {
    let Some(mut inside) = Inside::enter::<Preload>(entry) else {
        return call();
    };
    let before = size_of(block);
    let after = call();
    if let Some(before) = before.filter(|&before| before != after as u64) {
        keep_size(block, after as u64);
        step::on_resize(&mut inside, block, size as u64, before, after as u64);
    }
    after
}
