//! In the place of the decoder: instructions of this processor are not known.

use crate::flow::Flow;
use core::convert::Infallible;
use core::marker::PhantomData;

/// There is none.
pub struct Instruction<'a>(Infallible, PhantomData<&'a [u8]>);

impl<'a> Instruction<'a> {
    /// Returns none.
    pub fn decode(_: &'a [u8]) -> Option<Instruction<'a>> {
        None
    }

    pub fn bytes(&self) -> &'a [u8] {
        match self.0 {}
    }

    pub fn length(&self) -> usize {
        match self.0 {}
    }

    pub fn is_nop(&self) -> bool {
        match self.0 {}
    }

    pub fn flow(&self) -> Flow {
        match self.0 {}
    }

    pub fn relative(&self) -> Result<Option<i32>, ()> {
        match self.0 {}
    }

    pub fn relative_at(&self, _: i32) -> Option<usize> {
        match self.0 {}
    }
}
