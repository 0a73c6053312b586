//! Functions and source lines at addresses, read by this crate where the engine does not read them:
//! in `.dwo` files, and in sections that are compressed in the old GNU format (`.zdebug_info`).

use std::path::PathBuf;

use gimli::{DebuggingInformationEntry, Dwarf, Unit, UnitRef};
use rustc_hash::FxHashMap;

use super::split::Slice;

/// A source file and line.
pub(super) type Source = (String, Option<u32>);

/// A function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Located {
    /// Its name, if it can be built.
    pub(super) name: Option<String>,
    /// Where it calls the next function, or the line at the address; `None` if unknown.
    pub(super) source: Option<Source>,
}

/// What is known of the functions at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// All functions, outermost first. If the last one has no source, that is the engine's.
    Found(Vec<Located>),
    /// They are in a `.dwo` file that is missing.
    Missing(PathBuf),
}

/// Returns where an inlined function was called; `files` is the unit with the line table.
pub(super) fn call(
    inlined: &DebuggingInformationEntry<Slice<'_>>,
    files: UnitRef<'_, Slice<'_>>,
) -> Option<Source> {
    let number = |name| inlined.attr(name)?.udata_value();
    let file = file(files, number(gimli::DW_AT_call_file)?)?;
    let line = number(gimli::DW_AT_call_line).and_then(|line| u32::try_from(line).ok());
    Some((file, line.filter(|&line| line != 0)))
}

/// Returns the path of a file in the line table of a unit.
fn file(unit: UnitRef<'_, Slice<'_>>, index: u64) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(index)?;
    let text = |value| Some(unit.attr_string(value).ok()?.to_string_lossy().into_owned());
    let mut path = PathBuf::from(unit.comp_dir.as_ref().map_or_else(String::new, |dir| {
        dir.to_string_lossy().into_owned() //
    }));
    if let Some(directory) = file.directory(header) {
        path.push(text(directory)?);
    }
    path.push(text(file.path_name())?);
    Some(crate::text::of_path(&path))
}

/// Returns the lines at addresses, which must be ascending, from the line table of a unit.
pub(super) fn lines(
    dwarf: &Dwarf<Slice<'_>>,
    unit: &Unit<Slice<'_>>,
    addresses: &[u64],
) -> FxHashMap<u64, Source> {
    let mut found: FxHashMap<u64, (u64, Option<u32>)> = FxHashMap::default();
    let mut last: Option<(u64, u64, Option<u32>)> = None;
    let Some(program) = unit.line_program.clone() else { return FxHashMap::default() };
    let mut rows = program.rows();
    while let Ok(Some((_, row))) = rows.next_row() {
        if let Some((begin, file, line)) = last {
            let first = addresses.partition_point(|&address| address < begin);
            let inside = addresses[first..].iter().take_while(|&&at| at < row.address());
            found.extend(inside.map(|&address| (address, (file, line))));
        }
        let line = row.line().and_then(|line| u32::try_from(line.get()).ok());
        last = (!row.end_sequence()).then(|| (row.address(), row.file_index(), line));
    }
    let unit = unit.unit_ref(dwarf);
    let named = |(address, (index, line))| Some((address, (file(unit, index)?, line)));
    found.into_iter().filter_map(named).collect()
}
