//! The connections: a bounded number, each with a time limit for its requests.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use heaptide_advise::Suppressions;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use crate::access::Access;
use crate::app::App;
use crate::catalog::{Catalog, Opened};
use crate::changes::Changes;
use crate::error::Error;
use crate::routes;
use crate::store::{Store, Words};

/// The most simultaneous connections; others wait.
const CONNECTIONS: usize = 512;
/// The time limit for a client to send the header of a request, including idle time before it.
const HEAD: Duration = Duration::from_secs(10);
/// The most bytes of a request's header.
const HEAD_MAX: usize = 64 << 10;
/// The number of threads that read recordings.
const READERS: usize = 4;
/// The pause in accepting connections after the system had no resources for one.
const NO_ROOM: Duration = Duration::from_millis(100);

/// What to serve, and where.
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
        let listen = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
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
        let served = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).map_err(Error::Start)?;
            let routes = routes::routes(app);
            tokio::spawn(serve(listener, routes));
            tokio::signal::ctrl_c().await.map_err(Error::Start)
        });
        // Running reads are no longer needed.
        runtime.shutdown_background();
        served
    }
}

async fn serve(listener: tokio::net::TcpListener, routes: Router) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let routes = routes.clone();
                tokio::spawn(async move {
                    answer(stream, routes).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(NO_ROOM).await,
        }
    }
}

/// Serves the requests of a connection.
async fn answer(stream: TcpStream, routes: Router) {
    let _ = stream.set_nodelay(true); // without it, responses are only delayed
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let _ = connection.await; // the client sent invalid data, or disconnected
}
