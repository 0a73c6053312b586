//! What changes, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::{Stream, StreamExt};

use crate::app::App;
use crate::changes::Change;

/// Answers with events until the client leaves.
pub(crate) async fn changes(
    State(app): State<Arc<App>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let events = BroadcastStream::new(app.changes.listen()).map(|change| {
        let event = match change {
            Ok(Change { event, data }) => Event::default().event(event).data(&*data),
            // What a slow client has missed is found out by looking at everything again.
            Err(_) => Event::default().event("recordings").data("{}"),
        };
        Ok(event)
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}
