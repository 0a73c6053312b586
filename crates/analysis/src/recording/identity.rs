//! Groups images by process. Process ids are reused, and every pid namespace has its own.

use heaptide_format as format;
use heaptide_format::FileHeader;
use rustc_hash::FxHashMap;

use crate::files::file_names::Image;

/// An image of a recording, with its header if that can be read.
pub(crate) struct Begun {
    pub(crate) image: Image,
    /// `None` if the profile cannot be read.
    pub(crate) header: Option<FileHeader>,
}

/// The position of an image among those of its process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// Number of the process, the same for all its images.
    pub(crate) process: usize,
    /// Whether the process is the first one of the recording with this pid.
    pub(crate) is_first_of_pid: bool,
    /// Number of earlier images of the process.
    pub(crate) execs: u32,
    /// Whether there is a later image of the process.
    pub(crate) is_followed: bool,
    /// Start of the next image of the process, if its header can be read.
    pub(crate) next: Option<Start>,
}

/// The start of an image on both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Start {
    pub(crate) monotonic_ns: u64,
    pub(crate) realtime_ns: u64,
}

impl Start {
    /// Returns the start of an image.
    pub(crate) fn of(header: &FileHeader) -> Start {
        let &FileHeader { start_monotonic_ns, start_realtime_ns, .. } = header;
        Start { monotonic_ns: start_monotonic_ns, realtime_ns: start_realtime_ns }
    }
}

/// Returns the place of each image.
pub(crate) fn places(mut images: Vec<Begun>) -> FxHashMap<Image, Place> {
    images.sort_by_key(|begun| begun.image);
    let mut places = FxHashMap::default();
    let mut processes = 0;
    for of_pid in images.chunk_by(|a, b| (a.image.run, a.image.pid) == (b.image.run, b.image.pid)) {
        let first = processes;
        let mut members: Vec<Vec<&Begun>> = Vec::new();
        for begun in of_pid {
            let own =
                members.iter_mut().rev().find(|own| own.last().is_some_and(|e| same(e, begun)));
            match own {
                Some(own) => own.push(begun),
                None => members.push(vec![begun]),
            }
        }
        for own in &members {
            for (index, begun) in own.iter().enumerate() {
                let next = own.get(index + 1);
                let place = Place {
                    process: processes,
                    is_first_of_pid: processes == first,
                    execs: index as u32,
                    is_followed: next.is_some(),
                    next: next.and_then(|next| next.header.as_ref()).map(Start::of),
                };
                places.insert(begun.image, place);
            }
            processes += 1;
        }
    }
    places
}

/// Returns whether two images belong to the same process. If the profiles do not identify the
/// process, images with the same pid do, unless the earlier one exited.
fn same(earlier: &Begun, later: &Begun) -> bool {
    let known = |begun: &Begun| begun.header.as_ref().and_then(identity);
    match (known(earlier), known(later)) {
        (Some(earlier), Some(later)) => earlier == later,
        _ => earlier.header.is_none_or(|h| h.end_kind != format::End::Exited as u32),
    }
}

/// Returns what identifies a process in addition to its pid; `None` for older recordings.
fn identity(header: &FileHeader) -> Option<(u64, u64)> {
    let &FileHeader { process_start_ticks, pid_namespace, .. } = header;
    (process_start_ticks != 0).then_some((pid_namespace, process_start_ticks))
}
