//! Sends changes as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::{Stream, StreamExt};

use crate::app::App;
use crate::changes::Change;

/// Sends events until the client disconnects.
pub(crate) async fn changes(
    State(app): State<Arc<App>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let events = BroadcastStream::new(app.changes.listen()).map(|change| {
        let event = match change {
            Ok(Change { event, data }) => Event::default().event(event).data(&*data),
            // A slow client that has missed events has to update everything.
            Err(_) => Event::default().event("recordings").data("{}"),
        };
        Ok(event)
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}
