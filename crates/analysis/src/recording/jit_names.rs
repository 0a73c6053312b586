//! Names of code that JIT compilers generated in the processes of a recording.

use std::path::{Path, PathBuf};

use heaptide_format::PAGE;

use super::ending::seen_ns;
use crate::profile::parsed::{NO_MODULE, Profile};
use crate::symbols::Symbols;
use crate::symbols::jit::Image;

/// Looks up names that are not known yet, below `/` and the root directories that `roots` returns.
pub(super) fn complete(
    symbols: &mut Symbols,
    profiles: &[(PathBuf, Profile)],
    roots: &dyn Fn() -> Vec<PathBuf>,
) {
    for (file, profile) in profiles {
        let image = image(file, profile);
        let mut unknown = addresses(profile);
        if let Some(known) = symbols.module(&image.module()) {
            unknown.retain(|&address| known.get(address).is_none());
        }
        if unknown.is_empty() {
            continue;
        }
        let mapped = profile.mapped.iter().flat_map(|mapped| mapped.files.values());
        let mapped: Vec<_> = mapped.map(|path| PathBuf::from(&**path)).collect();
        let here = [PathBuf::from("/")];
        if let Some(code) = image.code(&here, &mapped).or_else(|| image.code(&roots(), &[])) {
            let start_ns = profile.header.start_monotonic_ns;
            symbols.complete_jit(image.module(), unknown, &code, start_ns);
        }
    }
}

fn image<'a>(file: &'a Path, profile: &Profile) -> Image<'a> {
    let header = &profile.header;
    let (pid, start_realtime_ns) = (header.pid, header.start_realtime_ns);
    let seen_realtime_ns = start_realtime_ns.saturating_add(seen_ns(profile));
    Image { pid, start_realtime_ns, seen_realtime_ns, profile: file }
}

/// Returns the addresses of frames without a module; numbers below a page are markers.
fn addresses(profile: &Profile) -> Vec<u64> {
    let places = profile.places.iter().filter(|place| place.module == NO_MODULE);
    places.map(|place| place.offset).filter(|&address| address >= PAGE).collect()
}
