//! Profiles of processes for pprof and OTLP. Concurrent requests share a profile.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use heaptide_analysis::model::{Measure, Measures, Process, SiteRow};
use heaptide_analysis::recording::live::{Counts, Observer};
use heaptide_analysis::recording::live_tables::LiveTables;
use heaptide_http::Refusal;
use heaptide_http::cache::{Cache, Room, Weight};
use heaptide_render::export::otlp::Resource;
use heaptide_render::export::otlp_profiles::{self, Span};
use heaptide_render::export::pprof::{Columns, Time, Writer};
use heaptide_render::export::stacks;
use rustc_hash::FxHashMap;
use tokio::sync::Semaphore;

use crate::collector::Listed;
use crate::own::processor_time;
use crate::watch::Image;

/// Capacity of the cache of profiles.
const PROFILES: Room = Room { most: 8, least: 2, bytes: 64 << 20 };
/// Minimum age of a profile before it is renewed, as a multiple of its processor time: at most 2 %
/// of a core for each profile that is requested continuously.
const REST: u32 = 50;
/// Lower bound of this age.
const REST_MIN: Duration = Duration::from_millis(500);
/// Upper bound of this age.
const REST_MAX: Duration = Duration::from_secs(60);
/// Maximum number of processes whose looked-up names are cached.
const READERS_MAX: usize = 16;
/// Maximum size of a profile as text in bytes.
const TEXT_MAX: usize = 8 << 20;
/// Maximum number of processes in a profile; the largest are kept.
const PROCESSES_MAX: usize = 64;
/// Maximum number of concurrent differences.
const DIFFERENCES_MAX: usize = 8;
/// Maximum duration of a difference.
pub(crate) const SECONDS_MAX: u64 = 600;

/// Applies the selection of the command line to a process.
pub type Prepare = Arc<dyn Fn(&mut Process) + Send + Sync>;

/// A kind of profile; both kinds have the same columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    /// Live memory is the default column.
    Heap,
    /// Allocations are the default column.
    Allocations,
}

impl Which {
    const fn measure(self) -> Measure {
        match self {
            Which::Heap => Measure::LiveBytes,
            Which::Allocations => Measure::UsableBytes,
        }
    }
}

/// The format of a profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// The protocol buffers of pprof.
    Binary,
    /// Readable text.
    Text,
}

/// The key of a cached profile.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Key {
    which: Which,
    form: Form,
    /// Numbers of the images.
    images: Vec<u64>,
}

/// A profile in the form that is sent.
pub(crate) struct Profile {
    pub(crate) bytes: Bytes,
    made_at: Instant,
    cost: Duration,
}

impl Profile {
    fn is_fresh(&self) -> bool {
        self.made_at.elapsed() < (self.cost * REST).clamp(REST_MIN, REST_MAX)
    }
}

impl Weight for Profile {
    fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// Creates and caches profiles.
pub(crate) struct Profiles {
    maker: Arc<Maker>,
    cache: Cache<Key, Profile>,
    differences: Semaphore,
}

struct Maker {
    prepare: Prepare,
    /// Locked while a profile is created, because the tables of large processes need much memory.
    readers: Mutex<Readers>,
}

/// Readers with their cached names, least recently used first.
#[derive(Default)]
struct Readers {
    /// By number of the image.
    readers: Vec<(u64, LiveTables)>,
}

/// The counters of a process at an earlier time, by site id.
#[derive(Default)]
struct Earlier {
    counts: FxHashMap<u32, Counts>,
}

/// The counters of processes when profiles were last sent by OTLP.
#[derive(Default)]
pub(crate) struct Allocated {
    /// By number of the image, with the time in nanoseconds since 1970-01-01 UTC.
    known: FxHashMap<u64, (Arc<Earlier>, u64)>,
    /// The counters of profiles that have been created but not accepted yet.
    next: FxHashMap<u64, (Arc<Earlier>, u64)>,
}

impl Allocated {
    /// Returns the counters to compare with next, depending on whether the collector accepted the
    /// profiles.
    pub(crate) fn after(self, was_accepted: bool) -> Allocated {
        let known = if was_accepted { self.next } else { self.known };
        Allocated { known, next: FxHashMap::default() }
    }

    /// Keeps the counters of running images without a new profile.
    fn keep(&mut self, running: impl Iterator<Item = u64>) {
        for number in running {
            if let Some(known) = self.known.get(&number) {
                self.next.entry(number).or_insert_with(|| known.clone());
            }
        }
    }
}

impl Profiles {
    /// Creates an empty cache.
    pub(crate) fn new(prepare: Prepare) -> Profiles {
        Profiles {
            maker: Arc::new(Maker { prepare, readers: Mutex::default() }),
            cache: Cache::new(PROFILES),
            differences: Semaphore::new(DIFFERENCES_MAX),
        }
    }

