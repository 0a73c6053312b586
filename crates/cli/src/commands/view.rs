//! `heaptide view`: serves a page for recordings to the browser.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use clap::{Args, Parser};
use heaptide_analysis::recording::Live;
use heaptide_analysis::selection::python::PythonFrames;
use heaptide_analysis::selection::rules::Rules;
use heaptide_command::chosen::Chosen;
use heaptide_command::damage::Listed;
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::outcome::Outcome;
use heaptide_command::selection::{Reader, Selection, Source};
use heaptide_command::source::View;
use heaptide_command::{output, source, target};
use heaptide_view::{For, Opened, Options, Prepare, Server};

use crate::commands::advise;
use crate::options::StackOptions;

/// `heaptide view`.
#[derive(Args, Debug)]
#[command(after_help = VIEW_EXAMPLE)]
pub struct ViewOptions {
    /// Recordings to show, two side by side: NAME.heaptide, profiles in them, or process ids of
    /// running programs; REC@NAME is a snapshot of REC [default: the newest *.heaptide here]
    #[arg(value_name = "REC")]
    pub recordings: Vec<PathBuf>,
    /// Listen on this port [default: any that is free]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub port: u16,
    /// Listen on this loopback address [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST),
        hide_default_value = true)]
    pub listen: IpAddr,
    /// Print the address of the page without opening it in the browser
    #[arg(long)]
    pub no_open: bool,
    /// Allow the page to take snapshots, set marks, switch recording on and off, and reset counters
    #[arg(long)]
    pub control: bool,
    /// How stacks and functions are shown.
    #[command(flatten)]
    pub stacks: StackOptions,
}

const VIEW_EXAMPLE: &str = "\
Example:
  heaptide view app.heaptide
  heaptide view before.heaptide after.heaptide
  heaptide view app.heaptide@1 app.heaptide@2 --no-open

The address contains a random token, and requests without it are refused. Ctrl-C ends the command.";

/// Options that the page may send, in the syntax of the command line.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Words {
    #[command(flatten)]
    selection: Selection,
}

/// Serves the page until Ctrl-C.
pub fn view(options: &ViewOptions) -> Outcome {
    let recordings = opened(options)?;
    let base = options.stacks.selection();
    Chosen::new(&base, Reader::Person)?; // reports wrong options before the server starts
    let words = move |text: &str, whom| prepare(&base, text, whom);
    let server = Server::start(Options {
        recordings,
        address: SocketAddr::new(options.listen, options.port),
        has_control: options.control,
        words: Arc::new(words),
        suppressions: advise::suppressions(&[])?,
        version: env!("CARGO_PKG_VERSION"),
    })
    .map_err(Error::library)?;
    let url = server.url();
    output::print_text(|out| writeln!(out, "{url}"))?;
    if !options.no_open {
        open(&server.url_once());
    }
    server.run().map_err(Error::library)?;
    Ok(())
}

/// Returns the recordings of the command line, or the newest one here.
fn opened(options: &ViewOptions) -> Result<Vec<Opened>, Error> {
    if options.recordings.is_empty() {
        return Ok(vec![Opened { path: source::newest()?, snapshot: None }]);
    }
    let open = |given: &PathBuf| {
        let found = target::resolve(&Source {
            recording: Some(given.clone()),
            snapshot: None,
            from_start: false,
            listed: Listed::Nowhere,
            live: Live::AtEnd,
        })?;
        let path = found.recording.unwrap_or_else(|| given.clone());
        Ok(Opened { path, snapshot: found.snapshot })
    };
    options.recordings.iter().map(open).collect()
}

/// Parses the options of the page for selection and names, and adds those of the command line.
///
/// Errors: the message of the command.
fn prepare(base: &Selection, text: &str, whom: For) -> Result<Prepare, String> {
    let unclosed = || format!("filter `{text}`: missing closing quotation mark");
    let words = shlex::split(text).ok_or_else(unclosed)?;
    let Words { selection } = Words::try_parse_from(words).map_err(|error| {
        let text = error.render().to_string();
        let line = text.lines().next().unwrap_or_default();
        line.strip_prefix("error: ").unwrap_or(line).to_owned()
    })?;
    let selection = added(base, selection)?;
    let reader = match whom {
        For::Page => Reader::Person,
        For::Query => Reader::Program,
    };
    let chosen = Chosen::new(&selection, reader).map_err(|error| error.to_string())?;
    let view = View { reader, events: true, ..View::default() };
    Ok(Box::new(move |process| source::apply_to(process, &selection, &chosen, view)))
}

/// Returns the selection of the page with the name options of the command line.
fn added(base: &Selection, mut page: Selection) -> Result<Selection, String> {
    if page.process.is_some() {
        return Err("--process: select a process in the list on the page".to_owned());
    }
    // Only the command line may name files.
    if let Some(file) = page.rules.iter().find(|name| Rules::built_in(name).is_none()) {
        return Err(format!(
            "--rules {file}: not a built-in rule set; pass files of rules to `heaptide view --rules`"
        ));
    }
    if page.rules.is_empty() {
        page.rules.clone_from(&base.rules);
    }
    if page.python == PythonFrames::default() {
        page.python = base.python;
    }
    page.own.extend_from_slice(&base.own);
    page.raw |= base.raw;
    Ok(page)
}

/// Opens the page in the browser, if there is a display. Errors are ignored, since the address was
/// printed.
fn open(url: &str) {
    let has_display =
        ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    if !has_display {
        return;
    }
    let mut command = Command::new("xdg-open");
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(mut child) => {
            std::thread::spawn(move || child.wait());
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => message(format_args!("cannot run xdg-open: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(text: &str) -> Result<(), String> {
        prepare(&Selection::everything(), text, For::Page).map(drop)
    }

    #[test]
    fn filters_are_words_of_the_command_line() {
        for good in ["", "--focus parse --min-size 4K", "--rules std --hide 'module:lib c'"] {
            assert_eq!(prepared(good), Ok(()), "{good}");
        }
        let bad = [
            ("--focus '", "filter `--focus '`: missing closing quotation mark"),
            ("--nonsense", "unexpected argument '--nonsense' found"),
            ("word", "unexpected argument 'word' found"),
            (
                "--min-size x",
                "invalid value 'x' for '--min-size <BYTES>': expected bytes, such as \
             4096, 4K or 1M",
            ),
            ("--process 7", "--process: select a process in the list on the page"),
            (
                "--rules /etc/passwd",
                "--rules /etc/passwd: not a built-in rule set; pass files of \
             rules to `heaptide view --rules`",
            ),
        ];
        for (text, expected) in bad {
            assert_eq!(prepared(text), Err(expected.to_owned()));
        }
        let error = prepared("--focus [").expect_err("no expression");
        assert!(error.starts_with("--focus `[`: "), "{error}");
    }
}
