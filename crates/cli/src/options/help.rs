//! Options of every command for its help, which has two levels.

use clap::{Arg, ArgAction, Command};
use heaptide_command::terminal::GENERAL;

/// The option for all options.
const ALL: &str = "help-all";

/// Returns the options for help and version of the command itself.
pub fn flags_of_root() -> Vec<Arg> {
    let version = Arg::new("version").short('V').long("version").action(ArgAction::Version);
    let version = version.help("Print the version").help_heading(GENERAL);
    flags().into_iter().chain([version]).collect()
}

/// Returns the options for help of every command.
fn flags() -> [Arg; 2] {
    let help = Arg::new("help").short('h').long("help").action(ArgAction::HelpShort);
    let all = Arg::new(ALL).long(ALL).action(ArgAction::HelpLong);
    [
        help.help("Print help with the frequent options").help_heading(GENERAL),
        all.help("Print help with all options").help_heading(GENERAL),
    ]
}

/// Gives a command and its subcommands these options.
pub fn with_flags(command: Command) -> Command {
    command.disable_help_flag(true).args(flags()).mut_subcommands(with_flags)
}
