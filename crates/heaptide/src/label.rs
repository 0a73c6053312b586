//! Labels: names for a program's data, and lookup of addresses.

use crate::interface;
use std::borrow::Cow;

/// Data that can be labelled: its address and its elements.
///
/// A label applies to a whole heap block. Slices and arrays that do not start a heap block
/// (statics, parts of a mapping) are labelled as separate memory.
pub trait Data {
    /// The address of the first element.
    fn address(&self) -> *const u8;
    /// The size of an element in bytes.
    fn element_bytes(&self) -> usize;
    /// The number of elements.
    fn elements(&self) -> usize;
    /// The number of bytes of memory that need not be a heap block; 0 if it always is one.
    fn region_bytes(&self) -> usize {
        0
    }
}

impl<T> Data for [T] {
    fn address(&self) -> *const u8 {
        self.as_ptr().cast()
    }
    fn element_bytes(&self) -> usize {
        size_of::<T>()
    }
    fn elements(&self) -> usize {
        self.len()
    }
    fn region_bytes(&self) -> usize {
        size_of_val(self)
    }
}

impl<T, const N: usize> Data for [T; N] {
    fn address(&self) -> *const u8 {
        self.as_ptr().cast()
    }
    fn element_bytes(&self) -> usize {
        size_of::<T>()
    }
    fn elements(&self) -> usize {
        N
    }
    fn region_bytes(&self) -> usize {
        size_of_val(self)
    }
}

impl Data for str {
    fn address(&self) -> *const u8 {
        self.as_ptr()
    }
    fn element_bytes(&self) -> usize {
        1
    }
    fn elements(&self) -> usize {
        self.len()
    }
    fn region_bytes(&self) -> usize {
        self.len()
    }
}

impl<T> Data for Vec<T> {
    fn address(&self) -> *const u8 {
        self.as_ptr().cast()
    }
    fn element_bytes(&self) -> usize {
        size_of::<T>()
    }
    fn elements(&self) -> usize {
        self.capacity()
    }
}

impl Data for String {
    fn address(&self) -> *const u8 {
        self.as_ptr()
    }
    fn element_bytes(&self) -> usize {
        1
    }
    fn elements(&self) -> usize {
        self.capacity()
    }
}

impl<T> Data for Box<T> {
    fn address(&self) -> *const u8 {
        std::ptr::from_ref::<T>(self).cast()
    }
    fn element_bytes(&self) -> usize {
        size_of::<T>()
    }
    fn elements(&self) -> usize {
        1
    }
}

impl<T> Data for Box<[T]> {
    fn address(&self) -> *const u8 {
        self.as_ptr().cast()
    }
    fn element_bytes(&self) -> usize {
        size_of::<T>()
    }
    fn elements(&self) -> usize {
        self.len()
    }
}

/// Labels the block that holds this data. Returns whether the recorder knows the block: it does not
/// know data that was allocated while nothing was recorded.
///
/// A heap block keeps its label until it is freed; labelling it again replaces the label.
///
/// ```
/// let energies = vec![0.0f64; 1000];
/// if heaptide::label("energies", &energies) {
///     let found = heaptide::resolve(&energies[7]).unwrap();
///     assert_eq!(found.label().as_deref(), Some("energies"));
///     assert_eq!(found.index, 7);
/// }
/// ```
pub fn label<D: Data + ?Sized>(name: &str, data: &D) -> bool {
    label_dimensions(name, data, &[data.elements()])
}

/// Like [`label`], for data of more than one dimension.
///
/// ```
/// let matrix = vec![0.0f64; 30 * 40];
/// if heaptide::label_dimensions("matrix", &matrix, &[30, 40]) {
///     assert_eq!(heaptide::resolve(&matrix[0]).unwrap().dimensions(), [30, 40]);
/// }
/// ```
pub fn label_dimensions<D: Data + ?Sized>(name: &str, data: &D, dimensions: &[usize]) -> bool {
    // Empty data has no block: its address is dangling.
    if data.elements() == 0 || data.element_bytes() == 0 {
        return false;
    }
    let element_bytes = data.element_bytes();
    interface::label(data.address(), name, element_bytes, dimensions, data.region_bytes())
}

