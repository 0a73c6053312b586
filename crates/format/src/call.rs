//! The kinds of functions that allocate blocks.

/// The bits of [`crate::Key::flags`] for the [`Call`] that is a dimension of the key; 0 if it is
/// none.
pub const KEY_CALL: u32 = 7 << KEY_CALL_SHIFT;
/// The lowest bit of [`KEY_CALL`].
pub const KEY_CALL_SHIFT: u32 = 5;

/// The kind of function that allocated blocks, stored in the bits [`KEY_CALL`] of
/// [`crate::Key::flags`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Call {
    /// `malloc`, and `alloc` of Rust.
    Malloc = 1,
    /// `calloc`, and `alloc_zeroed` of Rust.
    Calloc = 2,
    /// `realloc`, `reallocarray` and others that resize a block, also when called for no block.
    Realloc = 3,
    /// `aligned_alloc`, `memalign`, `posix_memalign`, `valloc`, `pvalloc`.
    Aligned = 4,
    /// Operator new in all forms.
    New = 5,
    /// Functions that only one allocator has, such as `mallocx`.
    Other = 6,
}

impl Call {
    /// Every kind.
    pub const ALL: [Call; 6] =
        [Call::Malloc, Call::Calloc, Call::Realloc, Call::Aligned, Call::New, Call::Other];

    /// Returns its name in columns, reports and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Call::Malloc => "malloc",
            Call::Calloc => "calloc",
            Call::Realloc => "realloc",
            Call::Aligned => "aligned",
            Call::New => "new",
            Call::Other => "other",
        }
    }

    /// Returns its bits in [`crate::Key::flags`].
    pub const fn flags(self) -> u32 {
        (self as u32) << KEY_CALL_SHIFT
    }

    /// Returns the kind of a key; `None` if it is no dimension of the key, or unknown.
    pub fn from_flags(flags: u32) -> Option<Call> {
        let number = (flags & KEY_CALL) >> KEY_CALL_SHIFT;
        Call::ALL.into_iter().find(|&call| call as u32 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_encode_each_call() {
        for call in Call::ALL {
            assert_eq!(Call::from_flags(call.flags() | !KEY_CALL), Some(call));
            assert_eq!(call.flags() & !KEY_CALL, 0);
        }
        assert_eq!(Call::from_flags(!KEY_CALL), None);
        assert_eq!(Call::from_flags(KEY_CALL), None);
    }
}
