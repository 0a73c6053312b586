//! Connections: a limited number, each with time limits for its requests.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};

/// Maximum size of a request's header in bytes.
const HEAD_MAX: usize = 64 << 10;
/// Time limit for the last response of a connection that is being closed.
const LAST: Duration = Duration::from_secs(10);
/// Delay before accepting again after the system could not provide a connection.
const NO_ROOM: Duration = Duration::from_millis(100);

/// Limits for clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of concurrent connections; more have to wait.
    pub connections: u32,
    /// Time limit for a client to send the header of a request, including idle time before it.
    pub head: Duration,
    /// Maximum lifetime of a connection; unlimited if `None`.
    pub life: Option<Duration>,
    /// Time limit for requests that are being answered when the server ends.
    pub grace: Duration,
}

/// Listens on an address; port 0 selects any free port. Returns the address with its port.
///
/// Errors: binding is not permitted, or the port is in use.
///
/// ```
/// let (_, address) = heaptide_http::connections::listen("127.0.0.1:0".parse().unwrap()).unwrap();
/// assert_ne!(address.port(), 0);
/// ```
pub fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Answers requests until `end` completes, and returns its result.
///
/// Errors: the listener cannot be used, or that of `end`.
pub async fn serve(
    listener: TcpListener,
    routes: Router,
    limits: Limits,
    end: impl Future<Output = io::Result<()>>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(limits.connections as usize));
    let (ends, ended) = watch::channel(());
    let ended_by = tokio::select! {
        () = accept(listener, routes, limits, room.clone(), ended) => Ok(()),
        result = end => result,
    };
    drop(ends);
    // All permits are available once all connections have ended.
    let _ = tokio::time::timeout(limits.grace, room.acquire_many(limits.connections)).await;
    ended_by
}

async fn accept(
    listener: tokio::net::TcpListener,
    routes: Router,
    limits: Limits,
    room: Arc<Semaphore>,
    ended: watch::Receiver<()>,
) {
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let (routes, ended) = (routes.clone(), ended.clone());
                tokio::spawn(async move {
                    answer(stream, routes, limits, ended).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(NO_ROOM).await,
        }
    }
}

/// Answers the requests of a connection. When the server ends, or the connection's lifetime is
/// over, answers only the current request.
async fn answer(stream: TcpStream, routes: Router, limits: Limits, mut ended: watch::Receiver<()>) {
    let _ = stream.set_nodelay(true); // on failure, responses are only delayed
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head)
            .max_buf_size(HEAD_MAX)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes))
    );
    // An error means that the client sent invalid data or disconnected.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = ended.changed() => {}
        () = end_of(limits.life) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(LAST, connection).await;
}

/// Completes when the lifetime of a connection is over.
async fn end_of(life: Option<Duration>) {
    match life {
        Some(life) => tokio::time::sleep(life).await,
        None => std::future::pending().await,
    }
}
