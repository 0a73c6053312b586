//! Tables of processes for the page.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use crate::app::App;
use crate::store::{For, Part};
use heaptide_http::Refusal;

/// A request for tables.
#[derive(Deserialize)]
pub(crate) struct Asked {
    process: u32,
    snapshot: Option<u32>,
    from: Option<u64>,
    to: Option<u64>,
    #[serde(default)]
    filter: String,
    /// The version that the page already has.
    since: Option<u64>,
}

impl Asked {
    fn part(&self) -> Part {
        let span = match (self.from, self.to) {
            (None, None) => None,
            (from, to) => Some((from.unwrap_or(0), to.unwrap_or(u64::MAX))),
        };
        Part { process: self.process, snapshot: self.snapshot, span, filter: self.filter.clone() }
    }
}

/// Returns the tables, or nothing if the page has this version.
pub(crate) async fn data(
    State(app): State<Arc<App>>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(asked) = asked.map_err(Refusal::bad)?;
    let chosen = app.store.chosen(&asked.part(), For::Page).await?;
    let version = chosen.loaded.version;
    let mut response = if asked.since == Some(version) {
        StatusCode::NO_CONTENT.into_response()
    } else {
        let tables = app.store.tables(&chosen).await?;
        let kind = [(CONTENT_TYPE, "application/octet-stream")];
        (kind, tables.bytes.clone()).into_response()
    };
    let headers = response.headers_mut();
    headers.insert("x-heaptide-version", version.into());
    headers.insert("x-heaptide-exact", axum::http::HeaderValue::from_static(chosen.exact.name()));
    if let Some((from, to)) = chosen.span {
        headers.insert("x-heaptide-from", from.into());
        headers.insert("x-heaptide-to", to.into());
    }
    Ok(response)
}
