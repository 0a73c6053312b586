//! `heaptide serve`: metrics and profiles of running programs over HTTP.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use heaptide_analysis::files::input;
use heaptide_analysis::model::Process;
use heaptide_command::chosen::Chosen;
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::outcome::Outcome;
use heaptide_command::selection::Reader;
use heaptide_command::source::{self, View};
use heaptide_command::{output, values};
use heaptide_serve::{Endpoint, Options, Otlp, SERIES_MIN, Server, Target};

use crate::options::StackOptions;

/// The maximum length of a token, in bytes. A header has room for it.
const TOKEN_MAX: usize = 4096;

/// `heaptide serve`.
#[derive(Args, Debug)]
#[command(after_help = SERVE_EXAMPLE)]
pub struct ServeOptions {
    /// Programs to serve: recordings, directories with recordings (also those created later), and
    /// process ids of recorded programs [default: all *.heaptide here]
    #[arg(value_name = "REC|DIR|PID")]
    pub targets: Vec<PathBuf>,
    /// Listen on this address; any other than a loopback address lets other machines read metrics
    /// and profiles
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9743",
        value_parser = socket_address)]
    pub listen: SocketAddr,
    /// Listen on this port, instead of the port of --listen
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// Serve at most N series at /metrics: the largest processes, scopes and labels have their own
    /// series, and the others are summed
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = series)]
    pub max_series: usize,
    /// Keep counters of a process for TIME after its end, so that the last values are scraped
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = values::time)]
    pub linger: Duration,
    /// Require the token in FILE from clients (Authorization: Bearer), except at /healthz
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Also answer requests to this host name; addresses, localhost and, unless --listen is a
    /// loopback address, the name of this machine are always accepted
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,
    /// Send metrics to the OpenTelemetry collector at this address (OTLP over HTTP)
    #[arg(long, value_name = "http://HOST:PORT")]
    pub otlp: Option<Endpoint>,
    /// Send every TIME
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::time,
        requires = "otlp")]
    pub otlp_interval: Duration,
    /// Also send profiles, to the experimental path /v1development/profiles
    #[arg(long, requires = "otlp")]
    pub otlp_profiles: bool,
    /// How stacks and functions of profiles are shown.
    #[command(flatten)]
    pub stacks: StackOptions,
}

const SERVE_EXAMPLE: &str = "\
Example:
  heaptide run -o app.heaptide -- ./app &
  heaptide serve app.heaptide &
  curl http://127.0.0.1:9743/metrics
  go tool pprof -top http://127.0.0.1:9743/debug/pprof/heap

SIGTERM and Ctrl-C end the command with status 0.";

/// Serves until a signal ends it.
pub fn serve(options: &ServeOptions) -> Outcome {
    let targets = targets(&options.targets)?;
    let token = options.token_file.as_deref().map(token).transpose()?;
    let server = Server::start(Options {
        targets,
        address: address(options),
        names: options.host.clone(),
        token,
        series: options.max_series,
        linger: options.linger,
        prepare: prepare(&options.stacks)?,
        otlp: options.otlp.clone().map(|endpoint| Otlp {
            endpoint,
            interval: options.otlp_interval,
            has_profiles: options.otlp_profiles,
            report: Arc::new(|line| message(line)),
        }),
        version: env!("CARGO_PKG_VERSION"),
    })
    .map_err(Error::library)?;
    let address = server.address();
    if !address.ip().is_loopback() {
        let rule = match options.token_file {
            Some(_) => "with the token can read metrics and profiles",
            None => "can read metrics and profiles; --token-file requires a token",
        };
        message(format_args!("--listen {address}: other machines {rule}"));
    }
    output::print_text(|out| writeln!(out, "http://{address}/metrics"))?;
    server.run().map_err(Error::library)?;
    Ok(())
}

/// Returns the address to listen on.
fn address(options: &ServeOptions) -> SocketAddr {
    let port = options.port.unwrap_or(options.listen.port());
    SocketAddr::new(options.listen.ip(), port)
}

/// Returns the targets of the command line, or the current directory if there are none.
fn targets(given: &[PathBuf]) -> Result<Vec<Target>, Error> {
    if given.is_empty() {
        return Ok(vec![Target::Directory(PathBuf::from("."))]);
    }
    let found: Result<Vec<Target>, heaptide_analysis::Error> =
        given.iter().map(|given| Target::find(given)).collect();
    Ok(found?)
}

/// Returns a function that prepares processes for profiles, as for exports.
fn prepare(options: &StackOptions) -> Result<heaptide_serve::Prepare, Error> {
    let selection = options.selection();
    let view = View::default();
    let chosen = Chosen::new(&selection, Reader::Program)?;
    Ok(Arc::new(move |process: &mut Process| {
        source::apply_to(process, &selection, &chosen, view);
    }))
}

/// Reads the token in a file, without the line break at its end.
fn token(path: &Path) -> Result<String, Error> {
    let failed = |what: String| Error::new(format!("--token-file {}: {what}", path.display()));
    let bytes = input::read(path, TOKEN_MAX as u64).map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8(bytes).unwrap_or_default();
    let token = text.trim_end_matches(['\n', '\r']);
    let is_token = token.bytes().all(|byte| byte.is_ascii_graphic());
    if token.is_empty() || !is_token {
        let expected = format!("expected a token of 1 to {TOKEN_MAX} printable ASCII characters");
        return Err(failed(format!("{expected} in one line")));
    }
    Ok(token.to_owned())
}

/// Parses an address with a port.
fn socket_address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "expected ADDRESS:PORT, such as 127.0.0.1:9743 or [::1]:9743")
}

/// Parses a limit of series.
fn series(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (SERIES_MIN..=1_000_000).contains(number));
    number.ok_or_else(|| format!("expected a number from {SERIES_MIN} to 1000000"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::commands::{Command, Options};

    #[test]
    fn a_port_replaces_that_of_the_address() {
        for (line, expected) in [
            ("heaptide serve", "127.0.0.1:9743"),
            ("heaptide serve --port 8000", "127.0.0.1:8000"),
            ("heaptide serve --listen [::1]:7 --port 0", "[::1]:0"),
        ] {
            let parsed = Options::try_parse_from(line.split(' ')).expect(line);
            let Command::Serve(options) = parsed.command else { panic!("another command") };
            assert_eq!(address(&options).to_string(), expected);
        }
    }
}
