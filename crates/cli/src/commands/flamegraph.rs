//! `heaptide flamegraph`: an SVG next to the recording.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use heaptide_analysis::model::Measure;
use heaptide_analysis::text::of_path;
use heaptide_command::outcome::Outcome;
use heaptide_command::selection::{Origins, Selection, Source};
use heaptide_command::source::{Reader, View};
use heaptide_command::{output, source, values};
use heaptide_render::export::flamegraph;
use heaptide_render::shared::branches::Lanes;

use crate::options::{Frames, Picture, metric_parser, require_of_rows};

/// `heaptide flamegraph`.
#[derive(Args, Debug)]
#[command(after_help = FLAMEGRAPH_EXAMPLE)]
pub struct FlamegraphOptions {
    #[command(flatten)]
    pub source: Source,
    /// File to write, - for standard output [default: REC-name.svg beside the recording]
    #[arg(short, long, value_name = "FILE.svg")]
    pub output: Option<PathBuf>,
    /// Metric shown as the width of boxes [default: at_peak_bytes, with --scopes usable_bytes]
    #[arg(long, aliases = ["measure", "sort"], value_name = "METRIC")]
    #[arg(value_parser = metric_parser(), hide_possible_values = true)]
    pub metric: Option<Measure>,
    #[command(flatten)]
    pub frames: Frames,
    /// Merge boxes below this percentage of the total [default: 0.1]
    #[arg(long, value_name = "P", value_parser = values::percent)]
    pub min_percent: Option<f64>,
    /// Draw one graph for each thread, on a box with its name
    #[arg(long, alias = "per-lane")]
    pub per_thread: bool,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub origins: Origins,
    #[command(flatten)]
    pub picture: Picture,
    #[command(flatten)]
    pub selection: Selection,
}

const FLAMEGRAPH_EXAMPLE: &str = "\
Example:
  heaptide flamegraph app.heaptide -o leaks.svg --metric live_bytes
  heaptide flamegraph app.heaptide --bottom-up --width 2400 --title \"Who allocates\"";

/// Draws the graph and prints its path.
pub fn flamegraph(options: &FlamegraphOptions) -> Outcome {
    let metric = options.metric.unwrap_or(options.frames.metric());
    require_of_rows(metric)?;
    let (inside, apart) = (options.frames.in_scopes(), options.frames.apart(&options.origins));
    let reader = Reader::Person;
    let view = View { inside, apart, reader, ..View::default() };
    let selected = source::open_view(&options.source, &options.selection, view)?;
    let process = selected.largest(metric)?;
    match inside {
        None => selected.require_stacks(process)?,
        Some(_) => selected.require_scopes(process)?,
    }
    selected.require_value(process, metric, "draw")?;
    let lanes = if options.per_thread { Lanes::Apart } else { Lanes::Merged };
    let (selection, least) = (&options.selection, options.min_percent);
    let drawing = options.picture.drawing(metric, lanes, selection, least);
    let draw = |out: &mut dyn Write| flamegraph::write(out, process, &drawing);
    let path = options.output.clone().unwrap_or_else(|| beside(&selected.recording.path));
    if output::is_stdout(&path) {
        output::print(draw)?;
        return Ok(());
    }
    output::may_write(&path, options.force)?;
    output::write(&path, options.force, draw)?;
    output::print_text(|out| writeln!(out, "{}", of_path(&path)))?;
    Ok(())
}

/// Returns the path of the graph: `dir/app.svg` for `dir/app.heaptide`.
fn beside(recording: &Path) -> PathBuf {
    let whole = recording.canonicalize();
    match recording.file_name() {
        Some(_) => recording.with_extension("svg"),
        // `.` or `..`: the directory's own name, in the current directory.
        None => match whole.ok().as_deref().and_then(Path::file_stem) {
            Some(stem) => PathBuf::from(stem).with_extension("svg"),
            None => PathBuf::from("heaptide.svg"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_graph_lies_beside_the_recording() {
        assert_eq!(beside(Path::new("a/app.heaptide")), Path::new("a/app.svg"));
        assert_eq!(beside(Path::new("app.heaptide/")), Path::new("app.svg"));
        assert_eq!(beside(Path::new("r/12-0.profile")), Path::new("r/12-0.svg"));
    }
}
