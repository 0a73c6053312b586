//! The terminal of a command: its width and colours, and the pager that shows long pages.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::{AutoStream, ColorChoice};
use clap::{Args, ValueEnum};
use heaptide_format::settings::Setting;
use heaptide_render::text::screen::Layout;
use nix::sys::signal::{SigSet, Signal};

/// The heading of options that all commands have.
pub const GENERAL: &str = "General options";

/// Options of all commands that show pages.
#[derive(Args, Clone, Debug)]
pub struct TerminalOptions {
    /// Use colours in pages: on a terminal, always or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true,
        help_heading = GENERAL
    )]
    pub color: When,
    /// Show pages without a pager ($HEAPTIDE_PAGER, $PAGER or less)
    #[arg(long, global = true, help_heading = GENERAL)]
    pub no_pager: bool,
}

/// When pages have colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum When {
    /// On a terminal, as NO_COLOR, CLICOLOR and CLICOLOR_FORCE allow.
    Auto,
    /// Also in files and pipes.
    Always,
    /// Nowhere.
    Never,
}

static HAS_PAGER: AtomicBool = AtomicBool::new(false);

impl TerminalOptions {
    /// Applies the options to all pages that follow.
    pub fn apply(&self) {
        let choice = match self.color {
            When::Auto => ColorChoice::Auto,
            When::Always => ColorChoice::Always,
            When::Never => ColorChoice::Never,
        };
        choice.write_global();
        HAS_PAGER.store(!self.no_pager, Ordering::Relaxed);
    }
}

/// Returns the layout of a page on standard output.
pub(crate) fn layout() -> Layout {
    let stdout = io::stdout();
    let size = stdout.is_terminal().then(|| terminal_size::terminal_size_of(&stdout)).flatten();
    Layout { columns: size.map(|(width, _)| usize::from(width.0)), has_colours: has_colours() }
}

/// Returns whether standard output gets colours, according to options, NO_COLOR and the terminal.
pub fn has_colours() -> bool {
    AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

/// A running pager; dropping it waits until the user quits it.
pub(crate) struct Pager {
    child: Child,
    /// The signal mask before it started.
    before: Option<SigSet>,
}

impl Pager {
    /// Starts a pager if standard output is a terminal and the user wants one.
    pub(crate) fn start() -> Option<Pager> {
        if !HAS_PAGER.load(Ordering::Relaxed) || !io::stdout().is_terminal() {
            return None;
        }
        let mut command = Command::new("sh");
        command.arg("-c").arg(program()?).stdin(Stdio::piped());
        // Like git: quit if the page fits on the screen, show colours, keep the screen.
        for (name, value) in [("LESS", "FRX"), ("LV", "-c")] {
            if env::var_os(name).is_none() {
                command.env(name, value);
            }
        }
        let child = command.spawn().ok()?;
        // Ctrl-C is for the pager, which continues; otherwise it would share the terminal with a
        // shell.
        let mut interrupt = SigSet::empty();
        interrupt.add(Signal::SIGINT);
        let before = SigSet::thread_get_mask().ok();
        let _ = interrupt.thread_block();
        Some(Pager { child, before })
    }

    /// Returns the writer for the page.
    pub(crate) fn input(&mut self) -> Box<dyn Write + '_> {
        match &mut self.child.stdin {
            Some(stdin) => Box::new(stdin),
            None => Box::new(io::sink()),
        }
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait(); // regardless of its status
        if let Some(before) = &self.before {
            let _ = before.thread_set_mask();
        }
    }
}

/// Returns the command line of the pager; `None` if the user disabled it, or `less` is not
/// installed.
fn program() -> Option<String> {
    for name in [Setting::Pager.variable(), "PAGER"] {
        if let Ok(chosen) = env::var(name) {
            return Some(chosen).filter(|chosen| !["", "cat"].contains(&chosen.trim()));
        }
    }
    let paths = env::var_os("PATH")?;
    env::split_paths(&paths).any(|path| path.join("less").is_file()).then(|| "less".to_owned())
}
