//! `heaptide man`: manual pages from the table of options.

use clap::CommandFactory;
use heaptide_command::error::Error;
use heaptide_command::outcome::Outcome;
use heaptide_command::output;

use crate::options::{ManOptions, Options};

/// Writes a page a command into a directory, or the main page to standard output.
pub fn man(options: &ManOptions) -> Outcome {
    let command = Options::command();
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
