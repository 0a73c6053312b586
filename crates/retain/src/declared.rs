//! Where variables are declared, from the debug information of a module: DWARF 5, sections 2.6
//! (locations) and 4.1 (variables).

use std::borrow::Cow;
use std::collections::HashMap;

use gimli::{AttributeValue, DwAt, EndianSlice, Operation, RunTimeEndian, SectionId};
use gimli::{DW_AT_abstract_origin, DW_AT_decl_file, DW_AT_decl_line, DW_AT_location};
use gimli::{DW_AT_specification, DW_TAG_variable};
use heaptide_analysis::model::retained::Declared;
use heaptide_analysis::symbols::ElfFile;

/// Sections of debug information with more bytes are not read.
const BYTES_MAX: u64 = 256 << 20;
/// References that are followed from one entry to another.
const REFERENCES_MAX: u32 = 4;

type Slice<'a> = EndianSlice<'a, RunTimeEndian>;
type Dwarf<'a> = gimli::Dwarf<Slice<'a>>;
type Unit<'a> = gimli::Unit<Slice<'a>>;
type Entry<'a> = gimli::DebuggingInformationEntry<Slice<'a>>;

/// Returns where the variables at these addresses of a file are declared, as far as its debug
/// information states it.
pub(crate) fn places(file: &ElfFile, addresses: &[u64]) -> HashMap<u64, Declared> {
    let mut found = HashMap::new();
    let _ = find(file, addresses, &mut found); // damaged information is not used
    found
}

fn find(file: &ElfFile, addresses: &[u64], found: &mut HashMap<u64, Declared>) -> Option<()> {
    let of_section = |id: SectionId| -> Result<Cow<'_, [u8]>, gimli::Error> {
        Ok(file.section(id.name(), BYTES_MAX).unwrap_or_default())
    };
    let sections = gimli::DwarfSections::load(of_section).ok()?;
    // The program runs on this machine.
    let order =
        if cfg!(target_endian = "big") { RunTimeEndian::Big } else { RunTimeEndian::Little };
    let dwarf = sections.borrow(|section| EndianSlice::new(section, order));
    let mut units = dwarf.units();
    while let Some(header) = units.next().ok()? {
        let unit = dwarf.unit(header).ok()?;
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs().ok()? {
            if entry.tag() == DW_TAG_variable
                && let Some(address) = address(&dwarf, &unit, entry)
                && addresses.contains(&address)
                && let Some(declared) = declared(&dwarf, &unit, entry)
            {
                found.insert(address, declared);
                if found.len() == addresses.len() {
                    return Some(());
                }
            }
        }
    }
    Some(())
}

/// Returns the address of a variable that has one.
fn address(dwarf: &Dwarf, unit: &Unit, entry: &Entry) -> Option<u64> {
    let AttributeValue::Exprloc(location) = entry.attr_value(DW_AT_location)? else { return None };
    let mut operations = location.operations(unit.encoding());
    match operations.next().ok()?? {
        Operation::Address { address } => Some(address),
        Operation::AddressIndex { index } => dwarf.address(unit, index).ok(),
        _ => None,
    }
}

/// Returns where a variable is declared.
fn declared<'a>(dwarf: &Dwarf<'a>, unit: &Unit<'a>, entry: &Entry<'a>) -> Option<Declared> {
    let line = attribute(unit, entry, DW_AT_decl_line, REFERENCES_MAX)?.udata_value()?;
    let file = attribute(unit, entry, DW_AT_decl_file, REFERENCES_MAX)?;
    let AttributeValue::FileIndex(index) = file else { return None };
    let file = unit.line_program.as_ref()?.header().file(index)?;
    let file = dwarf.attr_string(unit, file.path_name()).ok()?.to_string_lossy().into_owned();
    Some(Declared { file, line: u32::try_from(line).ok()? })
}

/// Returns an attribute of an entry, or of the one that it completes: a member of a class, or a
/// variable of an inlined function.
fn attribute<'a>(
    unit: &Unit<'a>,
    entry: &Entry<'a>,
    name: DwAt,
    references: u32,
) -> Option<AttributeValue<Slice<'a>>> {
    if let Some(value) = entry.attr_value(name) {
        return Some(value);
    }
    let other = [DW_AT_specification, DW_AT_abstract_origin].into_iter();
    match other.filter_map(|name| entry.attr_value(name)).next()? {
        AttributeValue::UnitRef(offset) if references > 0 => {
            attribute(unit, &unit.entry(offset).ok()?, name, references - 1)
        }
        _ => None,
    }
}
