//! Live bytes over time by owner.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use heaptide_analysis::attribution::Owners;
use heaptide_analysis::views::owners_over_time::OwnersOverTime;
use heaptide_render::page;
use serde::Deserialize;

use crate::app::App;
use crate::store::{For, Part};
use heaptide_http::Refusal;

/// A request for owners.
#[derive(Deserialize)]
pub(crate) struct Asked {
    process: u32,
    #[serde(default)]
    filter: String,
}

/// Returns live bytes over time by owner, from the trace of a process.
pub(crate) async fn owners(
    State(app): State<Arc<App>>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(Asked { process, filter }) = asked.map_err(Refusal::bad)?;
    let part = Part { process, snapshot: None, span: None, filter };
    let chosen = app.store.chosen(&part, For::Page).await?;
    let replay = move || {
        let process = chosen.loaded.process()?;
        if !process.has_trace() {
            return Err(Refusal::conflict("owners over time are known from a trace only"));
        }
        let found = OwnersOverTime::of(process, &Owners::of(process), page::OWNERS);
        let found = found.map_err(Refusal::conflict)?;
        page::owners_over_time(process, &found).map_err(Refusal::failed)
    };
    let json = tokio::task::spawn_blocking(replay).await.map_err(Refusal::failed)??;
    Ok(([(CONTENT_TYPE, "application/json")], json).into_response())
}
