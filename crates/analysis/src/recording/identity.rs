//! Which images are of one process: process ids are used again, and every pid namespace has its
//! own.

use heaptide_format as format;
use heaptide_format::FileHeader;
use rustc_hash::FxHashMap;

use crate::files::file_names::Image;

/// An image of a recording, as far as its head can be read.
pub(crate) struct Begun {
    pub(crate) image: Image,
    /// None if the profile cannot be read.
    pub(crate) header: Option<FileHeader>,
}

/// An image among those of its process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// The same for all images of a process, and for no other.
    pub(crate) process: usize,
    /// Whether no process of the recording had this pid before.
    pub(crate) is_first_of_pid: bool,
    /// Images of the process before this one.
    pub(crate) execs: u32,
    /// Whether there is a later image of the process.
    pub(crate) is_followed: bool,
    /// When the next image of the process began, on its monotonic and wall clock, if it can be
    /// read.
    pub(crate) next: Option<Start>,
}

/// When an image began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Start {
    pub(crate) monotonic_ns: u64,
    pub(crate) realtime_ns: u64,
}

impl Start {
    /// When an image began.
    pub(crate) fn of(header: &FileHeader) -> Start {
        let &FileHeader { start_monotonic_ns, start_realtime_ns, .. } = header;
        Start { monotonic_ns: start_monotonic_ns, realtime_ns: start_realtime_ns }
    }
}

/// Finds the place of each image.
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

/// Whether an image is a later one of the same process. Where that is not recorded, images of one
/// pid are taken for those of one process, unless the earlier one exited.
fn same(earlier: &Begun, later: &Begun) -> bool {
    let known = |begun: &Begun| begun.header.as_ref().and_then(identity);
    match (known(earlier), known(later)) {
        (Some(earlier), Some(later)) => earlier == later,
        _ => earlier.header.is_none_or(|h| h.end_kind != format::End::Exited as u32),
    }
}

/// What identifies a process beside its pid; none of older recordings.
fn identity(header: &FileHeader) -> Option<(u64, u64)> {
    let &FileHeader { process_start_ticks, pid_namespace, .. } = header;
    (process_start_ticks != 0).then_some((pid_namespace, process_start_ticks))
}
