//! Size of a trace on disk, and whether it is complete.

use std::fs;

use heaptide_format::TRACE_MOVED;

use super::file::{TraceFile, path_of};
use crate::model::Process;

/// The size and limits of the trace of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OnDisk {
    /// Bytes of its file, and of its extents in the profile.
    pub bytes: u64,
    /// When it ended for lack of room, nanoseconds from the start of the process; `None` if it did
    /// not.
    pub stopped_ns: Option<u64>,
    /// The size limit for traces of the recording, in bytes; `None` if there was none.
    pub limit_bytes: Option<u64>,
    /// Its beginning, nanoseconds from the start of the process, if its oldest part was dropped.
    pub begin_ns: Option<u64>,
    /// Size of the dropped part in bytes.
    pub dropped_bytes: u64,
}

impl Process {
    /// Returns the current size of its trace; `None` if it has none.
    ///
    /// ```
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # use heaptide_analysis::model::Process;
    /// # let process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// assert_eq!(process.trace_on_disk(), None); // recorded with --mode stacks
    /// ```
    pub fn trace_on_disk(&self) -> Option<OnDisk> {
        let of_each = self.time.traces.iter().map(|trace| {
            let here = trace.extents.iter().filter(|extent| extent.start.state != TRACE_MOVED);
            let here = here.fold(0u64, |sum, extent| sum.saturating_add(extent.committed));
            let moved = fs::metadata(path_of(&trace.file)).map_or(0, |file| file.len());
            let stopped_ns = trace.stopped_ns.map(|ns| ns.saturating_add(trace.after_ns));
            let cut = TraceFile::of(&trace.file).ok().flatten().map(|file| file.cut());
            let cut = cut.filter(|cut| cut.chunks > 0);
            OnDisk {
                bytes: here.saturating_add(moved),
                stopped_ns,
                limit_bytes: trace.limit_bytes,
                begin_ns: cut.map(|cut| cut.time_ns.saturating_add(trace.after_ns)),
                dropped_bytes: cut.map_or(0, |cut| cut.bytes),
            }
        });
        of_each.reduce(|all, one| OnDisk {
            bytes: all.bytes.saturating_add(one.bytes),
            stopped_ns: all.stopped_ns.into_iter().chain(one.stopped_ns).min(),
            limit_bytes: all.limit_bytes.or(one.limit_bytes),
            begin_ns: all.begin_ns.into_iter().chain(one.begin_ns).min(),
            dropped_bytes: all.dropped_bytes.saturating_add(one.dropped_bytes),
        })
    }
}
