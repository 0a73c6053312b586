//! A monitor that writes a line of counters at a fixed interval, to one file per process.
//!
//! `heaptide run --monitor ./libperiodic.so:interval=100,file=heap- -- PROGRAM` writes
//! `heap-PID.csv`; without options it writes `periodic_alloc_PID.csv` every second. It starts no
//! thread: the first call after the interval writes a line, since without calls nothing changes. A
//! forked child continues in a file of its own. A program that replaces itself (exec) keeps its
//! pid; the file of the next image is `heap-PID-1.csv`, and so on.

use heaptide::{Monitor, OptionsError};
use std::fs::File;
use std::io::Write;
use std::process;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

const HEADER: &str = "timestamp, total-requested, max-actual, present-actual, max-single, \
                      nAllocs, nDeallocs";
/// More images than any process is expected to have.
const MAX_IMAGES: u32 = 1000;

struct Periodic {
    start: Instant,
    interval: u64,
    prefix: String,
    /// The time of the next line, in milliseconds since the start.
    due: AtomicU64,
    /// The process that is writing a line; 0: none. In a forked child it may be the parent.
    writer: AtomicU32,
    /// The file and the process that it belongs to.
    file: Mutex<Option<(u32, File)>>,
    allocations: AtomicU64,
    frees: AtomicU64,
    requested: AtomicU64,
    used: AtomicI64,
    max_used: AtomicI64,
    largest: AtomicU64,
}

impl Periodic {
    fn new(interval: u64, prefix: &str) -> Periodic {
        let zero = || AtomicU64::new(0);
        Periodic {
            start: Instant::now(),
            interval,
            prefix: prefix.to_owned(),
            due: AtomicU64::new(interval),
            writer: AtomicU32::new(0),
            file: Mutex::new(None),
            allocations: zero(),
            frees: zero(),
            requested: zero(),
            used: AtomicI64::new(0),
            max_used: AtomicI64::new(0),
            largest: zero(),
        }
    }

    /// Writes a line if it is time. One thread writes; the others continue.
    fn tick(&self) {
        let now = self.start.elapsed().as_millis() as u64;
        if now < self.due.load(Relaxed) {
            return;
        }
        let (own, writer) = (process::id(), self.writer.load(Relaxed));
        if writer != own && self.writer.compare_exchange(writer, own, Relaxed, Relaxed).is_ok() {
            self.due.store((now / self.interval + 1) * self.interval, Relaxed);
            self.write(now, own);
            self.writer.store(0, Relaxed);
        }
    }

    /// Appends a line. A file that cannot be created or written gets no line.
    fn write(&self, now: u64, own: u32) {
        // Only the writer locks it. In a forked child it may stay locked forever.
        let Ok(mut file) = self.file.try_lock() else { return };
        if file.as_ref().is_none_or(|(process, _)| *process != own) {
            let Some(mut new) = self.create_file(own) else { return };
            let _ = writeln!(new, "{HEADER}");
            *file = Some((own, new));
        }
        let (requested, largest) = (self.requested.load(Relaxed), self.largest.load(Relaxed));
        let (max_used, used) = (self.max_used.load(Relaxed), self.used.load(Relaxed));
        let (allocations, frees) = (self.allocations.load(Relaxed), self.frees.load(Relaxed));
        let line =
            format!("{now}, {requested}, {max_used}, {used}, {largest}, {allocations}, {frees}\n");
        if let Some((_, file)) = &mut *file {
            // Writes the line with one call, so that a killed program leaves whole lines.
            let _ = file.write_all(line.as_bytes());
        }
    }
}

impl Periodic {
    /// Creates the file of this image.
    fn create_file(&self, own: u32) -> Option<File> {
        let name = |image| match image {
            0 => format!("{}{own}.csv", self.prefix),
            _ => format!("{}{own}-{image}.csv", self.prefix),
        };
        (0..MAX_IMAGES).find_map(|image| File::create_new(name(image)).ok())
    }
}

impl Monitor for Periodic {
    fn allocated(&self, _block: *mut u8, requested: usize, usable: usize) {
        self.allocations.fetch_add(1, Relaxed);
        self.requested.fetch_add(requested as u64, Relaxed);
        self.largest.fetch_max(requested as u64, Relaxed);
        let used = self.used.fetch_add(usable as i64, Relaxed) + usable as i64;
        self.max_used.fetch_max(used, Relaxed);
        self.tick();
    }

    fn freed(&self, _block: *mut u8, usable: usize) {
        self.frees.fetch_add(1, Relaxed);
        self.used.fetch_sub(usable as i64, Relaxed);
        self.tick();
    }
}

impl Drop for Periodic {
    /// The last line holds the final counters.
    fn drop(&mut self) {
        self.write(self.start.elapsed().as_millis() as u64, process::id());
    }
}

fn create(options: &str) -> Result<Periodic, OptionsError> {
    let (mut interval, mut prefix) = (1000, "periodic_alloc_");
    for (name, value) in heaptide::options(options) {
        match (name, heaptide::option_number(value)) {
            ("interval", Some(milliseconds)) if milliseconds > 0 => interval = milliseconds,
            ("file", _) => prefix = value,
            _ => {
                let expected = "expected interval=MILLISECONDS,file=PREFIX";
                return Err(OptionsError::new(format!("`{name}={value}`: {expected}")));
            }
        }
    }
    Ok(Periodic::new(interval, prefix))
}

heaptide::plugin!(create);
