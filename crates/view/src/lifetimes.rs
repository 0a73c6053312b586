//! Lifetimes of blocks by site.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use heaptide_analysis::views::lifetimes::Lifetimes;
use heaptide_render::page;
use serde::Deserialize;

use crate::app::App;
use crate::store::{For, Part};
use heaptide_http::Refusal;

/// A request for lifetimes of a part of a process.
#[derive(Deserialize)]
pub(crate) struct Asked {
    process: u32,
    from: Option<u64>,
    to: Option<u64>,
    #[serde(default)]
    filter: String,
    /// The version of the tables that the sites refer to.
    version: Option<u64>,
}

/// Returns lifetimes as columns for the sites of the tables, from the trace of a process.
pub(crate) async fn lifetimes(
    State(app): State<Arc<App>>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(Asked { process, from, to, filter, version }) = asked.map_err(Refusal::bad)?;
    let span = match (from, to) {
        (None, None) => None,
        (from, to) => Some((from.unwrap_or(0), to.unwrap_or(u64::MAX))),
    };
    let part = Part { process, snapshot: None, span, filter };
    let chosen = app.store.chosen(&part, For::Page).await?;
    if version.is_some_and(|version| version != chosen.loaded.version) {
        return Err(Refusal::conflict("the tables have changed; load them again"));
    }
    let replay = move || {
        let process = chosen.loaded.process()?;
        if !process.has_trace() {
            return Err(Refusal::conflict("lifetimes are known from a trace only"));
        }
        let found = match chosen.span {
            Some((from, to)) => Lifetimes::of(&process.during(from, to)?, from..to),
            None => Lifetimes::of(process, 0..u64::MAX),
        };
        page::lifetimes(&found.map_err(Refusal::conflict)?).map_err(Refusal::failed)
    };
    let bytes = tokio::task::spawn_blocking(replay).await.map_err(Refusal::failed)??;
    Ok(([(CONTENT_TYPE, "application/octet-stream")], bytes).into_response())
}
