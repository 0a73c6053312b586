//! The routes of the server, and the check of each request.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;
use heaptide_http::access::protect;
use heaptide_http::{PLAIN, Refusal};

use crate::app::App;
use crate::pprof;
use crate::text::{self, Format};

/// Maximum number of reasons in a response.
const REASONS_MAX: usize = 20;

/// The routes.
pub(crate) fn routes(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/metrics", get(metrics))
        .route("/healthz", get(health))
        .route("/debug/pprof", get(|| async { Redirect::permanent("/debug/pprof/") }))
        .route("/debug/pprof/", get(pprof::index))
        .route("/debug/pprof/heap", get(pprof::heap))
        .route("/debug/pprof/allocs", get(pprof::allocations))
        .fallback(nothing)
        .layer(middleware::from_fn_with_state(app.clone(), guard))
        .with_state(app)
}

async fn nothing() -> Refusal {
    Refusal::missing("no such page; there are /metrics, /debug/pprof/ and /healthz")
}

/// Rejects requests from other sites or without the token.
async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut response = match app.access.check(&request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    if response.status() == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    protect(&mut response);
    response
}

async fn index() -> Html<&'static str> {
    Html(
        "<!DOCTYPE html><html lang=\"en\"><title>heaptide serve</title><h1>heaptide serve</h1>\
         <ul><li><a href=\"metrics\">metrics</a></li>\
         <li><a href=\"debug/pprof/\">debug/pprof</a></li>\
         <li><a href=\"healthz\">healthz</a></li></ul></html>\n",
    )
}

async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, Refusal> {
    let accept = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = Format::accepted(&accept.collect::<Vec<_>>().join(","));
    let reading = app.readings.now().await?;
    let text = text::text(&reading, format);
    Ok(([(CONTENT_TYPE, format.content_type())], text).into_response())
}

/// Returns whether everything can be read, and if not, why.
async fn health(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    let reading = app.readings.now().await?;
    if reading.failures.is_empty() {
        let line = match reading.running.len() {
            1 => "ok: 1 process runs\n".to_owned(),
            count => format!("ok: {count} processes run\n"),
        };
        return Ok(([(CONTENT_TYPE, PLAIN)], line).into_response());
    }
    let reasons = &reading.failures[..reading.failures.len().min(REASONS_MAX)];
    Err(Refusal::busy(reasons.join("\n")))
}
