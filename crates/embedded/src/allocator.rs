//! The allocator that records.

extern crate alloc;

use crate::choice::{Choice, is};
use crate::front::{Address, Embedded, keep_size, note_usable, usable_of};
use crate::interface::records;
use alloc::alloc::{GlobalAlloc, Layout};
use core::arch::naked_asm;
use core::ffi::c_void;
use heaptide_format::{Call, EMBEDDED_NOTE};
use heaptide_recorder::event::inside::{Entry, Inside, here};
use heaptide_recorder::event::record::{self, Moving, MovingNested};
use heaptide_recorder::event::step;

/// An allocator that forwards every call to another one, and records it if the program was started
/// for recording (`heaptide run PROGRAM`, or with `HEAPTIDE_OUTPUT` or `HEAPTIDE_MODE`).
///
/// ```
/// # use heaptide_embedded as heaptide;
/// use std::alloc::System;
///
/// #[global_allocator]
/// static ALLOCATOR: heaptide::Recorder<System> = heaptide::Recorder::new(System);
/// ```
#[derive(Debug, Default)]
pub struct Recorder<A>(A);

impl<A> Recorder<A> {
    /// Wraps this allocator.
    pub const fn new(allocator: A) -> Recorder<A> {
        Recorder(allocator)
    }
}

/// An ELF note in the program's file, from which the command sees that a static program can be
/// recorded.
#[used]
#[unsafe(link_section = ".note.heaptide")]
static NOTE: Note = Note {
    name_bytes: EMBEDDED_NOTE.len() as u32,
    description_bytes: 0,
    kind: 1,
    name: *EMBEDDED_NOTE,
    padding: [0; 2],
};

/// An ELF note without a description; its name is padded to four bytes.
#[repr(C)]
struct Note {
    name_bytes: u32,
    description_bytes: u32,
    kind: u32,
    name: [u8; EMBEDDED_NOTE.len()],
    padding: [u8; 2],
}

/// Blocks never start in the same eight bytes, as with C allocators, because the tables have one
/// word per eight bytes. Most allocators guarantee this anyway.
const UNIT: usize = 8;

/// Returns the layout to request from the inner allocator; `None` if it exceeds the address space.
#[inline(always)]
fn widened(size: usize, align: usize) -> Option<Layout> {
    Layout::from_size_align(size.max(UNIT), align.max(UNIT)).ok()
}

/// Returns the layout with which an existing block was requested.
#[inline(always)]
fn widened_before(layout: Layout) -> Layout {
    widened(layout.size(), layout.align()).unwrap_or(layout)
}

/// The inner allocator's function; takes the allocator, size and alignment.
type Allocate = unsafe extern "C" fn(*const c_void, usize, usize) -> Address;
/// The inner allocator's function; takes the allocator, block, its layout, and the new size.
type Reallocate = unsafe fn(*const c_void, Address, Layout, usize) -> Address;

/// The arguments of a reallocation.
struct Reallocation {
    allocator: *const c_void,
    block: Address,
    layout: Layout,
    size: usize,
    call: Reallocate,
}

// SAFETY: every call goes to the inner allocator, possibly with a wider layout. A block's layout is
// the same in all calls, because the choice is made before the first block exists, and stays.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Recorder<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's obligations are those of the inner function.
        unsafe {
            if is(Choice::Forward) {
                return self.0.alloc(layout);
            }
            allocate::<false>(
                (&raw const self.0).cast(),
                layout.size(),
                layout.align(),
                alloc_by::<A>,
            )
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            if is(Choice::Forward) {
                return self.0.alloc_zeroed(layout);
            }
            allocate::<true>(
                (&raw const self.0).cast(),
                layout.size(),
                layout.align(),
                zeroed_by::<A>,
            )
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            if is(Choice::Forward) {
                return self.0.realloc(block, layout, size);
            }
            let (allocator, call) = ((&raw const self.0).cast(), realloc_by::<A> as Reallocate);
            reallocate(&Reallocation { allocator, block, layout, size, call })
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above; the block is removed before another thread can get its address.
        unsafe {
            if is(Choice::Forward) {
                return self.0.dealloc(block, layout);
            }
            released(block, layout.size());
            self.0.dealloc(block, widened_before(layout));
        }
    }
}

