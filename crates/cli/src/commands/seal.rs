//! `heaptide seal`: stores the names of functions in a recording, also repeatedly.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::Args;
use heaptide_analysis::recording::{Sealed, running, seal_with};
use heaptide_analysis::symbols::{Blazesym, Lookup};
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::outcome::Outcome;
use heaptide_command::output;
use heaptide_command::progress::Progress;
use heaptide_control::{FileUser, path_of};
use heaptide_render::shared::names::printable;

use crate::options::NameOptions;
use crate::place::{Recorded, resolve};

/// `heaptide seal`.
#[derive(Args, Debug)]
#[command(after_help = SEAL_EXAMPLE)]
pub struct SealOptions {
    /// Recording to seal, a directory
    #[arg(value_name = "REC")]
    pub recording: PathBuf,
    #[command(flatten)]
    names: NameOptions,
}

const SEAL_EXAMPLE: &str = "\
Example:
  LD_PRELOAD=$(heaptide library) HEAPTIDE_OUTPUT=app.heaptide ./app && heaptide seal app.heaptide
  heaptide seal --sysroot /srv/container/rootfs app.heaptide
  heaptide seal --debuginfod=https://debuginfod.debian.net app.heaptide";

/// Looks up all names, stores those that were found, and lists modules and functions without names.
pub fn seal(options: &SealOptions) -> Outcome {
    options.names.check()?;
    let path = &options.recording;
    let directory = lock(path)?.directory()?;
    let owner = FileUser::of_owner(&directory).map_err(Error::library)?;
    let _entered = owner.enter().map_err(Error::library)?;
    let place = if owner.is_own() { path.clone() } else { path_of(&directory, path) };
    let progress = Rc::new(Progress::start("looking up symbols"));
    let sources = options.names.sources(Some(progress.clone()))?;
    let lookup = Lookup { engine: &Blazesym, sources: &sources, again: true };
    let sealed = seal_with(&place, &lookup, &mut |done, total| {
        progress.at("looking up symbols", done, total);
    });
    drop((sources, progress));
    let sealed = sealed?;
    for note in &sealed.notes {
        message(note);
    }
    Ok(output::print(|out| print(out, path, &sealed))?)
}

/// Locks a recording.
///
/// Errors: it does not exist, or something still writes to it.
fn lock(path: &Path) -> Result<Recorded, Error> {
    let shown = path.display();
    if path.is_file() {
        let what = "expected a recording, a directory; seal the one that contains this profile";
        return Err(Error::new(format!("{shown}: {what}")));
    }
    let in_use =
        |what: String| Error::new(format!("{shown}: {what}; seal it when that process has ended"));
    if let Some(running) = running::by_id(path)? {
        let recording = running.file.parent().unwrap_or(&running.file).display();
        return Err(in_use(format!("this process still writes to {recording}")));
    }
    if let Some(running) = running::of_recording(path)?.first() {
        return Err(in_use(format!("process {} still writes to it", running.pid)));
    }
    let recorded = Recorded::join(&resolve(path)?)?.filter(Recorded::is_last);
    recorded.ok_or_else(|| in_use("another heaptide process is writing to it".to_owned()))
}

fn print(out: &mut dyn Write, path: &Path, sealed: &Sealed) -> io::Result<()> {
    let shown = path.display().to_string();
    let Sealed { addresses, named, .. } = sealed;
    writeln!(out, "{}: {named} of {addresses} addresses have names", printable(&shown))?;
    for module in sealed.modules.iter().filter(|module| module.named < module.addresses) {
        let path = module.path.display().to_string();
        let missing = module.addresses - module.named;
        writeln!(out, "  {missing} of {} have none in {}", module.addresses, printable(&path))?;
    }
    Ok(())
}
