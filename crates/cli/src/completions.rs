//! `heaptide completions`: a completion script from the table of options.

use clap::CommandFactory;
use heaptide_command::outcome::Outcome;
use heaptide_command::output;

use crate::options::{CompletionsOptions, Options};

/// Prints the script.
pub fn completions(options: &CompletionsOptions) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Options::command(), "heaptide", &mut script);
    output::print(|out| out.write_all(&script))?;
    Ok(())
}
