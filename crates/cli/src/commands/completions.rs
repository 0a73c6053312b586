//! `heaptide completions`: a completion script from the table of options.

use clap::Args;
use heaptide_command::outcome::Outcome;
use heaptide_command::output;

/// `heaptide completions`.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  heaptide completions bash > ~/.local/share/bash-completion/completions/heaptide"
)]
pub struct CompletionsOptions {
    /// Shell to print the script for
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// Prints the script.
pub fn completions(options: &CompletionsOptions, mut command: clap::Command) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut command, "heaptide", &mut script);
    output::print(|out| out.write_all(&script))?;
    Ok(())
}
