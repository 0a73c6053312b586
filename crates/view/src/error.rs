//! Errors of starting the server.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The failure, and what to do instead.
#[derive(Debug)]
pub enum Error {
    /// The address is reachable from other machines.
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// Binding the address failed.
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The system provides no random numbers for the token.
    Token(io::Error),
    /// The server cannot be started.
    Start(io::Error),
    /// The recording cannot be read.
    Recording(heaptide_analysis::Error),
    /// The recording has no process.
    Empty {
        /// The recording.
        recording: PathBuf,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotLoopback { address } => write!(
                f,
                "--listen {}: not a loopback address; to view from another machine, forward a \
                 port: ssh -L PORT:127.0.0.1:PORT",
                address.ip()
            ),
            Error::Listen { address, source } if source.kind() == io::ErrorKind::AddrInUse => {
                write!(f, "cannot listen on {address}: the port is in use; choose another --port")
            }
            Error::Listen { address, source } => write!(f, "cannot listen on {address}: {source}"),
            Error::Token(source) => write!(f, "cannot make a random token: {source}"),
            Error::Start(source) => write!(f, "cannot start the server: {source}"),
            Error::Recording(error) => error.fmt(f),
            Error::Empty { recording } => {
                write!(f, "{}: nothing was recorded; see `heaptide info`", recording.display())
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Listen { source, .. } | Error::Token(source) | Error::Start(source) => {
                Some(source)
            }
            Error::Recording(error) => Some(error),
            Error::NotLoopback { .. } | Error::Empty { .. } => None,
        }
    }
}

impl From<heaptide_analysis::Error> for Error {
    fn from(error: heaptide_analysis::Error) -> Error {
        Error::Recording(error)
    }
}
