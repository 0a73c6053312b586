//! `heaptide man`: manual pages from the table of options.

use std::path::PathBuf;

use clap::Args;
use heaptide_command::error::Error;
use heaptide_command::outcome::Outcome;
use heaptide_command::{output, values};

/// `heaptide man`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  heaptide man ~/.local/share/man/man1 && man heaptide-run")]
pub struct ManOptions {
    /// Directory for one page per command [default: print the main page]
    #[arg(value_name = "DIR", value_parser = values::directory())]
    pub directory: Option<PathBuf>,
}

/// Writes a page a command into a directory, or the main page to standard output.
pub fn man(options: &ManOptions, command: clap::Command) -> Outcome {
    match &options.directory {
        Some(directory) => {
            std::fs::create_dir_all(directory)
                .map_err(|e| Error::file(directory, "create the directory", e))?;
            clap_mangen::generate_to(command, directory)
                .map_err(|e| Error::file(directory, "write the pages", e))?;
        }
        None => output::print(|out| clap_mangen::Man::new(command).render(out))?,
    }
    Ok(())
}
