//! Device memory: memory that programs allocate by the driver of a GPU or another accelerator.
//!
//! Counted at the calls, also if the driver does the work later, in the order of a stream. Unknown
//! memory, such as that of other processes, counts nothing when it is freed.

use crate::event::device_state::{Device, acquire, enter, is_announced, is_recorded};
use crate::event::inside::Entry;
use crate::event::outside_heap::Caller;
use crate::store::device_table::{Block, By, Key};
use crate::store::ids::{NameId, SiteId};
use crate::store::names;
use crate::store::outside_records::Gone;
use crate::store::shared::store;
use crate::sys::front::Front;
use heaptide_format::{DEVICE_UNKNOWN, DeviceApi, DeviceClass, DeviceKey, Loss};

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
    if let Some((caller, mut device)) = enter::<F>(entry) {
        device.allocated(&caller, made, NameId::NONE);
    }
}

/// Memory that a program announces with a label, after it was allocated.
pub struct Announced<'a> {
    /// The interfaces that may have allocated it.
    pub apis: &'a [DeviceApi],
    pub address: u64,
    pub bytes: u64,
    pub label: &'a [u8],
    /// The interface of memory that no driver has recorded; none if such memory does not count.
    pub unrecorded: Option<DeviceApi>,
}

/// Attaches a label to memory that the program announces. Counts the memory if it is that of a
/// driver of which nothing is recorded. Returns whether it is known now.
pub fn announced<F: Front>(entry: Entry, memory: &Announced) -> bool {
    let &Announced { apis, address, bytes, unrecorded, .. } = memory;
    if unrecorded.is_none() && !is_recorded() {
        return false;
    }
    let Some(caller) = Caller::enter::<F>(entry) else { return false };
    let label = names::label(memory.label);
    let Some(mut device) = acquire() else { return false };
    let device = &mut *device;
    if let Some(block) = device.table.of_apis(apis, address).and_then(|key| device.table.get(key)) {
        if !label.is_none() {
            let site = device.counted.label(block.site, label, (bytes, block.bytes));
            block.site = if site.is_none() { block.site } else { site };
        }
        return true;
    }
    let Some(api) = unrecorded else { return false };
    let class = DeviceClass::Announced;
    let value = address;
    let key = Key { by: By::Address, api: api as u8, device: DEVICE_UNKNOWN, value };
    let made = Made { key, class, requested: bytes, bytes, context: 0 };
    device.allocated(&caller, &made, label);
    true
}

/// Records the end of memory that counts only because the program announced it.
pub fn withdrawn<F: Front>(entry: Entry, apis: &[DeviceApi], address: u64) {
    let Some((caller, mut device)) = enter::<F>(entry).filter(|_| is_recorded()) else { return };
    if let Some(key) = device.table.of_apis(apis, address)
        && device.table.get(key).is_some_and(|block| is_announced(block.site))
        && let Some(block) = device.table.take(key)
    {
        device.discharge(&caller, block);
    }
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
        device.end_chunk(known);
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
    device.end_chunks(is_it);
    while let Some((_, block)) = device.table.take_next(&mut place, is_it) {
        device.discharge(&caller, block);
    }
}

impl Device {
    fn allocated(&mut self, caller: &Caller, made: &Made, label: NameId) {
        self.end_stale(caller, made.key);
        if !caller.is_off {
            let Key { api, device, .. } = made.key;
            let key = DeviceKey { class: made.class as u8, api, device }.pack();
            let site = self.counted.place(caller, key, label);
            self.add(caller, made, site);
        }
    }

    /// Ends what was known by the key of new memory. Not inlined, like the next function, so that
    /// its data are not on the stack of the unwinder.
    #[inline(never)]
    fn end_stale(&mut self, caller: &Caller, key: Key) {
        self.end_chunk(key);
        if let Some(stale) = self.table.take(key) {
            self.discharge(caller, stale);
        }
    }

    #[inline(never)]
    fn add(&mut self, caller: &Caller, made: &Made, site: SiteId) {
        let &Made { key, requested, bytes, context, .. } = made;
        let block = Block { site, views: 0, references: 1, bytes, context };
        if site.is_none() || !self.table.add(key, block) {
            return store().lost(Loss::NoMapping);
        }
        self.counted.charge(caller, site, (requested, bytes), false);
    }

    /// Removes memory to which no reference and no view is left, and returns it.
    fn take_if_unused(&mut self, caller: &Caller, key: Key) -> Option<Block> {
        let block =
            self.table.get(key).filter(|block| block.references == 0 && block.views == 0)?;
        let block = *block;
        self.end_chunk(key);
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
