//! `heaptide top`: a live screen of a running recording, or the replay of a finished one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use heaptide_analysis::model::Process;
use heaptide_analysis::recording::images;
use heaptide_command::chosen::Chosen;
use heaptide_command::error::Error;
use heaptide_command::outcome::Outcome;
use heaptide_command::selection::Reader;
use heaptide_command::{source, target, terminal};
use heaptide_top::{Mode, Options, View};

use crate::options::StackOptions;

/// `heaptide top`.
#[derive(Args, Debug)]
#[command(after_help = TOP_EXAMPLE)]
pub struct TopOptions {
    /// Recording to watch: NAME.heaptide, a profile in it, or the process id of a running program
    /// [default: the newest *.heaptide here that a program is recording into]
    #[arg(value_name = "REC|PID")]
    pub recording: Option<PathBuf>,
    /// Step through a finished recording: any time of its trace or, without a trace, its snapshots
    #[arg(long)]
    pub replay: bool,
    /// Start with this process of the recording [default: the largest]
    #[arg(long, value_name = "PID")]
    pub process: Option<u32>,
    /// Start with a row for each KIND
    #[arg(long, value_name = "KIND", default_value = "owner", value_parser = view_parser())]
    pub by: View,
    /// Start with sites that have a matching function (or module, file, scope, label, thread); `/`
    /// changes it
    #[arg(long, value_name = "[KIND:]REGEX")]
    pub focus: Option<String>,
    /// How stacks and functions are shown.
    #[command(flatten)]
    pub stacks: StackOptions,
}

const TOP_EXAMPLE: &str = "\
Example:
  heaptide run -o app.heaptide -- ./app &
  heaptide top app.heaptide
  heaptide top --replay app.heaptide

Press `?` for a list of the keys.";

/// Parses the name of a view.
fn view_parser() -> impl TypedValueParser<Value = View> {
    PossibleValuesParser::new(View::ALL.map(View::name)).try_map(|name| {
        let of_name = View::ALL.into_iter().find(|view| view.name() == name);
        of_name.ok_or("unknown kind of rows")
    })
}

/// Shows the screen until the user quits.
pub fn top(options: &TopOptions) -> Outcome {
    let mode = if options.replay { Mode::Replay } else { Mode::Live };
    let recording = match &options.recording {
        Some(given) => target::place_of(given)?,
        None => newest(mode)?,
    };
    let selection = options.stacks.selection();
    let chosen = Chosen::new(&selection, Reader::Person)?;
    let prepare = move |process: &mut Process| {
        process.select_kind(selection.kind.unwrap_or_default());
        process.select_python(selection.python);
        chosen.apply_to(process);
        source::rewrite_languages(process, &selection);
        source::name_known(process, &selection);
        process.fold_values(None);
    };
    heaptide_top::run(Options {
        recording,
        mode,
        pid: options.process,
        view: options.by,
        focus: options.focus.clone(),
        has_colours: terminal::has_colours(),
        prepare: Arc::new(prepare),
    })
    .map_err(Error::library)?;
    Ok(())
}

/// Returns the newest recording here that the mode can show.
fn newest(mode: Mode) -> Result<PathBuf, Error> {
    let here = Path::new(".");
    let (found, otherwise) = match mode {
        Mode::Live => (
            images::newest_running(here)?,
            "no program is recording into a *.heaptide in the current directory; name a recording \
             or a process id, or use `heaptide top --replay`",
        ),
        Mode::Replay => (
            heaptide_analysis::newest(here)?,
            "no *.heaptide in the current directory; name a recording, or create one with \
             `heaptide run -- PROGRAM`",
        ),
    };
    let found = found.ok_or_else(|| Error::new(otherwise))?;
    Ok(found.strip_prefix(here).unwrap_or(&found).to_owned())
}