/// # Safety
/// `allocator` is an `A`, and the arguments satisfy the contract of its `alloc`.
unsafe extern "C" fn alloc_by<A: GlobalAlloc>(
    allocator: *const c_void,
    size: usize,
    align: usize,
) -> Address {
    // SAFETY: the caller's contract.
    unsafe { (*allocator.cast::<A>()).alloc(Layout::from_size_align_unchecked(size, align)) }
}

/// # Safety
/// `allocator` is an `A`, and the arguments satisfy the contract of its `alloc_zeroed`.
unsafe extern "C" fn zeroed_by<A: GlobalAlloc>(
    allocator: *const c_void,
    size: usize,
    align: usize,
) -> Address {
    // SAFETY: the caller's contract.
    unsafe { (*allocator.cast::<A>()).alloc_zeroed(Layout::from_size_align_unchecked(size, align)) }
}

/// # Safety
/// `allocator` is an `A`, and the arguments satisfy the contract of its `realloc`.
unsafe fn realloc_by<A: GlobalAlloc>(
    allocator: *const c_void,
    block: Address,
    layout: Layout,
    size: usize,
) -> Address {
    // SAFETY: the caller's contract.
    unsafe { (*allocator.cast::<A>()).realloc(block, layout, size) }
}

/// Passes the caller's stack pointer and frame pointer, like the entry of a hook.
#[unsafe(naked)]
unsafe extern "C" fn allocate<const ZEROED: bool>(
    _: *const c_void,
    _: usize,
    _: usize,
    _: Allocate,
) -> Address {
    naked_asm!(
".cfi_startproc",
        heaptide_recorder::pass_registers!(4),
        ".cfi_endproc",
body = sym allocate_body::<ZEROED>)
}

#[unsafe(naked)]
unsafe extern "C" fn reallocate(_: &Reallocation) -> Address {
    naked_asm!(
".cfi_startproc",
        heaptide_recorder::pass_registers!(1),
        ".cfi_endproc",
body = sym reallocate_body)
}

unsafe extern "C" fn allocate_body<const ZEROED: bool>(
    allocator: *const c_void,
    size: usize,
    align: usize,
    call: Allocate,
    sp: u64,
    bp: u64,
) -> Address {
    if !records() {
        // SAFETY: the inner function's contract.
        return unsafe { call(allocator, size, align) };
    }
    let layout = widened(size, align);
    let call = || match layout {
        // SAFETY: as above.
        Some(layout) => unsafe { call(allocator, layout.size(), layout.align()) },
        None => core::ptr::null_mut(),
    };
    let Some(mut inside) = Inside::enter::<Embedded>(Entry { sp, bp }) else {
        return call();
    };
    if ZEROED {
        inside.lane().gate.note_call(Call::Calloc);
    }
    let block = call();
    if block.is_null() {
        step::on_failed_alloc(&mut inside);
    } else {
        if ZEROED {
            inside.lane().count_call(Call::Calloc);
        }
        let usable = usable_of(size);
        keep_size(&mut inside, block, usable);
        note_usable(&inside, usable);
        step::on_alloc::<Embedded>(&mut inside, block, size as u64);
    }
    block
}

unsafe extern "C" fn reallocate_body(r: &Reallocation, sp: u64, bp: u64) -> Address {
    let before = widened_before(r.layout);
    let call = || match widened(r.size, before.align()) {
        // SAFETY: the inner function's contract.
        Some(new) => unsafe { (r.call)(r.allocator, r.block, before, new.size()) },
        None => core::ptr::null_mut(),
    };
    let had = usable_of(r.layout.size());
    let Some(mut inside) = Inside::enter::<Embedded>(Entry { sp, bp }) else {
        let moving = MovingNested::begin(r.block, |_| had);
        let block = call();
        moving.end(block);
        return block;
    };
    let moving = Moving::begin(&mut inside, r.block, had);
    let block = call();
    if block.is_null() {
        step::on_failed_realloc(&mut inside, moving);
    } else {
        let usable = usable_of(r.size);
        keep_size(&mut inside, block, usable);
        step::on_realloc(&mut inside, moving, block, r.size as u64, usable);
    }
    block
}

/// Records that a block is about to be freed, and leaves the recorder before it is.
fn released(block: Address, size: usize) {
    let usable = usable_of(size);
    let Some(mut inside) = Inside::enter::<Embedded>(here()) else {
        return record::count_nested_free(block, || usable);
    };
    note_usable(&inside, usable);
    step::on_free::<Embedded>(&mut inside, block, || Some(usable));
}
