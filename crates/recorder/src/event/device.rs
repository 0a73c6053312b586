//! Device memory: memory that programs allocate by the driver of a GPU or another accelerator.
//!
//! Counted at the calls, also if the driver does the work later, in the order of a stream. Unknown
//! memory, such as that of other processes, counts nothing when it is freed.

use crate::event::inside::Entry;
use crate::event::outside_heap::{Caller, OutsideHeap, is_any_live};
use crate::event::process::{State, process};
use crate::store::device_table::{Block, By, DeviceTable, Key};
use crate::store::outside_records::{Gone, Space};
use crate::store::shared::store;
use crate::sys::front::Front;
use crate::sys::locked::{Held, Locked};
use crate::sys::wiped::Wiped;
use heaptide_format::{DeviceClass, DeviceKey, Loss};

/// The known device memory of the process. All zeros: none.
struct Device {
    table: DeviceTable,
    counted: OutsideHeap,
}

// SAFETY: all zeros is a free lock and no memory.
#[unsafe(link_section = ".bss.wiped")]
static DEVICE: Wiped<Locked<Device>> = unsafe { Wiped::new() };

/// Makes forked children start without device memory: they cannot use that of their parent.
pub fn wipe_in_children() {
    DEVICE.wipe_in_children();
}

/// New device memory.
pub struct Made {
    pub key: Key,
    pub class: DeviceClass,
    /// Bytes that were requested, and that were allocated as far as the driver's interface shows.
    pub requested: u64,
    pub bytes: u64,
    /// The context with whose end it ends; 0 if there is none.
    pub context: u64,
}

/// Records new device memory. What was known by its key ended unnoticed.
pub fn allocated<F: Front>(entry: Entry, made: &Made) {
    let Some((caller, mut device)) = enter::<F>(entry) else { return };
    if let Some(stale) = device.table.take(made.key) {
        device.discharge(&caller, stale);
    }
    if caller.is_off {
        return;
    }
    let Key { api, device: number, .. } = made.key;
    let key = DeviceKey { class: made.class as u8, api, device: number }.pack();
    let site = device.counted.place(&caller, key);
    let block = Block { site, views: 0, references: 1, bytes: made.bytes, context: made.context };
    if site.is_none() || !device.table.add(made.key, block) {
        return store().lost(Loss::NoMapping);
    }
    device.counted.charge(&caller, site, (made.requested, made.bytes), false);
}

/// A release that is about to happen. The memory is removed before the call, since another thread
/// may get its address or handle at once.
pub struct Freeing {
    entry: Entry,
    key: Key,
    /// The removed memory; none if only a reference was released.
    block: Option<Block>,
}

impl Freeing {
    /// Begins to free memory, or to release a handle of it. The device in the key may be wrong.
    /// `None` if the memory is not known.
    pub fn begin<F: Front>(entry: Entry, key: Key) -> Option<Freeing> {
        if !is_recorded() {
            return None;
        }
        let (caller, mut device) = enter::<F>(entry)?;
        let key = device.table.known(key)?;
        let block = device.table.get(key)?;
        block.references = block.references.checked_sub(1)?; // else the call fails
        let block = device.take_if_unused(&caller, key);
        Some(Freeing { entry, key, block })
    }

    /// Reverts it, because the call failed.
    pub fn revert<F: Front>(self) {
        let Some((caller, mut device)) = enter::<F>(self.entry) else { return };
        match self.block {
            None => device.table.get(self.key).into_iter().for_each(|block| block.references += 1),
            Some(block) if device.table.add(self.key, Block { references: 1, ..block }) => {
                device.counted.restore(&caller, gone(block));
            }
            Some(_) => store().lost(Loss::NoMapping),
        }
    }
}

/// Records that memory without an address was mapped at one.
#[inline(never)]
pub fn mapped<F: Front>(entry: Entry, handle: Key, (address, bytes): (u64, u64)) {
    let Some((_, mut device)) = enter::<F>(entry).filter(|_| is_recorded()) else { return };
    let Some(handle) = device.table.known(handle) else { return };
    let Some(block) = device.table.get(handle) else { return };
    block.views += 1;
    let view = Block { views: 0, references: 0, bytes, context: handle.value, ..*block };
    if !device.table.add(Key { by: By::View, value: address, ..handle }, view) {
        store().lost(Loss::NoMapping);
    }
}

/// Records that memory without an address is no longer mapped in a range. `view` has its start.
#[inline(never)]
pub fn unmapped<F: Front>(entry: Entry, view: Key, bytes: u64) {
    let Some((caller, mut device)) = enter::<F>(entry).filter(|_| is_recorded()) else { return };
    let end = view.value.saturating_add(bytes);
    let mut at = view;
    while at.value < end {
        let Some(known) = device.table.known(at) else { return };
        let Some(view) = device.table.take(known) else { return };
        let handle = Key { by: By::Handle, value: view.context, ..known };
        if let Some(block) = device.table.get(handle) {
            block.views = block.views.saturating_sub(1);
        }
        device.take_if_unused(&caller, handle);
        at.value = at.value.saturating_add(view.bytes.max(1));
    }
}

/// Records another reference to the memory that is mapped at an address.
#[inline(never)]
pub fn retained<F: Front>(entry: Entry, view: Key) {
    let Some((_, mut device)) = enter::<F>(entry).filter(|_| is_recorded()) else { return };
    let Some(view) = device.table.known(view) else { return };
    if let Some(&mut Block { context, .. }) = device.table.get(view)
        && let Some(block) = device.table.get(Key { by: By::Handle, value: context, ..view })
    {
        block.references += 1;
    }
}

/// What ends with a context, or with the state of a device.
#[derive(Clone, Copy)]
pub enum Ended {
    Context { api: u8, context: u64 },
    Device { api: u8, device: u16 },
}

/// Records that all memory of a context or a device was freed.
#[inline(never)]
pub fn ended<F: Front>(entry: Entry, what: Ended) {
    let Some((caller, mut device)) = enter::<F>(entry).filter(|_| is_recorded()) else { return };
    let mut place = 0;
    let is_it = |key: &Key, block: &Block| match what {
        _ if key.by == By::View => false,
        Ended::Context { api, context } => key.api == api && block.context == context,
        Ended::Device { api, device } => key.api == api && key.device == device,
    };
    while let Some(block) = device.table.take_next(&mut place, is_it) {
        device.discharge(&caller, block);
    }
}

/// Returns whether device memory is live, so that its end has to be recorded.
fn is_recorded() -> bool {
    process().state() == State::Active && is_any_live(Space::Device)
}

fn enter<F: Front>(entry: Entry) -> Option<(Caller, Held<'static, Device>)> {
    let caller = Caller::enter::<F>(entry)?;
    let Some(mut device) = DEVICE.get().acquire() else {
        store().lost(Loss::NoMapping);
        return None;
    };
    device.counted.records.space = Space::Device;
    Some((caller, device))
}

impl Device {
    /// Removes memory to which no reference and no view is left, and returns it.
    fn take_if_unused(&mut self, caller: &Caller, key: Key) -> Option<Block> {
        let block =
            self.table.get(key).filter(|block| block.references == 0 && block.views == 0)?;
        let block = *block;
        self.table.take(key);
        self.discharge(caller, block);
        Some(block)
    }

    fn discharge(&mut self, caller: &Caller, block: Block) {
        self.counted.discharge(caller, gone(block));
        self.counted.sample(store(), caller);
    }
}

fn gone(block: Block) -> Gone {
    Gone { site: block.site, bytes: block.bytes, whole_bytes: block.bytes, is_last: true }
}
