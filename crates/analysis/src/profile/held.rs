//! What a Python program held when its interpreter began to end, which then frees nearly all of it:
//! the copy of the profile that the recorder wrote at that time.
//!
//! Ids are positions in the file and records are never moved, so a site of the copy is found in the
//! profile by its id.

use std::path::{Path, PathBuf};

use heaptide_format as format;
use heaptide_format::HELD_SUFFIX;

use super::parsed::{Held, Profile};
use super::reader;
use crate::error::Error;
use crate::files::file_names;
use crate::model::DamagedFile;

/// Stores in the profile of a process that has ended what was live when Python began to end, if it
/// has such a copy. Estimates are left as they are. Returns the copy if it exists and cannot be
/// read.
pub(crate) fn apply(file: &Path, profile: &mut Profile) -> Option<DamagedFile> {
    let is_exact = matches!(profile.mode, format::Mode::Stacks | format::Mode::Scopes);
    let copy = file_of(file).filter(|_| is_exact)?;
    let held = match reader::read(&copy) {
        Ok(held) => held,
        Err(error) if error.is_missing() => return None,
        Err(error) => return Some(damaged(copy, &error)),
    };
    let same = |h: &format::FileHeader| (h.pid, h.image, h.start_realtime_ns);
    if same(&held.header) == same(&profile.header) {
        let sites = held.sites.into_iter().map(|site| (site.id, site)).collect();
        profile.held = Some(Box::new(Held { time_ns: held.header.request_time_ns, sites }));
    }
    None
}

fn damaged(path: PathBuf, error: &Error) -> DamagedFile {
    DamagedFile { path, reason: error.to_string() }
}

/// Returns the path of the copy for a profile; `None` for a snapshot.
fn file_of(file: &Path) -> Option<PathBuf> {
    let name = file_names::image_name(file);
    let path = file.with_file_name(format!("{name}{HELD_SUFFIX}"));
    file_names::snapshot(file).is_none().then_some(path)
}
