//! Reads the debug information of a file: the functions at an address, including inlined ones, and
//! their scopes.

use std::cell::OnceCell;
use std::ops::Range;
use std::path::{Path, PathBuf};

use gimli::{
    DebugInfoOffset, Dwarf, DwarfSections, EndianSlice, LittleEndian, Unit, UnitOffset, UnitRef,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::elf::ElfFile;
use super::split::{self, Slice};

/// Maximum size of a section in bytes: two copies are held while it is read. If it is larger,
/// inlined functions keep their unqualified names.
const SECTION_LIMIT: u64 = 1 << 30;

/// The sections of a file, and the offsets of its units. Units of its supplementary file, to which
/// `dwz` moves common parts of several files, follow those of the file.
pub(super) struct DebugInfo {
    sections: DwarfSections<Vec<u8>>,
    supplementary: Option<DwarfSections<Vec<u8>>>,
    units: Vec<DebugInfoOffset>,
    supplementary_units: Vec<DebugInfoOffset>,
    /// Address ranges sorted by begin, each with its index in `units`.
    ranges: Vec<(Range<u64>, usize)>,
    /// The path of the file.
    path: PathBuf,
    /// By unit: its `.dwo` file, once it is needed; `None` if it cannot be read.
    split: Vec<OnceCell<Option<split::Sections>>>,
}

impl DebugInfo {
    /// Reads the debug information of a file; `None` if it has none, or it cannot be read.
    pub(super) fn read(elf: &ElfFile, path: &Path) -> Option<DebugInfo> {
        let supplementary = elf.supplementary().and_then(|link| link.open(path));
        let mut info = DebugInfo {
            sections: sections(elf)?,
            supplementary: supplementary.and_then(|elf| sections(&elf)),
            units: Vec::new(),
            supplementary_units: Vec::new(),
            ranges: Vec::new(),
            path: path.to_owned(),
            split: Vec::new(),
        };
        let dwarf = info.dwarf();
        let supplementary_units = dwarf.sup().map(|dwarf| units(dwarf).0).unwrap_or_default();
        (info.units, info.ranges) = units(&dwarf);
        info.supplementary_units = supplementary_units;
        info.split.resize_with(info.units.len(), OnceCell::new);
        Some(info).filter(|info| !info.ranges.is_empty())
    }

    /// Returns whether some debug information is in a supplementary file.
    pub(super) fn has_supplementary(&self) -> bool {
        self.supplementary.is_some()
    }

    /// Returns the parsed sections.
    pub(super) fn dwarf(&self) -> Dwarf<Slice<'_>> {
        let supplementary = self.supplementary.as_ref();
        let slice = |section| EndianSlice::new(section, LittleEndian);
        self.sections.borrow_with_sup(supplementary, |section: &Vec<u8>| slice(section))
    }

    /// Returns the sections of the file that contains a unit.
    pub(super) fn dwarf_of<'d, 'a>(
        &self,
        dwarf: &'d Dwarf<Slice<'a>>,
        index: usize,
    ) -> &'d Dwarf<Slice<'a>> {
        dwarf.sup().filter(|_| index >= self.units.len()).unwrap_or(dwarf)
    }

    /// Returns the units that can contain functions at an address.
    pub(super) fn units_at(&self, address: u64) -> impl Iterator<Item = usize> {
        let end = self.ranges.partition_point(|(range, _)| range.start <= address);
        let holds = move |range: &&(Range<u64>, usize)| range.0.contains(&address);
        self.ranges[..end].iter().rev().take(NEIGHBOURS).filter(holds).map(|&(_, unit)| unit)
    }

    /// Returns the unit that contains an offset of `.debug_info` in the file of the unit `from`,
    /// and the offset within the unit.
    pub(super) fn unit_with(
        &self,
        from: usize,
        offset: DebugInfoOffset,
    ) -> Option<(usize, UnitOffset)> {
        if from >= self.units.len() {
            return self.supplementary_unit_with(offset);
        }
        unit_in(&self.units, offset)
    }

    /// Returns the unit that contains an offset of the supplementary file, and the offset within
    /// the unit.
    pub(super) fn supplementary_unit_with(
        &self,
        offset: DebugInfoOffset,
    ) -> Option<(usize, UnitOffset)> {
        let (index, offset) = unit_in(&self.supplementary_units, offset)?;
        Some((self.units.len() + index, offset))
    }

    /// Returns the unit that a skeleton stands for, with the sections of its `.dwo` file; `None` if
    /// it is not there.
    pub(super) fn split_unit<'a>(
        &'a self,
        dwarf: &Dwarf<Slice<'a>>,
        index: usize,
        skeleton: &Unit<Slice<'a>>,
    ) -> Option<(Dwarf<Slice<'a>>, Unit<Slice<'a>>)> {
        let read = || split::read(&split::path(dwarf, skeleton)?, &self.path);
        let sections = self.split.get(index)?.get_or_init(read).as_ref()?;
        split::unit(sections, dwarf, skeleton)
    }

    /// Reads a unit; `None` if it is damaged.
    pub(super) fn unit<'a>(
        &self,
        dwarf: &Dwarf<Slice<'a>>,
        index: usize,
    ) -> Option<Unit<Slice<'a>>> {
        let dwarf = self.dwarf_of(dwarf, index);
        let supplementary = || self.supplementary_units.get(index - self.units.len());
        let offset = self.units.get(index).or_else(supplementary)?;
        dwarf.unit(dwarf.unit_header(*offset).ok()?).ok()
    }
}

