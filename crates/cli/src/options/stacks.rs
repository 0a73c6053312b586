//! Options of the interactive commands for displaying stacks and functions: the part of a
//! [`Selection`] that does not change while they run.

use clap::Args;
use heaptide_analysis::selection::python::PythonFrames;
use heaptide_command::selection::{NAMES, Selection, python_parser};

/// How to display stacks and functions.
#[derive(Args, Debug)]
pub struct StackOptions {
    /// Show Python functions and native ones in one stack, or only either [default: mixed]
    #[arg(long, value_name = "mixed|only|native", default_value = "mixed",
        value_parser = python_parser(), hide_possible_values = true, hide_default_value = true,
        help_heading = NAMES)]
    pub python: PythonFrames,
    /// Rewrite names and stacks by a file of rules or a built-in set; also `rules` in heaptide.toml
    #[arg(long, value_name = "SET|FILE", value_delimiter = ',', help_heading = NAMES)]
    pub rules: Vec<String>,
    /// Mark matching functions, modules or files as the program's own code; also `own` in
    /// heaptide.toml
    #[arg(long, value_name = "[KIND:]REGEX", help_heading = NAMES)]
    pub own: Vec<String>,
    /// Attribute each allocation to its innermost frame, even in a library
    #[arg(long, help_heading = NAMES)]
    pub raw: bool,
}

impl StackOptions {
    /// Returns a selection of everything with these options.
    pub fn selection(&self) -> Selection {
        let (python, raw) = (self.python, self.raw);
        let (rules, own) = (self.rules.clone(), self.own.clone());
        Selection { python, rules, own, raw, ..Selection::everything() }
    }
}
