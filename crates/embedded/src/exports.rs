//! The function table for `heaptide.h`, visible only to C code that is linked into the program. The
//! library's table replaces it if that is loaded, too.

use crate::front::Embedded;
use heaptide_recorder::address_of_symbol;
use heaptide_recorder::api::interface;

macro_rules! exports {
    ($($function:ident,)*) => {
        const FUNCTIONS: usize = [$(stringify!($function)),*].len();
        /// Bytes of the table.
        pub const INTERFACE_BYTES: usize = 8 + FUNCTIONS * 8;

        core::arch::global_asm!(
            ".pushsection .data.heaptide_interface, \"aw\"",
            ".globl heaptide_interface",
            ".hidden heaptide_interface",
            ".type heaptide_interface, %object",
            ".size heaptide_interface, {bytes}",
            ".p2align 3",
            "heaptide_interface:",
            ".long 1, {bytes}",
            $(concat!(".quad {", stringify!($function), "}"),)*
            ".popsection",
            bytes = const INTERFACE_BYTES,
            $($function = sym interface::$function::<Embedded>,)*
        );
    };
}

heaptide_recorder::interface_functions!(exports);

/// Returns the address of the table.
pub fn table() -> *mut u64 {
    address_of_symbol!("heaptide_interface") as *mut u64
}
