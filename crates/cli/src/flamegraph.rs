//! `heaptide flamegraph`: an SVG beside the recording.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use heaptide_analysis::model::Process;
use heaptide_analysis::text::of_path;
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::{NEGATIVE, output, source};
use heaptide_render::flamegraph::{self, Lanes};

use crate::options::FlamegraphOptions;

/// Draws the graph and says where it is.
pub fn flamegraph(options: &FlamegraphOptions) -> Result<ExitCode, Error> {
    let (inside, apart) = (options.frames.in_scopes(), options.frames.apart(&options.origins));
    let recording = source::open_framed(&options.source, &options.selection, inside, apart)?;
    if !source::has(&recording, options.selection.pid()) {
        return Ok(ExitCode::from(NEGATIVE));
    }
    let process = source::largest(&recording, options.selection.pid(), options.metric);
    let fits = |p: &&Process| match options.frames.in_scopes() {
        None => source::has_stacks(&recording, p),
        Some(_) => source::has_scopes(&recording, p),
    };
    let Some(process) = process.filter(fits) else {
        return Ok(ExitCode::from(NEGATIVE));
    };
    let measure = options.metric.of_sites();
    if measure.of(&process.totals) == 0 {
        let (path, who, name) = (recording.path.display(), process.who(), measure.name());
        message(format_args!("{path}: {name} of {who} is 0: nothing to draw"));
        return Ok(ExitCode::from(NEGATIVE));
    }
    let lanes = if options.per_thread { Lanes::Apart } else { Lanes::Merged };
    let drawing = options.picture.drawing(measure, lanes);
    let draw = |out: &mut dyn Write| flamegraph::write(out, process, &drawing);
    let path = options.output.clone().unwrap_or_else(|| beside(&recording.path));
    if output::is_stdout(&path) {
        source::print(draw)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::may_write(&path, options.force)?;
    output::write(&path, options.force, draw)?;
    source::print_page(|out| writeln!(out, "{}", of_path(&path)))?;
    Ok(ExitCode::SUCCESS)
}

/// `dir/app.heaptide` is drawn to `dir/app.svg`.
fn beside(recording: &Path) -> PathBuf {
    let whole = recording.canonicalize();
    match recording.file_name() {
        Some(_) => recording.with_extension("svg"),
        // `.` or `..`: the directory's own name, written where the command runs.
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
