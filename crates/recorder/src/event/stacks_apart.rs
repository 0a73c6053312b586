//! Stacks of events that cannot use the thread's lane: an allocator maps memory in the middle of an
//! allocation, when the lane is in use. They are unwound completely, with separate memory, and
//! without the frames of the recorder's library.

use crate::event::lane::{BUFFER, Others, RANGES, RECALL};
use crate::event::process::{Process, process};
use crate::event::python::Chain;
use crate::event::python_interpreter;
use crate::event::stacks::{self, Guest, max_depth};
use crate::store::ids::NodeId;
use crate::store::modules::{Code, modules};
use crate::store::profile::Cursor;
use crate::store::shared::{Store, store};
use crate::sys::memory::{self, InChild};
use crate::sys::own_stack;
use crate::sys::range::Range;
use core::slice;
use heaptide_format::{ADDRESS_BITS, Loss};
use heaptide_unwind::Rule;
use heaptide_unwind::kept::{Extent, Frame, Kept, Registers, Same, words_of};
use heaptide_unwind::stack::{Bounds, Early, Machine, Stack, Walked};

/// Size of the stack on which unwind tables are evaluated.
const OWN_STACK: usize = 16 << 10;

/// An unwinder and its memory. One thread uses it at a time.
pub struct Apart {
    unwinder: Stack<'static>,
    /// Python frames of the thread that used it last.
    python: Chain,
    others: Others,
    nodes: Cursor,
    /// The end of [`OWN_STACK`] bytes.
    own_stack: *mut u8,
    /// [`RECALL`] entries.
    recall: *mut [u64; 2],
    /// Number of the module that contains the recorder's own code.
    own_module: u64,
}

/// Returns zeroed memory for `count` values; none without memory.
///
/// # Safety
/// All zeros is a valid value of `T`.
unsafe fn zeroed<T>(count: usize) -> Option<&'static mut [T]> {
    let memory = memory::take(count * size_of::<T>(), InChild::Nothing) as *mut T;
    // SAFETY: fresh memory of that many values, which may be zero as the caller promises.
    (!memory.is_null()).then(|| unsafe { slice::from_raw_parts_mut(memory, count) })
}

impl Apart {
    /// Creates an unwinder; none without memory.
    pub fn create() -> Option<&'static mut Apart> {
        let depth = max_depth(store());
        // SAFETY: plain numbers; the unwinder itself is written before it is used.
        unsafe {
            let kept = Kept {
                frames: zeroed::<Frame>(depth)?,
                slots: zeroed::<u32>(words_of(depth))?,
                words: zeroed::<u64>(words_of(depth))?,
                extent: Extent::default(),
            };
            let scratch = zeroed::<Walked>(depth)?;
            let buffer = zeroed::<u8>(BUFFER)?;
            let own_module = match modules().code_at(Apart::create as *const () as u64, buffer) {
                Code::Module(index, _) | Code::Bare(index) => index as u64,
                Code::Generated | Code::Nothing => 0,
            };
            let room = zeroed::<Apart>(1)?.as_mut_ptr();
            room.write(Apart {
                unwinder: Stack { kept, scratch, stepped: 0, reuse: false },
                python: Chain::EMPTY,
                others: Others {
                    ranges: [Range::EMPTY; RANGES],
                    next: 0,
                    buffer: buffer.as_mut_ptr(),
                },
                nodes: Cursor::NONE,
                own_stack: zeroed::<u8>(OWN_STACK)?.as_mut_ptr().wrapping_add(OWN_STACK),
                recall: zeroed::<[u64; 2]>(RECALL)?.as_mut_ptr(),
                own_module,
            });
            Some(&mut *room)
        }
    }

    /// Returns the node of the calling thread's stack. `stack` is its known range.
    pub fn capture(&mut self, p: &'static Process, at: Registers, stack: Range) -> NodeId {
        self.unwinder.kept.extent.forget();
        let memory = (self.own_stack, self.recall);
        let guest = Guest::apart(p, (at.sp, stack), &mut self.others, &mut self.nodes, memory);
        let mut guest = WithoutOwn { guest, own_module: self.own_module };
        let native = NodeId::new(self.unwinder.capture(at, Same::No, &mut guest).0);
        if python_interpreter::is_met() {
            self.with_python(store(), native, at, stack)
        } else {
            native
        }
    }

    /// Returns the node of a stack with the Python frames that the thread executes, if any.
    #[cold]
    #[inline(never)]
    fn with_python(
        &mut self,
        p: &'static Store,
        native: NodeId,
        at: Registers,
        stack: Range,
    ) -> NodeId {
        let Some(state) = python_interpreter::thread_state_if_checked() else {
            return native;
        };
        if !self.python.is_ready(p) {
            p.lost(Loss::NoNode);
            return native;
        }
        let (others, nodes) = (&mut self.others, &mut self.nodes);
        let (chain, kept) = (&mut self.python, &self.unwinder.kept);
        let memory = (self.own_stack, self.recall);
        let child = |parent: u32, key: u64, flags: u32| {
            Guest::apart(process(), (at.sp, stack), &mut *others, &mut *nodes, memory)
                .flagged(parent, key, flags)
        };
        let joint = || stacks::joint(chain, kept, stack, native, (&state, None), child);
        // SAFETY: its end is 16-aligned, and no unwind table is evaluated on it now.
        unsafe { own_stack::call_at(self.own_stack, joint) }.unwrap_or(native)
    }

    /// Returns [`BUFFER`] bytes for paths.
    pub fn buffer(&mut self) -> &mut [u8] {
        // SAFETY: memory of the unwinder, which is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.others.buffer, BUFFER) }
    }
}

/// A guest whose stacks get no nodes for the recorder's frames.
struct WithoutOwn<'a> {
    guest: Guest<'a>,
    own_module: u64,
}

impl Machine for WithoutOwn<'_> {
    fn bounds(&self) -> Bounds {
        self.guest.bounds()
    }

    fn known_word(&self, address: u64) -> u64 {
        self.guest.known_word(address)
    }

    fn enter(&mut self, sp: u64) -> bool {
        self.guest.enter(sp)
    }

    fn rule(&mut self, pc: u64, exact: bool) -> Rule {
        self.guest.rule(pc, exact)
    }

    fn is_return_address(&mut self, pc: u64, is_outermost: bool) -> bool {
        self.guest.is_return_address(pc, is_outermost)
    }

    fn child(&mut self, parent: u32, key: u64, exact: bool) -> u32 {
        if self.own_module != 0 && key >> ADDRESS_BITS == self.own_module {
            return parent;
        }
        self.guest.child(parent, key, exact)
    }

    fn too_deep(&mut self) -> u32 {
        self.guest.too_deep()
    }

    fn ended(&mut self, why: Early) {
        self.guest.ended(why);
    }
}
