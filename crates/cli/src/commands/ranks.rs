//! `heaptide ranks`: compares the ranks of a parallel job.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use heaptide_analysis::model::Measure;
use heaptide_analysis::recording::origin::Origin;
use heaptide_analysis::recordings_below;
use heaptide_analysis::views::ranks::{Place, places};
use heaptide_command::error::Error;
use heaptide_command::outcome::{Outcome, Stop};
use heaptide_command::output::Content;
use heaptide_command::selection::{Selection, Source, Which, origin_parser};
use heaptide_command::source::{self, Empty, View, Workers};
use heaptide_command::{output, target};
use heaptide_render::shared::ranks::Ranks;
use heaptide_render::{heat_map, json, text};

use crate::dataset;
use crate::options::{Format, metric_parser};

/// `heaptide ranks`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct RanksOptions {
    /// Recordings, or directories with recordings in them, or the output of `heaptide export
    /// --format parquet` (requires heaptide-sql) [default: the newest *.heaptide here]
    #[arg(value_name = "DIR|REC")]
    pub recordings: Vec<PathBuf>,
    /// Compare ranks, hosts or processes
    #[arg(long, value_name = "KIND", value_parser = origin_parser(), default_value = "rank")]
    pub by: Origin,
    /// Compare by this metric; for owners, peak_bytes means at_peak_bytes
    #[arg(long, visible_alias = "sort", alias = "measure", value_name = "METRIC",
        value_parser = metric_parser(), hide_possible_values = true,
        default_value = "peak_bytes")]
    pub metric: Measure,
    /// Show at most N rows of each table [default: 10 as text, 40 owners in html, all in json]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Output format: text for reading, json with all numbers, html with a heat map of ranks and
    /// owners
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: RanksFormat,
    /// File to write to [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long, requires = "output")]
    pub force: bool,
    #[command(flatten)]
    pub selection: Selection,
}

const EXAMPLE: &str = "\
Example:
  heaptide ranks solver.heaptide
  heaptide ranks /scratch/job4711 --format html -o ranks.html";

/// Output formats of `ranks`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum RanksFormat {
    /// Tables
    Text,
    /// All numbers
    Json,
    /// A heat map
    Html,
}

/// Compares ranks.
pub fn ranks(options: &RanksOptions) -> Outcome {
    if options.selection.process == Some(Which::All) {
        return Err(Error::new("ranks compares processes; omit --process all").into());
    }
    if let Some(path) = &options.output {
        output::may_write(path, options.force)?;
    }
    let dataset = match &*options.recordings {
        [one] if dataset::is_one(one) => Some(one),
        _ => None,
    };
    let (recordings, all) = match dataset {
        Some(path) => read_dataset(path, options)?,
        None => {
            let recordings = find(&options.recordings)?;
            (recordings.clone(), read(&recordings, options)?)
        }
    };
    let title = match &*options.recordings {
        [one] => one.display().to_string(),
        [] => recordings[0].display().to_string(),
        _ => "ranks".to_owned(),
    };
    let ranks = Ranks::of(title, recordings.len(), options.by, options.metric, all);
    if ranks.places.is_empty() {
        let what = match options.by {
            Origin::Rank => "no process has a rank; set HEAPTIDE_RANK, or use --by host or process",
            Origin::Host | Origin::Process => "nothing was recorded",
        };
        return Err(Stop::Negative(format!("{}: {what}", ranks.title)));
    }
    let (path, force, top) = (options.output.as_deref(), options.force, options.top);
    match options.format {
        RanksFormat::Text => {
            output::write_or_print_page(path, force, |out| text::ranks::write(out, &ranks, top))?;
        }
        RanksFormat::Json => {
            output::write_or_print(path, force, Content::Data, |out| {
                json::ranks::write(out, &ranks, top)
            })?;
        }
        RanksFormat::Html => {
            output::write_or_print(path, force, Content::Data, |out| {
                heat_map::write(out, &ranks, top)
            })?;
        }
    }
    Ok(())
}

/// Returns the recordings to read: those given, those in given directories, or the newest one.
fn find(given: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    if given.is_empty() {
        return Ok(vec![source::newest()?]);
    }
    let mut all = Vec::new();
    for path in given {
        let place = target::place_of(path)?;
        let found = if place.is_dir() { recordings_below(&place)? } else { vec![place] };
        if found.is_empty() {
            let path = path.display();
            return Err(Error::new(format!(
                "{path}: expected recordings in this directory, found none; name a directory of \
                 *.heaptide"
            )));
        }
        all.extend(found);
    }
    Ok(all)
}

/// Reads a dataset. Its runs take the place of recordings.
fn read_dataset(path: &Path, options: &RanksOptions) -> Result<(Vec<PathBuf>, Vec<Place>), Stop> {
    if options.selection.filters() || options.selection.process.is_some() {
        let path = path.display();
        return Err(Error::new(format!(
            "{path}: filters do not apply to a dataset; select with `heaptide sql --dataset \
             {path}`, or export with filters"
        ))
        .into());
    }
    let found = dataset::places(path, options.by, options.metric)?;
    let (runs, mut all): (Vec<PathBuf>, Vec<Place>) =
        found.into_iter().map(|(run, place)| (PathBuf::from(run), place)).unzip();
    finish(&mut all, &runs.iter().collect::<Vec<_>>());
    let mut distinct = runs;
    distinct.sort();
    distinct.dedup();
    Ok((distinct, all))
}

/// Reads one recording after the other, since those of a job may not fit into memory together, and
/// merges their values of the same host.
fn read(recordings: &[PathBuf], options: &RanksOptions) -> Result<Vec<Place>, Stop> {
    let mut all: Vec<Place> = Vec::new();
    let mut of_recording = Vec::new();
    for path in recordings {
        let [source] = &Source::each(std::slice::from_ref(path), None, false)[..] else { continue };
        let (reader, workers) = (Format::Text.reader(), Workers::Each);
        let view = View { reader, empty: Empty::Shown, workers, ..View::default() };
        let mut recording = source::apply(source, &options.selection, view)?;
        let pid = options.selection.pid();
        recording.processes.retain(|process| pid.is_none_or(|pid| pid == process.identity.pid));
        let found = places(&recording.processes, options.by, options.metric);
        for place in found {
            let hosts = if options.by == Origin::Host { &mut all[..] } else { &mut [] };
            match hosts.iter_mut().find(|known| known.name == place.name) {
                Some(known) => known.join(place),
                None => {
                    of_recording.push(path);
                    all.push(place);
                }
            }
        }
    }
    finish(&mut all, &of_recording);
    Ok(all)
}

/// Makes the names of places unique, and sorts places with numbers by number.
fn finish(places: &mut [Place], of_recording: &[&PathBuf]) {
    name_apart(places, of_recording);
    places.sort_by_key(|place| (place.number.is_none(), place.number)); // stable
}

/// Adds the recording to the names of places, if several have the same name.
fn name_apart(places: &mut [Place], of_recording: &[&PathBuf]) {
    let mut names: Vec<_> = places.iter().filter(|place| place.is_compared).collect();
    names.sort_by(|a, b| a.name.cmp(&b.name));
    if names.windows(2).all(|pair| pair[0].name != pair[1].name) {
        return;
    }
    for (place, path) in places.iter_mut().zip(of_recording) {
        let stem = path.file_stem().map(Path::new).unwrap_or(path);
        place.name = format!("{} {}", stem.display(), place.name).into();
    }
}
