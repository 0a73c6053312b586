//! The words of shared records, and access to them.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// The plain type of a field, with its type in the shared form.
pub trait Cell {
    /// The shared type, with the same size and alignment.
    type Shared;
}

/// Access to a word, without ordering guarantees.
pub trait Word {
    /// The type of its value.
    type Value;

    /// Returns the value.
    fn get(&self) -> Self::Value;

    /// Replaces the value.
    fn set(&self, value: Self::Value);

    /// Adds to the value, wrapping around. For words that only one thread writes: of two concurrent
    /// additions one may be lost.
    fn add(&self, value: Self::Value);
}

macro_rules! words {
    ($($number:ident as $atomic:ident,)*) => {
        $(
            impl Cell for $number {
                type Shared = $atomic;
            }

            impl Word for $atomic {
                type Value = $number;

                #[inline(always)]
                fn get(&self) -> $number {
                    self.load(Relaxed)
                }

                #[inline(always)]
                fn set(&self, value: $number) {
                    self.store(value, Relaxed);
                }

                #[inline(always)]
                fn add(&self, value: $number) {
                    self.store(self.load(Relaxed).wrapping_add(value), Relaxed);
                }
            }
        )*
    };
}

words! {
    u8 as AtomicU8,
    u16 as AtomicU16,
    u32 as AtomicU32,
    u64 as AtomicU64,
    i32 as AtomicI32,
    i64 as AtomicI64,
}

impl<T: Cell, const N: usize> Cell for [T; N] {
    type Shared = [T::Shared; N];
}
