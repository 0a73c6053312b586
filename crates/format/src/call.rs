//! The functions by which blocks are allocated, as kinds.

/// A flag of a key: the [`Call`] that is a dimension; 0 if it is none.
pub const KEY_CALL: u32 = 7 << KEY_CALL_SHIFT;
/// The lowest bit of [`KEY_CALL`].
pub const KEY_CALL_SHIFT: u32 = 5;

/// The kind of function that allocated blocks, as [`crate::Key::flags`] holds it with
/// [`KEY_CALL`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Call {
    /// `malloc`, and `alloc` of Rust.
    Malloc = 1,
    /// `calloc`, and `alloc_zeroed` of Rust.
    Calloc = 2,
    /// `realloc`, `reallocarray` and others that change the size of a block, of no block too.
    Realloc = 3,
    /// `aligned_alloc`, `memalign`, `posix_memalign`, `valloc`, `pvalloc`.
    Aligned = 4,
    /// Operator new in all its forms.
    New = 5,
    /// Functions that only one allocator has, such as `mallocx`.
    Other = 6,
}

impl Call {
    /// Every kind.
    pub const ALL: [Call; 6] =
        [Call::Malloc, Call::Calloc, Call::Realloc, Call::Aligned, Call::New, Call::Other];

    /// Its name in columns, reports and JSON.
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

    /// Its bits in [`crate::Key::flags`].
    pub const fn flags(self) -> u32 {
        (self as u32) << KEY_CALL_SHIFT
    }

    /// That of a key; none if it is no dimension of the key, or unknown.
    pub fn from_flags(flags: u32) -> Option<Call> {
        let number = (flags & KEY_CALL) >> KEY_CALL_SHIFT;
        Call::ALL.into_iter().find(|&call| call as u32 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_hold_each_call() {
        for call in Call::ALL {
            assert_eq!(Call::from_flags(call.flags() | !KEY_CALL), Some(call));
            assert_eq!(call.flags() & !KEY_CALL, 0);
        }
        assert_eq!(Call::from_flags(!KEY_CALL), None);
        assert_eq!(Call::from_flags(KEY_CALL), None);
    }
}
