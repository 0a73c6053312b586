//! The server: its options, start and end.

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

/// Limits for clients. Requests of differences take longest.
const LIMITS: Limits = Limits {
    requests: 64,
    connections: 4096,
    unsent: 64 << 20,
    head: Duration::from_secs(20),
    life: Some(Duration::from_secs(SECONDS_MAX + 60)),
    grace: Duration::from_secs(2),
};
/// The number of threads that read recordings.
const READERS: usize = 4;

/// The options of the server.
pub struct Options {
    /// Programs whose metrics and profiles are served.
    pub targets: Vec<Target>,
    /// The address to listen on; port 0 selects any free port.
    pub address: SocketAddr,
    /// Values of the header `Host` that are accepted in addition to addresses.
    pub names: Vec<String>,
    /// The token that requests need; `None` if none is required.
    pub token: Option<String>,
    /// Maximum number of series of `/metrics`.
    pub series: usize,
    /// How long ended processes are kept.
    pub linger: Duration,
    /// Applies the selection of the command line to processes in profiles.
    pub prepare: Prepare,
    /// Options of sending metrics and profiles to a collector, if there is one.
    pub otlp: Option<Otlp>,
    /// The version of the command.
    pub version: &'static str,
}

/// A listening server.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
    pusher: Option<Pusher>,
    runtime: Runtime,
}

impl Server {
    /// Starts to listen, without reading anything.
    ///
    /// Errors: listening on the address failed.
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

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves requests until SIGTERM or Ctrl-C.
    ///
    /// Errors: the server cannot be started.
    pub fn run(self) -> Result<(), Error> {
        let Server { listener, app, pusher, runtime, .. } = self;
        let routes = routes::routes(app);
        if let Some(pusher) = pusher {
            runtime.spawn(pusher.run());
        }
        let served = runtime.block_on(connections::serve(listener, routes, LIMITS, end()));
        // Running reads are no longer needed.
        runtime.shutdown_background();
        served.map_err(Error::Start)
    }
}

/// Completes when a signal ends the server.
async fn end() -> io::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminated.recv() => Ok(()),
        result = tokio::signal::ctrl_c() => result,
    }
}
