//! The functions that Kokkos looks up in the library that `KOKKOS_TOOLS_LIBS` names: a program with
//! Kokkos announces its regions, kernels and memory.
//!
//! Memory is recorded where it is allocated, by the hooks of the host and of drivers. What Kokkos
//! announces is its label. Only memory of a driver of which nothing is recorded counts because it
//! is announced.

use crate::Preload;
use crate::intercept::outcome::is_driver_recorded;
use core::arch::naked_asm;
use core::ffi::{CStr, c_char};
use heaptide_format::DeviceApi::{self, Cuda, Hip, LevelZero, Offload};
use heaptide_recorder::api::kokkos;
use heaptide_recorder::event::device::{self, Announced};
use heaptide_recorder::event::inside::{Entry, here};
use heaptide_recorder::event::mappings;

/// `Kokkos_Profiling_SpaceHandle`: the name of a memory space.
#[repr(C)]
pub struct Space {
    name: [u8; 64],
}

/// `Kokkos_Tools_ToolSettings`.
#[repr(C)]
pub struct Settings {
    requires_global_fencing: bool,
    reserved: [bool; 255],
}

/// Where the memory of a space is.
struct Place {
    /// The interfaces of devices that may have allocated it.
    apis: &'static [DeviceApi],
    /// The interface of memory that no driver has recorded; none for memory of the host.
    unrecorded: Option<DeviceApi>,
}

const ALL: &[DeviceApi] = &[Cuda, Hip, LevelZero, Offload];

impl Space {
    fn name(&self) -> &[u8] {
        self.name.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    fn place(&self) -> Place {
        let name = self.name();
        let has = |word: &[u8]| name.windows(word.len()).any(|part| part == word);
        if [&b"Host"[..], b"UVM", b"Managed", b"Shared"].into_iter().any(has) {
            return Place { apis: ALL, unrecorded: None };
        }
        let of = |apis: &'static [DeviceApi], api| Place { apis, unrecorded: Some(api) };
        match name {
            [b'C', b'u', b'd', b'a', ..] => of(&[Cuda], Cuda),
            [b'H', b'I', b'P', ..] => of(&[Hip], Hip),
            _ if [&b"SYCL"[..], b"OpenMPTarget", b"OpenACC"]
                .iter()
                .any(|n| name.starts_with(n)) =>
            {
                of(ALL, Offload)
            }
            _ => Place { apis: ALL, unrecorded: None },
        }
    }
}

impl Place {
    /// Returns the interface for which memory counts that no driver has recorded: it does not if
    /// one of the drivers is recorded, since the memory is a part of what that has allocated.
    fn counted(&self) -> Option<DeviceApi> {
        self.unrecorded.filter(|_| !self.apis.iter().any(|&api| is_driver_recorded(api)))
    }
}

/// Returns a text of the program; an empty one for null.
fn text<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return b"";
    }
    // SAFETY: Kokkos passes texts that end with a zero byte and stay until the call returns.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

/// `(load order, version of the interface, number of devices, devices)`
#[unsafe(no_mangle)]
extern "C" fn kokkosp_init_library(_: i32, _: u64, _: u32, _: usize) {
    kokkos::mark::<Preload>(b"Kokkos::initialize");
}

#[unsafe(no_mangle)]
extern "C" fn kokkosp_finalize_library() {
    kokkos::mark::<Preload>(b"Kokkos::finalize");
}

/// Sets that Kokkos need not wait for devices before it calls these functions.
#[unsafe(no_mangle)]
extern "C" fn kokkosp_request_tool_settings(_: u32, settings: Option<&mut Settings>) {
    if let Some(settings) = settings {
        settings.requires_global_fencing = false;
    }
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn kokkosp_allocate_data(_: Space, label: *const c_char, at: u64, bytes: u64) {
    naked_asm!(
        ".cfi_startproc",
        heaptide_recorder::pass_registers_of_struct_and_three!(),
        ".cfi_endproc",
        body = sym allocated
    )
}

extern "C" fn allocated(
    space: Space,
    label: *const c_char,
    address: u64,
    bytes: u64,
    sp: u64,
    bp: u64,
) {
    let place = space.place();
    let label = text(label);
    let entry = Entry { sp, bp };
    if address == 0
        || (place.unrecorded.is_none() && is_labelled_on_host(entry, address, label, bytes))
    {
        return;
    }
    let unrecorded = place.counted();
    let memory = Announced { apis: place.apis, address, bytes, label, unrecorded };
    device::announced::<Preload>(entry, &memory);
}

/// Attaches a label to a block, or to host memory of a driver. Returns false if there is neither.
fn is_labelled_on_host(entry: Entry, address: u64, label: &[u8], bytes: u64) -> bool {
    !label.is_empty()
        && (kokkos::label_block::<Preload>(address, label)
            || mappings::label_of_driver::<Preload>(entry, address, label, bytes))
}

#[unsafe(no_mangle)]
extern "C" fn kokkosp_deallocate_data(space: Space, _: *const c_char, address: u64, _: u64) {
    let place = space.place();
    if place.unrecorded.is_some() {
        device::withdrawn::<Preload>(here(), place.apis, address);
    }
}

#[unsafe(no_mangle)]
extern "C" fn kokkosp_push_profile_region(name: *const c_char) {
    kokkos::region_begins::<Preload>(text(name));
}

#[unsafe(no_mangle)]
extern "C" fn kokkosp_pop_profile_region() {
    kokkos::region_ends::<Preload>();
}

#[unsafe(no_mangle)]
extern "C" fn kokkosp_profile_event(name: *const c_char) {
    kokkos::mark::<Preload>(text(name));
}

/// Defines the functions that begin and end a kind of kernel, `(name, device, &kernel)` and
/// `(kernel)`. The number of a kernel is that of its name.
macro_rules! kernels {
    ($($attribute:literal $begin:ident $end:ident;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $begin(name: *const c_char, _: u32, kernel: Option<&mut u64>) {
                if let Some(kernel) = kernel {
                    let number = kokkos::kernel_begins::<Preload>($attribute, text(name));
                    *kernel = number as u64;
                }
            }

            #[unsafe(no_mangle)]
            extern "C" fn $end(kernel: u64) {
                kokkos::kernel_ends::<Preload>(kernel as u32);
            }
        )*
    };
}

kernels! {
    b"parallel_for" kokkosp_begin_parallel_for kokkosp_end_parallel_for;
    b"parallel_reduce" kokkosp_begin_parallel_reduce kokkosp_end_parallel_reduce;
    b"parallel_scan" kokkosp_begin_parallel_scan kokkosp_end_parallel_scan;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> (usize, Option<DeviceApi>) {
        let mut space = Space { name: [0; 64] };
        space.name[..name.len()].copy_from_slice(name.as_bytes());
        let Place { apis, unrecorded } = space.place();
        (apis.len(), unrecorded)
    }

    #[test]
    fn spaces_are_those_of_devices_or_of_the_host() {
        assert_eq!(place("Cuda"), (1, Some(Cuda)));
        assert_eq!(place("HIP"), (1, Some(Hip)));
        assert_eq!(place("SYCLDeviceUSM"), (4, Some(Offload)));
        assert_eq!(place("OpenMPTargetSpace"), (4, Some(Offload)));
        let of_host = ["Host", "HBW", "CudaUVM", "CudaHostPinned", "HIPManaged", "SYCLSharedUSM"];
        for name in of_host.into_iter().chain(["SYCLHostUSM", "Anonymous", ""]) {
            assert_eq!(place(name), (4, None), "{name}");
        }
    }
}
