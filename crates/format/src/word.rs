//! The words of shared records, and how they are used.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// A type of a field, and the one in its place where the record is shared.
pub trait Cell {
    /// Of the same size and alignment.
    type Shared;
}

/// Access to a word without ordering.
pub trait Word {
    /// What it holds.
    type Value;

    /// Returns the value.
    fn get(&self) -> Self::Value;

    /// Replaces the value.
    fn set(&self, value: Self::Value);

    /// Adds to the value, and wraps at its end. For a word that one thread writes: the sum of two
    /// threads that add at the same time may lack one of them.
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
