//! The server: what it is started with, and its life.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use heaptide_http::connections::{self, Limits};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use crate::access::Access;
use crate::app::App;
use crate::collector::Collector;
use crate::error::Error;
use crate::otlp::{Otlp, Pusher};
use crate::profiles::{Prepare, Profiles, SECONDS_MAX};
use crate::readings::Readings;
use crate::routes;
use crate::target::Target;

/// Limits for clients. The longest answer is a difference.
const LIMITS: Limits = Limits {
    connections: 64,
    head: Duration::from_secs(20),
    life: Some(Duration::from_secs(SECONDS_MAX + 60)),
    grace: Duration::from_secs(2),
};
/// Threads that read recordings.
const READERS: usize = 4;

/// The options of the server.
pub struct Options {
    /// Programs whose metrics and profiles are served.
    pub targets: Vec<Target>,
    /// The address to listen on; port 0 is any that is free.
    pub address: SocketAddr,
    /// Names in the header `Host` that are answered beside addresses.
    pub names: Vec<String>,
    /// The token that requests need; none if they need none.
    pub token: Option<String>,
    /// Series of `/metrics`, at most.
    pub series: usize,
    /// How long processes that have ended are kept.
    pub linger: Duration,
    /// Applies the selection of the command line to processes in profiles.
    pub prepare: Prepare,
    /// The collector that gets metrics and profiles, if there is one.
    pub otlp: Option<Otlp>,
    /// The version of the command.
    pub version: &'static str,
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
    pusher: Option<Pusher>,
    runtime: Runtime,
}

impl Server {
    /// Listens; nothing is read yet.
    ///
    /// Errors: nothing can listen at the address.
    pub fn start(options: Options) -> Result<Server, Error> {
        let Options { targets, address, names, token, series, linger, .. } = options;
        let Options { prepare, otlp, version, .. } = options;
        let (listener, address) =
            connections::listen(address).map_err(|source| Error::Listen { address, source })?;
        let collector = Collector::new(targets, series, linger, version);
        let app = Arc::new(App {
            access: Access::new(address, names, token),
            readings: Readings::new(collector),
            profiles: Profiles::new(prepare),
        });
        let pusher = otlp.map(|otlp| Pusher::new(otlp, app.clone(), version));
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(READERS).build();
        Ok(Server { listener, address, app, pusher, runtime: runtime.map_err(Error::Start)? })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until SIGTERM or Ctrl-C.
    ///
    /// Errors: there can be no server.
    pub fn run(self) -> Result<(), Error> {
        let Server { listener, app, pusher, runtime, .. } = self;
        let routes = routes::routes(app);
        if let Some(pusher) = pusher {
            runtime.spawn(pusher.run());
        }
        let served = runtime.block_on(connections::serve(listener, routes, LIMITS, end()));
        // What is being read is of no use to anybody.
        runtime.shutdown_background();
        served.map_err(Error::Start)
    }
}

/// Is ready when a signal ends the server.
async fn end() -> io::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminated.recv() => Ok(()),
        result = tokio::signal::ctrl_c() => result,
    }
}