fn sections(elf: &ElfFile) -> Option<DwarfSections<Vec<u8>>> {
    let load = |id: gimli::SectionId| {
        let bytes = elf.section(id.name(), SECTION_LIMIT).unwrap_or_default();
        Ok::<_, gimli::Error>(bytes.into_owned())
    };
    DwarfSections::load(load).ok()
}

/// Returns the unit that contains an offset, and the offset within the unit.
fn unit_in(units: &[DebugInfoOffset], offset: DebugInfoOffset) -> Option<(usize, UnitOffset)> {
    let index = units.partition_point(|unit| unit.0 <= offset.0).checked_sub(1)?;
    Some((index, UnitOffset(offset.0 - units[index].0)))
}

/// Number of ranges checked for an address; ranges of units hardly overlap.
const NEIGHBOURS: usize = 8;

fn units(dwarf: &Dwarf<Slice<'_>>) -> (Vec<DebugInfoOffset>, Vec<(Range<u64>, usize)>) {
    let (mut offsets, mut all) = (Vec::new(), Vec::new());
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        let Some(offset) = header.debug_info_offset() else { continue };
        let index = offsets.len();
        offsets.push(offset);
        let Ok(unit) = dwarf.unit(header) else { continue };
        let Ok(mut ranges) = dwarf.unit_ranges(&unit) else { continue };
        while let Ok(Some(range)) = ranges.next() {
            all.push((range.begin..range.end, index));
        }
    }
    all.sort_unstable_by_key(|(range, _)| range.start);
    (offsets, all)
}

/// A named scope of a unit: a namespace, type or function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// Offset of its entry.
    pub(super) offset: UnitOffset,
    /// Index of the enclosing scope; `None` if that is the unit itself.
    pub(super) parent: Option<u32>,
}

/// An unnamed type with an `operator()`, and its position in the source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closure {
    parent: Option<u32>,
    offset: UnitOffset,
    position: (u64, u64),
}

/// The declarations of a unit.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    /// Ascending by offset.
    scopes: Vec<Scope>,
    closures: Vec<Closure>,
    /// By address: the function and those inlined into it, outermost first.
    functions: FxHashMap<u64, Vec<UnitOffset>>,
    /// Addresses in an inlined function whose list of ranges ends too early.
    repaired: FxHashSet<u64>,
}

impl Scopes {
    /// Reads a unit, and stores the functions at `addresses`, which must be ascending. Entries
    /// after a damaged one are missing.
    pub(super) fn of(unit: UnitRef<'_, Slice<'_>>, addresses: &[u64]) -> Scopes {
        let mut walk = Walk { unit, addresses, found: Scopes::default(), open: Vec::new() };
        let mut entries = unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            walk.enter(entry);
        }
        walk.found
    }

    /// Returns the function at an address and those inlined into it, outermost first.
    pub(super) fn functions(&self, address: u64) -> &[UnitOffset] {
        self.functions.get(&address).map_or(&[], Vec::as_slice)
    }

    /// Returns whether readers that end lists of ranges where GCC's do lack a function at an
    /// address.
    pub(super) fn is_repaired(&self, address: u64) -> bool {
        self.repaired.contains(&address)
    }

    /// Returns the enclosing scope of an entry; `None` if that is the unit.
    pub(super) fn parent(&self, offset: UnitOffset) -> Option<Scope> {
        let index = self.scopes.binary_search_by_key(&offset, |scope| scope.offset).ok()?;
        self.scopes.get(self.scopes[index].parent? as usize).copied()
    }

    /// Returns the number of a closure among those of its scope, from 1, in source order, as in
    /// mangled names. `None` if the entry is not a closure.
    pub(super) fn closure_number(&self, offset: UnitOffset) -> Option<usize> {
        let this = self.closures.iter().find(|closure| closure.offset == offset)?;
        let is_before = |c: &&Closure| {
            c.parent == this.parent && (c.position, c.offset) < (this.position, this.offset)
        };
        Some(1 + self.closures.iter().filter(is_before).count())
    }
}

/// An entry whose children are being read.
struct Open {
    depth: isize,
    /// The innermost named scope.
    scope: Option<u32>,
    /// Set for an unnamed type.
    nameless: Option<Closure>,
    /// Requested addresses in its code.
    addresses: Vec<u64>,
}

struct Walk<'a, 'b> {
    unit: UnitRef<'a, Slice<'b>>,
    addresses: &'a [u64],
    found: Scopes,
    open: Vec<Open>,
}

type Entry<'b> = gimli::DebuggingInformationEntry<Slice<'b>>;

