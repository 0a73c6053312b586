//! The bytes of a connection, and the body of its response: they determine whether the client waits
//! or a response is being sent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::clients::Client;

/// What the bytes and the body share.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) client: Client,
    /// Whether all of the response is in the buffer of the connection.
    is_buffered: AtomicBool,
}

impl Progress {
    /// Creates it for a connection without a request.
    pub(crate) fn new(client: Client) -> Arc<Progress> {
        Arc::new(Progress { client, is_buffered: AtomicBool::new(false) })
    }
}

/// A connection whose bytes are counted.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) stream: TcpStream,
    pub(crate) progress: Arc<Progress>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = bytes.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, bytes);
        let count = bytes.filled().len() - before;
        if count > 0 {
            self.progress.client.receive(count);
        }
        result
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    /// The server flushes when it has written everything that it has.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.progress.is_buffered.swap(false, Ordering::Relaxed) {
            self.progress.client.wait();
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// The body of a response.
pub(crate) struct Sent {
    body: Body,
    progress: Arc<Progress>,
}

impl Sent {
    /// Wraps the body of a response, which is being sent from now on.
    pub(crate) fn wrap(body: Body, progress: Arc<Progress>) -> Body {
        let bytes = body.size_hint().exact().unwrap_or_default(); // events are small
        progress.client.send(usize::try_from(bytes).unwrap_or(usize::MAX));
        Body::new(Sent { body, progress })
    }
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.progress.is_buffered.store(true, Ordering::Relaxed);
    }
}