    /// Returns a profile of processes, at most a short time old.
    ///
    /// Errors: a process cannot be read.
    pub(crate) async fn now(
        &self,
        (which, form): (Which, Form),
        processes: &[Listed],
    ) -> Result<Arc<Profile>, Refusal> {
        let wanted = wanted(processes);
        let images = wanted.iter().map(|image| image.number).collect();
        let maker = self.maker.clone();
        let make = move || match form {
            Form::Binary => maker.make(which, &wanted, None, Duration::ZERO),
            Form::Text => maker.make_text(which, &wanted),
        };
        let key = Key { which, form, images };
        self.cache.get(key, Profile::is_fresh, make).await
    }

    /// Returns a profile of the allocations and frees during a time from now on.
    ///
    /// Errors: a process cannot be read, or too many differences are in progress.
    pub(crate) async fn difference(
        &self,
        which: Which,
        processes: &[Listed],
        time: Duration,
    ) -> Result<Profile, Refusal> {
        let Ok(_place) = self.differences.try_acquire() else {
            return Err(Refusal::busy(format_args!(
                "{DIFFERENCES_MAX} differences are being computed; try again later"
            )));
        };
        let wanted = wanted(processes);
        let begin = Instant::now();
        let files: Vec<PathBuf> = wanted.iter().map(|image| image.running.file.clone()).collect();
        // Processes that end meanwhile are omitted.
        let read = move || Ok(files.iter().map(|file| Earlier::read(file).ok()).collect());
        let earlier: Vec<Option<Earlier>> = blocking(read).await?;
        tokio::time::sleep(time).await;
        let maker = self.maker.clone();
        blocking(move || maker.make(which, &wanted, Some(&earlier), begin.elapsed())).await
    }

    /// Returns profiles of processes for OTLP: live memory, and allocations since the last profiles
    /// that the collector accepted. Each process has a resource. Processes that cannot be read are
    /// omitted.
    pub(crate) async fn otlp(
        &self,
        processes: &[Listed],
        resources: Vec<Resource>,
        mut allocated: Allocated,
        version: &'static str,
    ) -> Result<(Vec<u8>, Allocated), Refusal> {
        let images: Vec<Option<Arc<Image>>> =
            processes.iter().map(|listed| listed.image.clone()).collect();
        let maker = self.maker.clone();
        blocking(move || {
            let mut all = otlp_profiles::Profiles::new(version);
            for (image, resource) in images.iter().zip(&resources).take(PROCESSES_MAX) {
                if let Some(image) = image {
                    // The process has ended, or the state of the server contains the reason.
                    let _ = maker.add_otlp(&mut all, &mut allocated, image, resource);
                }
            }
            allocated.keep(images.iter().flatten().map(|image| image.number));
            Ok((all.finish(), allocated))
        })
        .await
    }
}

/// Returns the images of the largest processes, in an order that does not depend on their sizes.
fn wanted(processes: &[Listed]) -> Vec<Arc<Image>> {
    let images = processes.iter().filter_map(|listed| listed.image.clone());
    let mut wanted: Vec<Arc<Image>> = images.take(PROCESSES_MAX).collect();
    wanted.sort_by_key(|image| image.number);
    wanted
}

async fn blocking<T: Send + 'static>(
    make: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(make).await.map_err(Refusal::failed)?
}

impl Earlier {
    fn read(file: &Path) -> Result<Earlier, Refusal> {
        let mut observer = Observer::open(file)?;
        let counts = observer.look()?.map(|look| look.counts).unwrap_or_default();
        let used = observer.ids().zip(counts).filter(|(_, counts)| counts.allocations > 0);
        Ok(Earlier { counts: used.collect() })
    }

    /// Returns these counters by row of tables that were read later.
    fn by_row(&self, process: &Process) -> Vec<Measures> {
        let mut rows = vec![Counts::default(); process.tables.sites.len()];
        let site_rows = process.time.site_rows.as_ref();
        for (&id, counts) in &self.counts {
            if let Some(SiteRow::At(row)) = site_rows.map(|rows| rows.row(id)) {
                rows[row as usize].add(counts);
            }
        }
        let measures = |counts: Counts| Measures {
            allocations: counts.allocations,
            usable_bytes: counts.allocated_bytes,
            live_blocks: counts.live_blocks,
            live_bytes: counts.live_bytes,
            ..Measures::default()
        };
        rows.into_iter().map(measures).collect()
    }
}