impl<'b> Walk<'_, 'b> {
    fn enter(&mut self, entry: &Entry<'b>) {
        while self.open.last().is_some_and(|open| open.depth >= entry.depth()) {
            self.open.pop();
        }
        let outer = self.open.last().and_then(|open| open.scope);
        let mut open =
            Open { depth: entry.depth(), scope: outer, nameless: None, addresses: Vec::new() };
        match entry.tag() {
            gimli::DW_TAG_namespace => open.scope = self.add(entry, outer),
            gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_enumeration_type => {
                open.scope = self.add(entry, outer);
                open.nameless = nameless(entry, outer);
            }
            gimli::DW_TAG_subprogram => {
                self.note_closure(entry);
                open.scope = self.add(entry, outer);
                open.addresses = self.within(entry, self.addresses);
            }
            gimli::DW_TAG_inlined_subroutine => {
                let around = self.open.last().map_or(&[][..], |open| &open.addresses);
                open.addresses = self.within(entry, around);
                if open.addresses.is_empty() && !around.is_empty() {
                    open.addresses = self.within_rest(entry, around);
                    self.found.repaired.extend(&open.addresses);
                }
            }
            gimli::DW_TAG_lexical_block => {
                let around = self.open.last().map(|open| open.addresses.clone());
                open.addresses = around.unwrap_or_default();
            }
            _ => {}
        }
        if entry.tag() != gimli::DW_TAG_lexical_block {
            for &address in &open.addresses {
                self.found.functions.entry(address).or_default().push(entry.offset());
            }
        }
        if entry.has_children() {
            self.open.push(open);
        }
    }

    fn add(&mut self, entry: &Entry<'b>, parent: Option<u32>) -> Option<u32> {
        let index = u32::try_from(self.found.scopes.len()).ok()?;
        self.found.scopes.push(Scope { offset: entry.offset(), parent });
        Some(index)
    }

    /// Stores the type around a function as a closure, if it is one.
    fn note_closure(&mut self, function: &Entry<'b>) {
        let Some(around) = self.open.last_mut() else { return };
        let is_call = || {
            let name = function.attr_value(gimli::DW_AT_name)?;
            Some(self.unit.attr_string(name).ok()?.starts_with(CALL.as_bytes()))
        };
        if around.nameless.is_some() && is_call() == Some(true) {
            self.found.closures.extend(around.nameless.take());
        }
    }

    /// Returns the addresses that are in the code of a function.
    fn within(&self, entry: &Entry<'b>, addresses: &[u64]) -> Vec<u64> {
        if addresses.is_empty() {
            return Vec::new();
        }
        let Ok(mut ranges) = self.unit.die_ranges(entry) else { return Vec::new() };
        inside(addresses, || ranges.next().ok().flatten())
    }

    /// Returns the addresses that are in the code of an inlined function after an early end of its
    /// list of ranges.
    ///
    /// Up to DWARF 4, a list of ranges ends with two zeros. GCC also writes two zeros for an empty
    /// range at the first address of a unit, which can only be the first range of a list: the list
    /// seems to be empty.
    fn within_rest(&self, entry: &Entry<'b>, addresses: &[u64]) -> Vec<u64> {
        let Some(gimli::AttributeValue::RangeListsRef(list)) =
            entry.attr_value(gimli::DW_AT_ranges)
        else {
            return Vec::new();
        };
        let first = |list: gimli::RangeListsOffset| self.unit.ranges(list).ok();
        let list = self.unit.ranges_offset_from_raw(list);
        let is_empty = |list| first(list).is_some_and(|mut all| matches!(all.next(), Ok(None)));
        if self.unit.header.version() > VERSION_WITH_ZEROS || !is_empty(list) {
            return Vec::new();
        }
        let zeros = 2 * usize::from(self.unit.header.address_size());
        let rest = list.0.checked_add(zeros).and_then(|rest| first(gimli::RangeListsOffset(rest)));
        let Some(mut ranges) = rest else { return Vec::new() };
        inside(addresses, || ranges.next().ok().flatten())
    }
}

/// The last version of DWARF in which two zeros end a list of ranges.
const VERSION_WITH_ZEROS: u16 = 4;

/// Returns those of ascending `addresses` that are in ranges.
fn inside(addresses: &[u64], mut next: impl FnMut() -> Option<gimli::Range>) -> Vec<u64> {
    let mut inside = Vec::new();
    while let Some(range) = next() {
        let start = addresses.partition_point(|&address| address < range.begin);
        inside.extend(addresses[start..].iter().take_while(|&&address| address < range.end));
    }
    inside.sort_unstable();
    inside.dedup();
    inside
}

const CALL: &str = "operator()";

fn nameless(entry: &Entry<'_>, parent: Option<u32>) -> Option<Closure> {
    if entry.has_attr(gimli::DW_AT_name) {
        return None;
    }
    let number =
        |name| entry.attr(name).and_then(|attribute| attribute.udata_value()).unwrap_or_default();
    let position = (number(gimli::DW_AT_decl_line), number(gimli::DW_AT_decl_column));
    Some(Closure { parent, offset: entry.offset(), position })
}
