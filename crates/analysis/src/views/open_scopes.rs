//! Open scopes at peak usage, and blocks freed in them afterwards, computed from a trace in one
//! pass over its events.

use rustc_hash::FxHashMap;

use crate::error::Error;
use crate::model::{Process, ScopeId};
use crate::trace::{Event, Operation};

/// The scopes of a process at peak usage.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OpenScopes {
    /// Time of peak usage.
    pub peak_ns: u64,
    /// By scope path: number of threads in it or in a nested scope.
    pub threads: Vec<u64>,
    /// By scope path: when a thread had last left it before the peak; `None` if no thread had.
    pub left_ns: Vec<Option<u64>>,
    /// Usable bytes of blocks live at peak, by site and by the scope in which they were freed
    /// later.
    pub freed: FxHashMap<(u32, ScopeId), u64>,
}

impl OpenScopes {
    /// Replays the trace of a process.
    ///
    /// Errors: the same as those of [`Process::replay`].
    ///
    /// ```
    /// use heaptide_analysis::views::open_scopes::OpenScopes;
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # use heaptide_analysis::model::Process;
    /// # let process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// assert!(OpenScopes::at_peak(&process).is_err()); // it has no trace
    /// ```
    pub fn at_peak(process: &Process) -> Result<OpenScopes, Error> {
        let mut replay = process.replay()?;
        let mut pass = Pass::new(process.tables.scopes.len());
        let mut batch = Vec::new();
        while replay.fill(&mut batch) {
            batch.iter().for_each(|event| pass.event(event));
        }
        Ok(pass.finish())
    }
}

/// The state of a scope path.
#[derive(Clone, Copy, Default)]
struct State {
    threads: u64,
    left_ns: Option<u64>,
}

/// The current state of a path, and its state at the highest peak so far.
#[derive(Clone, Copy, Default)]
struct Path {
    now: State,
    at_peak: State,
    /// Number of the peak for which `at_peak` is valid; for a later peak use `now`.
    peak: u64,
}

/// The pass over the events. New peaks are frequent and changes of scopes are rare, so a path is
/// copied at its first change after a peak.
struct Pass {
    paths: Vec<Path>,
    highest_bytes: u64,
    peak_ns: u64,
    peak_event: u64,
    /// Number of new peaks so far.
    peaks: u64,
    freed: FxHashMap<(u32, ScopeId), u64>,
}

impl Pass {
    fn new(paths: usize) -> Pass {
        Pass {
            paths: vec![Path::default(); paths],
            highest_bytes: 0,
            peak_ns: 0,
            peak_event: 0,
            peaks: 0,
            freed: FxHashMap::default(),
        }
    }

    fn event(&mut self, event: &Event) {
        match event.operation {
            Operation::Begin => self.change(event.scope, |state| state.threads += 1),
            Operation::End => self.change(event.scope, |state| {
                state.threads = state.threads.saturating_sub(1);
                state.left_ns = Some(event.time_ns);
            }),
            Operation::Free if event.allocated_number <= self.peak_event => {
                let bytes = self.freed.entry((event.site, event.scope)).or_default();
                *bytes = bytes.saturating_add(event.usable);
            }
            _ => {}
        }
        if event.live_bytes > self.highest_bytes {
            self.highest_bytes = event.live_bytes;
            self.peak_ns = event.time_ns;
            self.peak_event = event.number;
            self.peaks += 1;
            self.freed.clear();
        }
    }

    fn change(&mut self, scope: ScopeId, change: impl Fn(&mut State)) {
        if let Some(path) = self.paths.get_mut(scope.0 as usize) {
            if path.peak < self.peaks {
                path.at_peak = path.now;
                path.peak = self.peaks;
            }
            change(&mut path.now);
        }
    }

    fn finish(self) -> OpenScopes {
        let at_peak = |path: &Path| if path.peak < self.peaks { path.now } else { path.at_peak };
        let states: Vec<State> = self.paths.iter().map(at_peak).collect();
        OpenScopes {
            peak_ns: self.peak_ns,
            threads: states.iter().map(|state| state.threads).collect(),
            left_ns: states.iter().map(|state| state.left_ns).collect(),
            freed: self.freed,
        }
    }
}