/// Labels `bytes` of memory that is no heap block: a mapping, a static, a slice of a pool. Returns
/// whether there was space for the label, which stays until [`unlabel`].
///
/// ```
/// static TABLE: [u32; 256] = [0; 256];
/// if heaptide::label_memory("table", TABLE.as_ptr().cast(), 1024, 4) {
///     assert_eq!(heaptide::resolve(&TABLE[255]).unwrap().index, 255);
///     assert!(heaptide::unlabel(TABLE.as_ptr()));
/// }
/// ```
pub fn label_memory(name: &str, start: *const u8, bytes: usize, element_bytes: usize) -> bool {
    let elements = bytes.checked_div(element_bytes).unwrap_or(1);
    interface::label(start, name, element_bytes, &[elements], bytes)
}

/// Removes a label. Returns whether there was one.
pub fn unlabel<T>(address: *const T) -> bool {
    interface::unlabel(address.cast())
}

/// Like [`label`], until the guard is dropped. If the block is freed before that and its memory is
/// reused, the label of the new block stays.
///
/// ```
/// let hits = vec![0u32; 100];
/// {
///     let _label = heaptide::label_guard("hits", &hits);
/// }
/// assert!(heaptide::resolve(&hits[0]).is_none_or(|block| block.label().is_none()));
/// ```
pub fn label_guard<D: Data + ?Sized>(name: &str, data: &D) -> Label {
    let (address, done) = (data.address().addr(), label(name, data));
    let uid = if done { uid_at(address) } else { 0 };
    Label { address, uid }
}

/// A label that is removed when this is dropped; see [`label_guard`].
#[must_use = "the label is taken back when its guard is dropped"]
#[derive(Debug)]
pub struct Label {
    address: usize,
    /// 0 if nothing was labelled.
    uid: u64,
}

impl Drop for Label {
    fn drop(&mut self) {
        if self.uid != 0 && uid_at(self.address) == self.uid {
            interface::unlabel(std::ptr::without_provenance(self.address));
        }
    }
}

fn uid_at(address: usize) -> u64 {
    let found = interface::resolve(std::ptr::without_provenance(address));
    found.map_or(0, |(block, _)| block.uid)
}

/// The kind of memory of a [`Block`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A block of the allocator.
    Heap,
    /// A block that a pool handed out.
    Pool,
    /// A part of a pool's chunk that is in no block of the pool.
    Chunk,
    /// Other memory with a label.
    Other,
}

/// The result of [`resolve`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The address at which the block starts.
    pub start: usize,
    /// Its size in bytes.
    pub bytes: usize,
    /// The number of this labelling, from 1, never reused; 0 without a label.
    pub uid: u64,
    /// The size of an element, as passed with the label; 0 without a label.
    pub element_bytes: usize,
    /// The index of the element that contains the address; 0 without a label.
    pub index: usize,
    /// The kind of memory.
    pub kind: Kind,
    label: Option<&'static [u8]>,
    dimensions: [usize; 4],
    dimension_count: usize,
}

impl Block {
    /// Returns its label.
    pub fn label(&self) -> Option<Cow<'static, str>> {
        self.label.map(String::from_utf8_lossy)
    }

    /// Returns the dimensions passed with the label; any beyond four are multiplied into the last.
    pub fn dimensions(&self) -> &[usize] {
        &self.dimensions[..self.dimension_count.min(self.dimensions.len())]
    }
}

/// Returns the block that contains this address; `None` if it was freed or is unknown.
///
/// ```
/// let block = vec![0u8; 1000];
/// let found = heaptide::resolve(&block[999]);
/// assert!(found.is_none_or(|found| found.start == block.as_ptr().addr()));
/// ```
pub fn resolve<T>(address: *const T) -> Option<Block> {
    let (raw, label) = interface::resolve(address.cast())?;
    Some(Block {
        start: raw.start,
        bytes: raw.bytes,
        uid: raw.uid,
        element_bytes: raw.element_bytes,
        index: raw.index,
        kind: match raw.kind {
            1 => Kind::Heap,
            2 => Kind::Pool,
            3 => Kind::Chunk,
            _ => Kind::Other,
        },
        label,
        dimensions: raw.dimensions,
        dimension_count: raw.dimension_count,
    })
}
