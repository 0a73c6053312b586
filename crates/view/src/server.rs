//! The server: its options, start and end.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use heaptide_advise::Suppressions;
use heaptide_http::connections::{self, Limits};
use tokio::runtime::{Builder, Runtime};

use crate::access::Access;
use crate::app::App;
use crate::catalog::{Catalog, Opened};
use crate::changes::Changes;
use crate::error::Error;
use crate::routes;
use crate::store::{Store, Words};

/// Limits for clients. Requests that wait for changes never end by themselves.
const LIMITS: Limits = Limits {
    requests: 512,
    connections: 4096,
    unsent: 1 << 30,
    head: Duration::from_secs(10),
    life: None,
    grace: Duration::ZERO,
};
/// The number of threads that read recordings.
const READERS: usize = 4;

/// The options of the server.
pub struct Options {
    /// The recordings.
    pub recordings: Vec<Opened>,
    /// A loopback address; port 0 means any free port.
    pub address: SocketAddr,
    /// Whether programs may be controlled.
    pub has_control: bool,
    /// Parses options of the command line.
    pub words: Words,
    /// Findings that the page omits.
    pub suppressions: Suppressions,
    /// The version of the command.
    pub version: &'static str,
}

/// A listening server.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
    runtime: Runtime,
}

impl Server {
    /// Opens the recordings and starts to listen.
    ///
    /// Errors: the address is not a loopback address or is in use, or a recording cannot be read.
    pub fn start(options: Options) -> Result<Server, Error> {
        let Options { recordings, address, has_control, words, suppressions, version } = options;
        if !address.ip().is_loopback() {
            return Err(Error::NotLoopback { address });
        }
        let catalog = Arc::new(Catalog::open(recordings)?);
        let (listener, address) =
            connections::listen(address).map_err(|source| Error::Listen { address, source })?;
        let access = Access::new(address)?;
        let store = Arc::new(Store::new(catalog.clone(), words));
        let changes = Arc::new(Changes::new(catalog.clone(), store.clone()));
        let app =
            Arc::new(App { access, catalog, store, changes, has_control, suppressions, version });
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(READERS).build();
        Ok(Server { listener, address, app, runtime: runtime.map_err(Error::Start)? })
    }

    /// Returns the address of the page, with the token.
    pub fn url(&self) -> String {
        format!("http://{}/?{}", self.address, self.app.access.query())
    }

    /// Returns an address that opens the page once, for command lines that others can read.
    pub fn url_once(&self) -> String {
        format!("http://{}/?{}", self.address, self.app.access.query_once())
    }

    /// Serves requests until Ctrl-C.
    ///
    /// Errors: the server cannot be started.
    pub fn run(self) -> Result<(), Error> {
        let Server { listener, app, runtime, .. } = self;
        let routes = routes::routes(app);
        let end = tokio::signal::ctrl_c();
        let served = runtime.block_on(connections::serve(listener, routes, LIMITS, end));
        // Running reads are no longer needed.
        runtime.shutdown_background();
        served.map_err(Error::Start)
    }
}
