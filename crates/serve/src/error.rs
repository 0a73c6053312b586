//! Errors that prevent the server from starting.

use std::fmt;
use std::io;
use std::net::SocketAddr;

/// An error that prevents the server from starting.
#[derive(Debug)]
pub enum Error {
    /// Listening on the address failed.
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The server cannot be started.
    Start(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Listen { address, source } if source.kind() == io::ErrorKind::AddrInUse => {
                write!(f, "cannot listen on {address}: the port is in use; choose another --listen")
            }
            Error::Listen { address, source } => write!(f, "cannot listen on {address}: {source}"),
            Error::Start(source) => write!(f, "cannot start the server: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Listen { source, .. } | Error::Start(source) => Some(source),
        }
    }
}
