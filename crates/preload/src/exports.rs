//! The exports for programs: the function table that `heaptide.h` looks up, and the same functions
//! by name.

use crate::Preload;
use heaptide_recorder::api::interface;

macro_rules! exports {
    ($($function:ident,)*) => {
        /// The table as declared in `heaptide.h`. Later versions append to it.
        #[repr(C)]
        pub struct Interface {
            version: u32,
            size: u32,
            $($function: *const (),)*
        }

        // SAFETY: constant function pointers.
        unsafe impl Sync for Interface {}

        #[unsafe(no_mangle)]
        #[used]
        #[allow(non_upper_case_globals, reason = "its name in C")]
        pub static heaptide_interface: Interface = Interface {
            version: 1,
            size: size_of::<Interface>() as u32,
            $($function: interface::$function::<Preload> as *const (),)*
        };

        $(
            #[unsafe(naked)]
            #[unsafe(export_name = concat!("heaptide_", stringify!($function)))]
            unsafe extern "C" fn $function() {
                crate::arch::jump!(interface::$function::<Preload>)
            }
        )*
    };
}

heaptide_recorder::interface_functions!(exports);
