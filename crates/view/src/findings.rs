//! Findings of rules for a process.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use heaptide_advise::{Advice, History};
use heaptide_render::page::Findings;
use serde::Deserialize;

use crate::app::App;
use crate::store::{For, Part};
use heaptide_http::Refusal;

/// A request for findings.
#[derive(Deserialize)]
pub(crate) struct Asked {
    process: u32,
    snapshot: Option<u32>,
    #[serde(default)]
    filter: String,
}

/// Returns the findings of a process, based on its stacks as recorded.
pub(crate) async fn findings(
    State(app): State<Arc<App>>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(Asked { process, snapshot, filter }) = asked.map_err(Refusal::bad)?;
    let part = Part { process, snapshot, span: None, filter };
    let chosen = app.store.chosen(&part, For::Query).await?;
    let judge = move || {
        let process = chosen.loaded.process()?;
        let advice = Advice::of(process, &History::default(), &app.suppressions);
        serde_json::to_vec(&Findings::of(process, &advice)).map_err(Refusal::failed)
    };
    let json = tokio::task::spawn_blocking(judge).await.map_err(Refusal::failed)??;
    Ok(([(CONTENT_TYPE, "application/json")], json).into_response())
}
