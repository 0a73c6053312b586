//! The tables of a running process image, for repeated reading. Names that were looked up are kept,
//! and every site has a row, so that its counters can be followed.

use std::path::{Path, PathBuf};

use super::estimated_counts;
use super::parts::{Choice, Parts};
use crate::error::Error;
use crate::model::{Process, SiteRow};
use crate::profile::reader;
use crate::recording::live::Counts;
use crate::symbols::{Blazesym, Lookup, Sources, Symbols};
use crate::tables::process;
use crate::tables::weighted::Weighted;

/// Reads the tables of a process image repeatedly.
pub struct LiveTables {
    profile: PathBuf,
    /// Whether every site has a row and counters start at the start of the program.
    is_followed: bool,
    /// Whether names of addresses are looked up.
    has_names: bool,
    /// Names that were looked up; `None` before the first reading.
    symbols: Option<Symbols>,
}

impl LiveTables {
    /// Returns a reader of the image with this profile that can follow its counters: they start at
    /// the start of the program, and the tables have [`crate::model::TimeTables::site_rows`].
    pub fn new(profile: &Path) -> LiveTables {
        LiveTables {
            profile: profile.to_owned(),
            is_followed: true,
            has_names: true,
            symbols: None,
        }
    }

    /// Returns a reader whose tables are those of [`crate::model::Recording::open`]: counters start
    /// at the last reset.
    pub fn as_opened(profile: &Path) -> LiveTables {
        LiveTables {
            profile: profile.to_owned(),
            is_followed: false,
            has_names: true,
            symbols: None,
        }
    }

    /// Returns a reader that looks up no names, which takes most of the time.
    pub fn without_names(self) -> LiveTables {
        LiveTables { has_names: false, ..self }
    }

    /// Reads the current tables. `progress` receives the number of addresses looked up and of all
    /// addresses.
    ///
    /// Errors: the profile cannot be read.
    ///
    /// ```
    /// use heaptide_analysis::recording::live_tables::LiveTables;
    /// let mut tables = LiveTables::new("missing.heaptide/12-0.profile".as_ref());
    /// assert!(tables.read(&mut |_, _| {}).is_err());
    /// ```
    pub fn read(&mut self, progress: &mut dyn FnMut(usize, usize)) -> Result<Process, Error> {
        let choice = Choice { from_start: self.is_followed, ..Choice::default() };
        let mut parts = Parts::read(&self.profile, &choice)?;
        if let Some(known) = self.symbols.take() {
            parts.symbols = known;
        }
        let sources = &Sources::default();
        let engine = &Blazesym;
        let mut changed = Vec::new();
        if self.has_names {
            changed = parts.look_up(&Lookup { engine, sources, again: false }, progress);
            if !parts.sealed {
                parts.look_up_jit(sources);
            }
        }
        let ending = parts.endings(&changed).pop();
        let profile = parts.profiles.pop().map(|(_, profile)| profile);
        let (Some(ending), Some(mut profile)) = (ending, profile) else {
            return Err(Error::Missing { path: self.profile.clone() });
        };
        profile.is_followed = self.is_followed;
        let process = process::process(profile, &parts.symbols, ending);
        self.symbols = Some(parts.symbols);
        Ok(process)
    }
}

/// Returns the counters of a profile or snapshot, by row of tables of the same process image that
/// were read with their [`crate::model::TimeTables::site_rows`].
///
/// Errors: the file cannot be read.
pub fn counts_of(file: &Path, process: &Process) -> Result<Vec<Counts>, Error> {
    let profile = reader::read(file)?;
    let mut counts = vec![Counts::default(); process.tables.sites.len()];
    for (row, site) in counts.iter_mut().zip(&process.tables.sites) {
        row.kind = site.kind;
    }
    let rows = process.time.site_rows.as_ref();
    let (epoch, mean) = (profile.header.epoch, profile.header.sample_mean_bytes);
    let mut weighted = vec![Weighted::default(); counts.len()];
    let row = |id| rows.map_or(SiteRow::Unknown, |rows| rows.row(id));
    for site in &profile.sites {
        let SiteRow::At(row) = row(site.id) else { continue };
        weighted[row as usize].add(&Weighted::of_site(site, mean, epoch));
        let then = Counts::of(&site.counters, epoch);
        let counts = &mut counts[row as usize];
        counts.add_label(&then);
        let [blocks, bytes, _] = site.moved;
        counts.moved_blocks = counts.moved_blocks.saturating_add(blocks.min(then.allocations));
        counts.moved_bytes = counts.moved_bytes.saturating_add(bytes.min(then.allocated_bytes));
    }
    let lanes = profile.lanes.iter().copied();
    estimated_counts::estimate(&mut counts, &weighted, &profile.header, lanes);
    Ok(counts)
}

/// Returns the counters in the tables themselves, by row.
pub fn counts_now(process: &Process) -> Vec<Counts> {
    let row = |site: &crate::model::Site| Counts {
        live_bytes: site.measures.live_bytes,
        live_blocks: site.measures.live_blocks,
        at_peak_bytes: site.measures.at_peak_bytes,
        allocations: site.measures.allocations,
        allocated_bytes: site.measures.usable_bytes,
        moved_blocks: site.moved.blocks,
        moved_bytes: site.moved.usable_bytes,
        kind: site.kind,
    };
    process.tables.sites.iter().map(row).collect()
}
