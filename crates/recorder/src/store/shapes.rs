//! Shapes: how labels describe the memory that they are attached to, as records of the profile.
//! Each combination of label, element size and dimensions is stored once.

use crate::store::budgets::SHAPES_MAX;
use crate::store::ids::{NameId, ShapeId};
use crate::store::index::Index;
use crate::store::profile::Cursor;
use heaptide_format::shared::{Shape, Word};
use heaptide_format::{DIMENSIONS, Kind};

/// The shapes of the profile. All zeros: none yet.
pub struct Shapes {
    index: Index<WORDS>,
    next: Cursor,
    used: u32,
}

/// Words of a shape: its label, its number of dimensions, the size of an element, the dimensions.
const WORDS: usize = 4 + 2 * DIMENSIONS;

/// An array, as described by a label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Array {
    pub element_bytes: u64,
    pub dimensions: [u64; DIMENSIONS],
    pub dimension_count: u32,
}

impl Array {
    /// Creates an array with these dimensions; those beyond `DIMENSIONS` are multiplied into the
    /// last.
    pub fn new(element_bytes: u64, all: &[usize]) -> Array {
        let mut dimensions = [0; DIMENSIONS];
        for (i, &dimension) in all.iter().enumerate() {
            let kept = &mut dimensions[i.min(DIMENSIONS - 1)];
            let more = dimension as u64;
            *kept = if i < DIMENSIONS { more } else { kept.saturating_mul(more) };
        }
        Array { element_bytes, dimensions, dimension_count: all.len().min(DIMENSIONS) as u32 }
    }

    fn words(&self, label: NameId) -> [u32; WORDS] {
        let mut words = [0; WORDS];
        (words[0], words[1]) = (label.number(), self.dimension_count);
        let long = core::iter::once(self.element_bytes).chain(self.dimensions);
        let halves = long.flat_map(|long| [long as u32, (long >> 32) as u32]);
        words[2..].iter_mut().zip(halves).for_each(|(word, half)| *word = half);
        words
    }
}

impl Shapes {
    /// Returns the shape of a label and an array, created if it is new; none if there is no room.
    pub fn id(&mut self, label: NameId, array: &Array) -> ShapeId {
        let words = array.words(label);
        let known = self.index.get(words);
        if known != 0 {
            return ShapeId::new(known);
        }
        let record = if (self.used as usize) < SHAPES_MAX {
            self.next.record::<Shape>(Kind::Shapes, 0)
        } else {
            None
        };
        let Some(record) = record else {
            return ShapeId::NONE;
        };
        record.label.set(label.number());
        record.dimension_count.set(array.dimension_count);
        record.element_bytes.set(array.element_bytes);
        record.dimensions.iter().zip(array.dimensions).for_each(|(to, from)| to.set(from));
        self.next.commit_record(record);
        let id = ShapeId::of(record);
        // Without an index entry the shape would be created again each time.
        if !self.index.insert(words, id.number()) {
            self.used = SHAPES_MAX as u32;
        }
        self.used = self.used.saturating_add(1);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_beyond_those_kept_are_multiplied_into_the_last() {
        let shape = |all: &[usize]| {
            let array = Array::new(8, all);
            (array.dimension_count, array.dimensions)
        };
        assert_eq!(shape(&[]), (0, [0; 4]));
        assert_eq!(shape(&[3, 4]), (2, [3, 4, 0, 0]));
        assert_eq!(shape(&[2, 3, 4, 5, 6]), (4, [2, 3, 4, 30]));
        assert_eq!(shape(&[1, 1, 1, usize::MAX, 2]).1[3], u64::MAX);
    }

    #[test]
    fn every_part_of_a_shape_tells_it_apart() {
        let label = NameId::new(7);
        let words = Array::new(8, &[3, 4]).words(label);
        let others = [
            Array::new(8, &[3, 4]).words(NameId::new(8)),
            Array::new(1 << 35, &[3, 4]).words(label),
            Array::new(8, &[4, 3]).words(label),
            Array::new(8, &[3, 4, 0]).words(label),
            Array::new(8, &[3, 4 | 1 << 40]).words(label),
        ];
        for (i, other) in others.iter().enumerate() {
            assert!(*other != words && !others[..i].contains(other));
        }
    }
}
