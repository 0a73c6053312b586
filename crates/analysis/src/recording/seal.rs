//! Seals recordings: stores names with a recording, and packs the profiles of finished processes.

use std::path::{Path, PathBuf};

use rustc_hash::FxHashSet;

use super::ending::now_ns;
use super::parts::{Parts, wanted};
use super::snapshot;
use crate::error::Error;
use crate::files::{draft, file_names};
use crate::profile::{pack, reader};
use crate::symbols::{Blazesym, Engine, Lookup, Sources, Symbols, Wanted};
use crate::trace::live;

/// The result of sealing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sealed {
    /// Distinct addresses of the recording that were looked up, now or before.
    pub addresses: usize,
    /// Number of addresses that have a name.
    pub named: usize,
    /// A line for each file that is missing or has changed.
    pub notes: Vec<String>,
    /// All modules, in order of path.
    pub modules: Vec<SealedModule>,
}

/// Number of named addresses in a module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SealedModule {
    /// The path of the module.
    pub path: PathBuf,
    /// Number of distinct addresses in the recording.
    pub addresses: usize,
    /// Number of addresses that have a name.
    pub named: usize,
}

/// Stores the names of all addresses with a recording, so that it can be read on another machine,
/// and packs the profiles of processes that have ended; if packing fails, a profile stays
/// unchanged. `progress` receives the number of addresses looked up and of all addresses.
///
/// Errors: the recording cannot be read or written.
///
/// ```
/// let show = &mut |done, total| println!("{done} of {total} addresses");
/// assert!(heaptide_analysis::seal("missing.heaptide".as_ref(), show).is_err());
/// ```
pub fn seal(directory: &Path, progress: &mut dyn FnMut(usize, usize)) -> Result<Sealed, Error> {
    let lookup = Lookup { engine: &Blazesym, sources: &Sources::default(), again: false };
    seal_with(directory, &lookup, progress)
}

/// Seals with names from other sources.
pub fn seal_with(
    directory: &Path,
    lookup: &Lookup<'_>,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Sealed, Error> {
    draft::sweep(directory);
    let over = Parts::read_headers(directory)?.over();
    let (mut parts, mut notes) = store_names(directory, lookup, progress)?;
    let over_now = parts.over();
    let over = if over_now.is_subset(&over) {
        over
    } else {
        // A process that ended meanwhile may have stored more since its profile was read.
        let (again, more) = store_names(directory, lookup, progress)?;
        parts = again;
        notes.extend(more);
        over_now
    };
    let mut told = FxHashSet::default();
    notes.retain(|note| told.insert(note.clone()));
    let running = parts.profiles.iter().filter(|(file, _)| !over.contains(file));
    let running = running.map(|(file, _)| file_names::image_name(file)).collect();
    if let Some(metadata) = &mut parts.metadata {
        metadata.sealed = true;
        metadata.sealed_realtime_ns = now_ns();
        metadata.running_when_sealed = running;
        metadata.write(&parts.directory)?;
    }
    let mut copies = snapshot::copies(&parts.directory);
    for (file, profile) in parts.profiles.iter().filter(|(file, _)| over.contains(file)) {
        // If that fails, as on a full disk, the profile stays unpacked.
        if live::finish(file).is_ok() {
            let _ = pack::pack(file, profile.header.file_end);
        }
        for copy in copies.remove(&file_names::image_name(file)).unwrap_or_default() {
            let _ = reader::read_header(&copy).map(|head| pack::pack(&copy, head.file_end));
        }
    }
    let modules = modules(&parts);
    let addresses = modules.iter().map(|module| module.addresses).sum();
    let named = modules.iter().map(|module| module.named).sum();
    Ok(Sealed { addresses, named, notes, modules })
}

/// Reads the parts of a recording that are needed to look up names, and stores the names with it.
/// Returns these parts, and a line for each file that is missing or has changed.
fn store_names(
    directory: &Path,
    lookup: &Lookup<'_>,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(Parts, Vec<String>), Error> {
    let mut parts = Parts::read_names(directory)?;
    let refused = parts.look_up(lookup, progress);
    parts.look_up_jit(lookup.sources);
    parts.symbols.write(&parts.directory)?;
    Ok((parts, refused.into_iter().map(|(_, line)| line).collect()))
}

fn modules(parts: &Parts) -> Vec<SealedModule> {
    let count = |want: Wanted| {
        let known = parts.symbols.module(&want.module);
        let is_named =
            |&&address: &&u64| known.and_then(|known| Some(known.get(address)?.next().is_some()));
        let named = want.addresses.iter().filter(|a| is_named(a) == Some(true)).count();
        SealedModule { path: want.module.path, addresses: want.addresses.len(), named }
    };
    let all = wanted(&parts.profiles).into_iter().filter(|want| !want.addresses.is_empty());
    all.map(count).collect()
}

/// Returns the names of all addresses of a recording, stored or looked up, and a line for each
/// module without names.
pub(crate) fn names(
    path: &Path,
    engine: &dyn Engine,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(Symbols, Vec<String>), Error> {
    let mut parts = Parts::read_names(path)?;
    let lookup = Lookup { engine, sources: &Sources::default(), again: false };
    let refused = parts.look_up(&lookup, progress);
    parts.look_up_jit(lookup.sources);
    Ok((parts.symbols, refused.into_iter().map(|(_, line)| line).collect()))
}
