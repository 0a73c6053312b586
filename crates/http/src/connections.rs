//! Connections: a limited number of requests is answered at the same time. A client takes part in
//! that only once its request is complete, so idle and slow clients do not delay others.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::Backlog;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::access::protect;
use crate::clients::Clients;
use crate::refusal::Refusal;
use crate::stream::{Counted, Progress, Sent};

/// One part in this of all sockets belongs to connections that are being closed.
const CLOSING_PART: usize = 8;
/// Maximum size of a request's header in bytes.
const HEAD_MAX: usize = 64 << 10;
/// Maximum size of a request's body in bytes.
const BODY_MAX: usize = 64 << 10;
/// Time limit for the last response of a connection that is being closed.
const LAST: Duration = Duration::from_secs(10);
/// Delay before accepting again after the system could not provide a connection.
const NO_ROOM: Duration = Duration::from_millis(100);
/// The same if connections were closed, which needs a moment.
const SOME_ROOM: Duration = Duration::from_millis(1);
/// Connections that the kernel completes before they are accepted.
const BACKLOG: i32 = 1024;

/// Limits for clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of requests that are answered at the same time; more have to wait.
    pub requests: usize,
    /// Maximum number of connections. If there are more, those that have been idle for the longest
    /// time are closed. At most half of the descriptors that the process may have.
    pub connections: usize,
    /// Maximum number of bytes of responses that clients have not read yet. If there are more, the
    /// oldest of these responses are aborted.
    pub unsent: usize,
    /// Time limit for a client to send the header of a request, and for its body. A connection may
    /// be idle for the same time.
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
    nix::sys::socket::listen(&listener, Backlog::new(BACKLOG)?)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Returns the number of connections for which there are descriptors, after raising the limit of
/// the process if possible. The other half is left for files.
fn connections_max(wanted: usize) -> usize {
    let needed = 2 * wanted as u64;
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return wanted };
    let raised = needed.min(hard);
    let is_raised = soft < raised && setrlimit(Resource::RLIMIT_NOFILE, raised, hard).is_ok();
    let limit = if is_raised { raised } else { soft };
    wanted.min(usize::try_from(limit / 2).unwrap_or(wanted)).max(1)
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
    let most = connections_max(limits.connections).max(2);
    // A connection that is being closed has its socket until its task runs.
    let clients = Clients::new(most - most / CLOSING_PART - 1, limits.unsent);
    let (ends, ended) = watch::channel(());
    let semaphore = |count| Arc::new(Semaphore::new(count));
    let (requests, sockets) = (semaphore(limits.requests), semaphore(most));
    let server = Server { routes, limits, requests, sockets };
    let ended_by = tokio::select! {
        () = accept(listener, server, clients.clone(), ended) => Ok(()),
        result = end => result,
    };
    drop(ends);
    let _ = timeout(limits.grace, clients.ended()).await;
    ended_by
}

/// What all connections share.
#[derive(Clone)]
struct Server {
    routes: Router,
    limits: Limits,
    requests: Arc<Semaphore>,
    sockets: Arc<Semaphore>,
}

async fn accept(
    listener: tokio::net::TcpListener,
    server: Server,
    clients: Arc<Clients>,
    ended: watch::Receiver<()>,
) {
    loop {
        // The semaphore is never closed.
        let Ok(socket) = server.sockets.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let (server, ended) = (server.clone(), ended.clone());
                let (client, closed) = clients.add();
                tokio::spawn(async move {
                    tokio::select! {
                        () = server.answer(stream, Progress::new(client), ended) => {}
                        _ = closed => {}
                    }
                    drop(socket);
                });
            }
            Err(_) if clients.close_some() => tokio::time::sleep(SOME_ROOM).await,
            Err(_) => tokio::time::sleep(NO_ROOM).await,
        }
    }
}

impl Server {
    /// Answers the requests of a connection. When the server ends, or the connection's lifetime is
    /// over, answers only the current request.
    async fn answer(
        self,
        stream: TcpStream,
        progress: Arc<Progress>,
        mut ended: watch::Receiver<()>,
    ) {
        let limits = self.limits;
        let _ = stream.set_nodelay(true); // on failure, responses are only delayed
        // A client that sends nothing needs no buffer.
        if !matches!(timeout(limits.head, stream.readable()).await, Ok(Ok(()))) {
            return;
        }
        let service = service_fn({
            let progress = progress.clone();
            move |request| self.clone().respond(request, progress.clone())
        });
        let mut connection = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(limits.head)
                .max_buf_size(HEAD_MAX)
                .serve_connection(TokioIo::new(Counted { stream, progress }), service)
        );
        // An error means that the client sent invalid data or disconnected.
        tokio::select! {
            _ = connection.as_mut() => return,
            _ = ended.changed() => {}
            () = end_of(limits.life) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = timeout(LAST, connection).await;
    }

    /// Answers a request once its body is complete and fewer requests than the limit are being
    /// answered.
    async fn respond(
        self,
        request: Request<Incoming>,
        progress: Arc<Progress>,
    ) -> Result<Response, Infallible> {
        let (head, body) = request.into_parts();
        let response = match complete(body, self.limits.head).await {
            Ok(body) => {
                let place = self.requests.acquire().await;
                progress.client.work();
                let request = Request::from_parts(head, Body::from(body));
                let response = TowerToHyperService::new(self.routes.clone()).call(request).await;
                drop(place);
                response.unwrap_or_else(|never| match never {})
            }
            Err(refusal) => {
                let mut response = refusal.into_response();
                protect(&mut response);
                response
            }
        };
        Ok(response.map(|body| Sent::wrap(body, progress)))
    }
}

/// Reads the body of a request.
///
/// Errors: it is too large, or the client sends it too slowly.
async fn complete(body: Incoming, within: Duration) -> Result<Bytes, Refusal> {
    let too_large = || Refusal {
        status: StatusCode::PAYLOAD_TOO_LARGE,
        line: format!("the body of the request has more than {BODY_MAX} bytes"),
    };
    if body.size_hint().lower() > BODY_MAX as u64 {
        return Err(too_large());
    }
    match timeout(within, to_bytes(Body::new(body), BODY_MAX)).await {
        Ok(body) => body.map_err(|_| too_large()),
        Err(_) => Err(Refusal {
            status: StatusCode::REQUEST_TIMEOUT,
            line: format!("the body of the request did not arrive within {within:?}"),
        }),
    }
}

/// Completes when the lifetime of a connection is over.
async fn end_of(life: Option<Duration>) {
    match life {
        Some(life) => tokio::time::sleep(life).await,
        None => std::future::pending().await,
    }
}
