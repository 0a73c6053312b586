//! A monitor that prints the counters of a part of the run, and the memory that was allocated in it
//! and not freed in it.
//!
//! `heaptide run --monitor ./libwindow.so -- PROGRAM`, where the program marks the part itself,
//! once or repeatedly: it calls `heaptide_window_monitor_begin()` and
//! `heaptide_window_monitor_end()` if they are defined. For a program that cannot be changed,
//! counts of allocations mark the part: `--monitor ./libwindow.so:from=1000,to=2000`.

use heaptide::{Monitor, OptionsError, Report};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The open window. There is only one, because the functions that mark it have no arguments.
static OPEN: Mutex<Option<Figures>> = Mutex::new(None);
/// Whether a window is open, readable without the lock.
static IS_OPEN: AtomicBool = AtomicBool::new(false);
/// Whether marks count, which is so if the monitor was created without from and to.
static TAKES_MARKS: AtomicBool = AtomicBool::new(false);
/// The number of windows that ended.
static ENDED: AtomicU64 = AtomicU64::new(0);
/// The output for finished windows.
static REPORT: OnceLock<Report> = OnceLock::new();

#[derive(Default)]
struct Figures {
    requested: u64,
    allocations: u64,
    frees: u64,
    /// Frees of blocks that were allocated in the window.
    own_frees: u64,
    /// Usable bytes since its start.
    added: i64,
    max_added: i64,
    /// Blocks of the window that are still live, with their bytes.
    kept: HashMap<usize, usize>,
}

fn open() -> MutexGuard<'static, Option<Figures>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn begin(open: &mut Option<Figures>) {
    open.get_or_insert_default();
    IS_OPEN.store(true, Relaxed);
}

fn end(open: &mut Option<Figures>) {
    IS_OPEN.store(false, Relaxed);
    let Some(figures) = open.take() else { return };
    let Figures { requested, allocations, frees, own_frees, added, max_added, kept } = figures;
    let number = ENDED.fetch_add(1, Relaxed) + 1;
    let (blocks, bytes) = (kept.len(), kept.values().sum::<usize>());
    REPORT.get_or_init(Report::new).say(&format!(
        "window {number}: requested {requested} added {added} peak {max_added} \
         allocations {allocations} frees {frees} of its own {own_frees} \
         not yet freed {blocks} blocks {bytes} bytes"
    ));
}

heaptide::export! {
    /// Called by the program at the start of the window. Recording is paused while it prints.
    fn heaptide_window_monitor_begin() {
        if TAKES_MARKS.load(Relaxed) {
            let _paused = heaptide::pause();
            begin(&mut open());
        }
    }

    /// Called by the program at the end of the window.
    fn heaptide_window_monitor_end() {
        if TAKES_MARKS.load(Relaxed) {
            let _paused = heaptide::pause();
            end(&mut open());
        }
    }
}

struct Window {
    /// The window as counts of allocations; `None` if the program marks it.
    range: Option<(u64, u64)>,
    allocations: AtomicU64,
}

impl Monitor for Window {
    fn allocated(&self, block: *mut u8, requested: usize, usable: usize) {
        let number = self.range.map(|_| self.allocations.fetch_add(1, Relaxed) + 1);
        let is = |at: fn((u64, u64)) -> u64| number.is_some() && number == self.range.map(at);
        let (first, last) = (is(|range| range.0), is(|range| range.1));
        if !first && !IS_OPEN.load(Relaxed) {
            return;
        }
        let mut open = open();
        if first {
            begin(&mut open);
        }
        let within = number.is_none_or(|number| self.range.is_some_and(|(_, to)| number <= to));
        if let Some(figures) = open.as_mut().filter(|_| within) {
            figures.requested += requested as u64;
            figures.allocations += 1;
            figures.added += usable as i64;
            figures.max_added = figures.max_added.max(figures.added);
            figures.kept.insert(block.addr(), usable);
        }
        if last {
            end(&mut open);
        }
    }

    fn freed(&self, block: *mut u8, usable: usize) {
        if !IS_OPEN.load(Relaxed) {
            return;
        }
        if let Some(figures) = open().as_mut() {
            figures.frees += 1;
            figures.added -= usable as i64;
            figures.own_frees += u64::from(figures.kept.remove(&block.addr()).is_some());
        }
    }
}

impl Drop for Window {
    /// A window that is still open ends with the program.
    fn drop(&mut self) {
        TAKES_MARKS.store(false, Relaxed);
        end(&mut open());
    }
}

fn create(options: &str) -> Result<Window, OptionsError> {
    let (mut from, mut to) = (1, u64::MAX);
    for (name, value) in heaptide::options(options) {
        match (name, heaptide::option_number(value)) {
            ("from", Some(number)) => from = number,
            ("to", Some(number)) => to = number,
            _ => return Err(OptionsError::new(format!("`{name}={value}`: expected from=N,to=M"))),
        }
    }
    if from == 0 || from > to {
        return Err(OptionsError::new("options: expected from=N,to=M with 0 < N <= M"));
    }
    TAKES_MARKS.store(options.is_empty(), Relaxed);
    REPORT.get_or_init(Report::new);
    let range = (!options.is_empty()).then_some((from, to));
    Ok(Window { range, allocations: AtomicU64::new(0) })
}

heaptide::plugin!(create);