impl Maker {
    fn prepared(&self, mut process: Process) -> Process {
        (self.prepare)(&mut process);
        process
    }

    fn make(
        &self,
        which: Which,
        wanted: &[Arc<Image>],
        earlier: Option<&[Option<Earlier>]>,
        time: Duration,
    ) -> Result<Profile, Refusal> {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let (made_at, begin) = (Instant::now(), processor_time());
        let columns = if earlier.is_some() { Columns::Differences } else { Columns::All };
        let duration_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // Estimates of sampled processes are already scaled, so the period is 1.
        let time = Time { time_ns: now_ns(), duration_ns, period_bytes: 1 };
        let mut bytes = Vec::new();
        let failed = |error: io::Error| Refusal::failed(error);
        let mut writer = Writer::new(&mut bytes, columns, which.measure(), time).map_err(failed)?;
        let mut failure = None;
        for (index, image) in wanted.iter().enumerate() {
            let before = match earlier.map(|all| &all[index]) {
                Some(None) => continue,
                Some(Some(earlier)) => Some(earlier),
                None => None,
            };
            let process = match readers.read(image) {
                Ok(process) => self.prepared(process),
                Err(refusal) => {
                    failure = Some(refusal);
                    continue;
                }
            };
            let before = before.map(|earlier| earlier.by_row(&process));
            let pid = (wanted.len() > 1).then_some(image.running.pid);
            writer.add(&process, before.as_deref(), pid).map_err(failed)?;
        }
        if let Some(failure) = failure.filter(|_| wanted.len() == 1) {
            return Err(failure);
        }
        writer.finish().map_err(failed)?;
        let cost = processor_time().saturating_sub(begin);
        Ok(Profile { bytes: bytes.into(), made_at, cost })
    }

    /// Returns the largest stacks in the format of `heaptide export --format stacks`.
    fn make_text(&self, which: Which, wanted: &[Arc<Image>]) -> Result<Profile, Refusal> {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let (made_at, begin) = (Instant::now(), processor_time());
        let mut text = Bounded { bytes: Vec::new() };
        for image in wanted {
            let process = self.prepared(readers.read(image)?);
            if stacks::write(&mut text, &process, which.measure(), None).is_err() {
                text.bytes.extend_from_slice(b"\n# truncated here: `heaptide export` writes all\n");
                break;
            }
        }
        let cost = processor_time().saturating_sub(begin);
        Ok(Profile { bytes: text.bytes.into(), made_at, cost })
    }

    fn add_otlp(
        &self,
        all: &mut otlp_profiles::Profiles,
        allocated: &mut Allocated,
        image: &Image,
        resource: &Resource,
    ) -> Result<(), Refusal> {
        let (file, start_ns) = (&*image.running.file, image.summary.start_realtime_ns);
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        // Counters are read before the tables, which may be newer; the excess appears in the next
        // profiles.
        let (now, now_ns) = (Arc::new(Earlier::read(file)?), now_ns());
        let process = self.prepared(readers.read(image)?);
        let mut rows = now.by_row(&process);
        let from_ns = match allocated.known.get(&image.number) {
            None => start_ns,
            Some((earlier, time_ns)) => {
                for (row, before) in rows.iter_mut().zip(earlier.by_row(&process)) {
                    row.subtract_counters(&before);
                }
                *time_ns
            }
        };
        all.add(&process, &rows, resource, Span { from_ns, to_ns: now_ns });
        allocated.next.insert(image.number, (now, now_ns));
        Ok(())
    }
}

/// Text up to [`TEXT_MAX`] bytes; writing more is an error.
struct Bounded {
    bytes: Vec<u8>,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > TEXT_MAX {
            return Err(io::Error::other("no room"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the nanoseconds since 1970-01-01 UTC.
pub(crate) fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

impl Readers {
    /// Reads the current tables of a process.
    fn read(&mut self, image: &Image) -> Result<Process, Refusal> {
        let (number, readers) = (image.number, &mut self.readers);
        let known = readers.iter().position(|(own, _)| *own == number);
        let mut reader = match known {
            Some(at) => readers.remove(at).1,
            None => LiveTables::new(&image.running.file),
        };
        let process = reader.read(&mut |_, _| {});
        readers.insert(0, (number, reader));
        readers.truncate(READERS_MAX);
        Ok(process?)
    }
}
