//! Sealing a recording: storing its names with it, and packing the profiles of finished processes.

use std::path::Path;

use super::ending::now_ns;
use super::parts::{Choice, Parts, wanted};
use super::snapshot;
use crate::error::Error;
use crate::files::{draft, file_names};
use crate::profile::{pack, reader};
use crate::symbols::{Blazesym, Engine, Symbols};
use crate::trace::live;

/// What sealing did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sealed {
    /// Distinct addresses of the recording that were looked up, now or before.
    pub addresses: usize,
    /// How many of them have a name.
    pub named: usize,
    /// A line for each module without names because its file is gone or is another one.
    pub notes: Vec<String>,
}

/// Stores the names of all addresses with a recording, so that it can be read on another machine,
/// and packs the profiles of processes that are over; one that cannot be packed stays as it is.
/// `progress` is told the addresses looked up and their number.
///
/// Errors: the recording cannot be read or written.
///
/// ```
/// let show = &mut |done, total| println!("{done} of {total} addresses");
/// assert!(heaptide_analysis::seal("missing.heaptide".as_ref(), show).is_err());
/// ```
pub fn seal(directory: &Path, progress: &mut dyn FnMut(usize, usize)) -> Result<Sealed, Error> {
    seal_with(directory, &Blazesym, progress)
}

/// The same with an engine for names.
pub fn seal_with(
    directory: &Path,
    engine: &dyn Engine,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Sealed, Error> {
    draft::sweep(directory);
    let mut parts = Parts::read(directory, Choice { snapshot: None, from_start: true })?;
    let refused = parts.symbols.complete(wanted(&parts.profiles), engine, progress);
    parts.symbols.write(&parts.directory)?;
    let running = parts.running();
    if let Some(metadata) = &mut parts.metadata {
        metadata.sealed = true;
        metadata.sealed_realtime_ns = now_ns();
        metadata.running_when_sealed = running;
        metadata.write(&parts.directory)?;
    }
    let mut copies = snapshot::copies(&parts.directory);
    for (file, profile) in parts.profiles.iter().filter(|(file, p)| parts.is_over(file, p)) {
        // On a full disk it stays as it is.
        if live::finish(file).is_ok() {
            let _ = pack::pack(file, profile.header.file_end);
        }
        for copy in copies.remove(&file_names::image_name(file)).unwrap_or_default() {
            let _ = reader::read_header(&copy).map(|head| pack::pack(&copy, head.file_end));
        }
    }
    let (addresses, named) = parts.symbols.counts();
    let notes = refused.into_iter().map(|(_, line)| line).collect();
    Ok(Sealed { addresses, named, notes })
}

/// The names of all addresses of a recording, those stored with it and others looked up; and a line
/// for each module without names.
pub(crate) fn names(
    path: &Path,
    engine: &dyn Engine,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(Symbols, Vec<String>), Error> {
    let mut parts = Parts::read(path, Choice { snapshot: None, from_start: true })?;
    let refused = parts.symbols.complete(wanted(&parts.profiles), engine, progress);
    Ok((parts.symbols, refused.into_iter().map(|(_, line)| line).collect()))
}
