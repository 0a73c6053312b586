//! Debug information that is split off into `.dwo` files (`-gsplit-dwarf`). The module keeps
//! skeletons of its units, which have address ranges and lines but no functions.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gimli::{Dwarf, DwarfSections, EndianSlice, LittleEndian, Unit};

use super::elf::ElfFile;

/// Maximum size of a section of a `.dwo` file in bytes. It has the debug information of one source
/// file; the largest known have some 50 MB.
const SECTION_LIMIT: u64 = 256 << 20;

/// Bytes of a section.
pub(super) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The sections of a `.dwo` file.
pub(super) type Sections = DwarfSections<Vec<u8>>;

/// Returns the path of the `.dwo` file of a skeleton, as the compiler stored it; `None` if the unit
/// is not a skeleton.
pub(super) fn path(dwarf: &Dwarf<Slice<'_>>, skeleton: &Unit<Slice<'_>>) -> Option<PathBuf> {
    skeleton.dwo_id?;
    let name = dwarf.attr_string(skeleton, skeleton.dwo_name().ok()??).ok()?;
    let name = Path::new(OsStr::from_bytes(name.slice()));
    let directory = skeleton.comp_dir.as_ref().map(|dir| OsStr::from_bytes(dir.slice()));
    Some(Path::new(directory.unwrap_or_default()).join(name))
}

/// Reads the sections of the `.dwo` file at this path, or beside the file `of` whose debug
/// information it is; `None` if it cannot be read.
pub(super) fn read(path: &Path, of: &Path) -> Option<Sections> {
    let beside = of.parent().zip(path.file_name()).map(|(directory, name)| directory.join(name));
    let absolute = path.is_absolute().then(|| path.to_owned());
    let elf = absolute.into_iter().chain(beside).find_map(|path| ElfFile::open(&path).ok())?;
    let load = |id: gimli::SectionId| {
        let bytes = id.dwo_name().and_then(|name| elf.section(name, SECTION_LIMIT));
        Ok::<_, gimli::Error>(bytes.unwrap_or_default().into_owned())
    };
    DwarfSections::load(load).ok()
}

/// Returns the unit of a skeleton in the sections of its `.dwo` file; `None` if they are those of
/// another unit.
pub(super) fn unit<'a>(
    sections: &'a Sections,
    dwarf: &Dwarf<Slice<'a>>,
    skeleton: &Unit<Slice<'a>>,
) -> Option<(Dwarf<Slice<'a>>, Unit<Slice<'a>>)> {
    let mut split = sections.borrow(|section| EndianSlice::new(section.as_slice(), LittleEndian));
    split.make_dwo(dwarf);
    let mut headers = split.units();
    // Type units can precede the unit.
    while let Ok(Some(header)) = headers.next() {
        let Ok(mut unit) = split.unit(header) else { continue };
        if unit.dwo_id == skeleton.dwo_id {
            unit.copy_relocated_attributes(skeleton);
            return Some((split, unit));
        }
    }
    None
}
