//! `heaptide completions`: a completion script from the table of options.

use std::process::ExitCode;

use clap::CommandFactory;
use heaptide_command::error::Error;
use heaptide_command::source;

use crate::options::{CompletionsOptions, Options};

/// Prints the script.
pub fn completions(options: &CompletionsOptions) -> Result<ExitCode, Error> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Options::command(), "heaptide", &mut script);
    source::print(|out| out.write_all(&script))?;
    Ok(ExitCode::SUCCESS)
}
