//! Requests to running programs.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use heaptide_control::{Action, Control, Outcome};
use serde::{Deserialize, Serialize};

use crate::app::App;
use heaptide_http::Refusal;

/// A request.
#[derive(Deserialize)]
pub(crate) struct Asked {
    process: u32,
    action: String,
    #[serde(default)]
    text: String,
}

/// The result of a request.
#[derive(Serialize)]
pub(crate) struct Answer {
    done: String,
    later: Option<String>,
}

/// Performs a request of the page to a program.
pub(crate) async fn control(
    State(app): State<Arc<App>>,
    asked: Result<Json<Asked>, JsonRejection>,
) -> Result<Json<Answer>, Refusal> {
    if !app.has_control {
        return Err(Refusal::forbidden("programs are not controlled without --control"));
    }
    let Json(asked) = asked.map_err(Refusal::bad)?;
    let action = action(&asked.action, asked.text)?;
    let catalog = app.catalog.clone();
    let perform = move || {
        let (_, numbered) = catalog.process(asked.process)?;
        let ended = || Refusal::conflict(format_args!("pid {} has ended", numbered.image.pid));
        let running = numbered.running().ok_or_else(ended)?;
        let outcome = Control::open(&running).and_then(|control| control.perform(&action));
        outcome.map_err(Refusal::conflict)
    };
    let Outcome { done, later } =
        tokio::task::spawn_blocking(perform).await.map_err(Refusal::failed)??;
    Ok(Json(Answer { done: done.trim_end().to_owned(), later }))
}

/// Returns the action with this name, as in `heaptide ctl` and on the page's buttons.
fn action(name: &str, text: String) -> Result<Action, Refusal> {
    Ok(match name {
        "mark" if text.is_empty() => return Err(Refusal::bad("a mark needs a name")),
        "mark" => Action::Mark(text),
        "snapshot" => Action::Snapshot(text),
        "on" | "start" => Action::On,
        "off" | "stop" => Action::Off,
        "reset" => Action::Reset,
        "flush" => Action::Flush,
        "status" => Action::Status,
        other => {
            let names = "mark, snapshot, start, stop, reset, flush, status";
            return Err(Refusal::bad(format_args!("unknown action `{other}`; expected {names}")));
        }
    })
}
