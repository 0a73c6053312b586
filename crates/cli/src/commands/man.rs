//! `heaptide man`: manual pages from the table of options.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use heaptide_command::error::Error;
use heaptide_command::outcome::Outcome;
use heaptide_command::{output, values};

use crate::manual_page;

/// `heaptide man`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  heaptide man ~/.local/share/man/man1 && man heaptide-run")]
pub struct ManOptions {
    /// Directory for one page per command [default: print the main page]
    #[arg(value_name = "DIR", value_parser = values::directory())]
    pub directory: Option<PathBuf>,
}

/// Writes one page per command into a directory, or the main page to standard output.
pub fn man(options: &ManOptions, command: clap::Command) -> Outcome {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    match &options.directory {
        Some(directory) => {
            fs::create_dir_all(directory)
                .map_err(|e| Error::file(directory, "create the directory", e))?;
            write_all(&command, directory)?;
        }
        None => output::print(|out| manual_page::write(&command, out))?,
    }
    Ok(())
}

/// Writes the page of a command, and those of its subcommands.
fn write_all(command: &clap::Command, directory: &Path) -> Result<(), Error> {
    let path = directory.join(format!("{}.1", manual_page::display_name(command)));
    output::write(&path, true, |out| manual_page::write(command, out))?;
    let mut subcommands = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    subcommands.try_for_each(|sub| write_all(sub, directory))
}
