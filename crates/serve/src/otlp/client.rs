//! A request to a collector, with a time limit.

use std::fmt;
use std::io::Write;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use axum::http::{Method, Request, StatusCode};
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::endpoint::Endpoint;

/// Time limit of a request.
const TIME: Duration = Duration::from_secs(10);
/// Maximum number of bytes of a response that are read.
const ANSWER_MAX: usize = 64 << 10;

/// The reason why a collector did not accept a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// The connection failed.
    Unreachable(String),
    /// The response did not arrive in time.
    Late,
    /// The response has this status.
    Status {
        status: StatusCode,
        /// Requested delay before the next attempt.
        after: Option<Duration>,
    },
    /// The response is not valid HTTP.
    Nonsense(String),
}

impl Failure {
    /// Returns whether a retry may succeed: see the specification of OTLP, "Retryable Response
    /// Codes".
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Failure::Status { status, .. } => matches!(status.as_u16(), 429 | 502 | 503 | 504),
            Failure::Unreachable(_) | Failure::Late | Failure::Nonsense(_) => true,
        }
    }

    /// Returns whether it is the same kind of failure, which is reported only once.
    pub(crate) fn is_like(&self, other: &Failure) -> bool {
        match (self, other) {
            (Failure::Status { status, .. }, Failure::Status { status: other, .. }) => {
                status == other
            }
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Unreachable(why) => write!(f, "cannot connect: {why}"),
            Failure::Late => write!(f, "no response within {} s", TIME.as_secs()),
            Failure::Status { status, .. } if status.as_u16() == 404 => {
                write!(f, "answered {status}: the collector has no receiver for this")
            }
            Failure::Status { status, .. } => write!(f, "answered {status}"),
            Failure::Nonsense(why) => write!(f, "its response is not HTTP: {why}"),
        }
    }
}

/// Sends a message to a path below the address of the collector.
///
/// Errors: the collector did not accept it.
pub(crate) async fn send(
    endpoint: &Endpoint,
    path: &str,
    message: &[u8],
    version: &str,
) -> Result<(), Failure> {
    let body = compressed(message);
    let sent = exchange(endpoint, path, body, version);
    tokio::time::timeout(TIME, sent).await.unwrap_or(Err(Failure::Late))
}

async fn exchange(
    endpoint: &Endpoint,
    path: &str,
    body: Bytes,
    version: &str,
) -> Result<(), Failure> {
    let unreachable = |error: std::io::Error| Failure::Unreachable(error.to_string());
    let nonsense = |error: hyper::Error| Failure::Nonsense(error.to_string());
    let stream = TcpStream::connect((&*endpoint.host, endpoint.port)).await.map_err(unreachable)?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(nonsense)?;
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("{}{path}", endpoint.path))
        .header(HOST, endpoint.authority())
        .header(CONTENT_TYPE, "application/x-protobuf")
        .header(CONTENT_ENCODING, "gzip")
        .header(USER_AGENT, format!("heaptide/{version}"))
        .body(Body::from(body))
        .map_err(|error| Failure::Nonsense(error.to_string()))?;
    let driven = tokio::spawn(connection);
    let answered = async {
        let answer = sender.send_request(request).await.map_err(nonsense)?;
        let (status, after) = (answer.status(), answer.headers().get(RETRY_AFTER).cloned());
        // The response is read to its end, so that the connection is not reset. Its text is
        // ignored.
        let _ = to_bytes(Body::new(answer.into_body()), ANSWER_MAX).await;
        if status.is_success() {
            return Ok(());
        }
        let after = after.and_then(|after| after.to_str().ok()?.parse().ok());
        Err(Failure::Status { status, after: after.map(Duration::from_secs) })
    };
    let result = answered.await;
    driven.abort();
    result
}

fn compressed(message: &[u8]) -> Bytes {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    let _ = gzip.write_all(message); // writing to memory cannot fail
    gzip.finish().unwrap_or_default().into()
}
