//! The routes of the server, and the check of each request.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, LOCATION};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use heaptide_render::page;
use serde::Serialize;

use crate::app::App;
use crate::catalog::{Moment, Recording};
use crate::{control, data, events, findings, lifetimes, owners, query, source};
use heaptide_http::Refusal;
use heaptide_http::access;

/// The routes.
pub(crate) fn routes(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(shell))
        .route("/api/recordings", get(recordings))
        .route("/api/data", get(data::data))
        .route("/api/changes", get(events::changes))
        .route("/api/lifetimes", get(lifetimes::lifetimes))
        .route("/api/findings", get(findings::findings))
        .route("/api/owners", get(owners::owners))
        .route("/api/query", get(query::query))
        .route("/api/source", get(source::source))
        .route("/api/control", post(control::control))
        .fallback(nothing)
        .layer(middleware::from_fn_with_state(app.clone(), guard))
        .with_state(app)
}

async fn nothing() -> Refusal {
    Refusal::missing("no such page")
}

/// Rejects requests without the token or from other sites, and protects responses from other pages.
async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut response = match check(&app, &request) {
        Ok(None) => next.run(request).await,
        Ok(Some(response)) => response,
        Err(refusal) => refusal.into_response(),
    };
    access::protect(&mut response);
    response
}

/// Checks a request; returns the response if it is already known.
fn check(app: &App, request: &Request) -> Result<Option<Response>, Refusal> {
    app.access.check_site(request)?;
    let query = request.uri().query().unwrap_or_default();
    let is_page = request.method() == Method::GET && request.uri().path() == "/";
    if is_page && app.access.takes_ticket(query) {
        let to = format!("/?{}", app.access.query());
        return Ok(Some((StatusCode::SEE_OTHER, [(LOCATION, to)]).into_response()));
    }
    app.access.check_token(query)?;
    Ok(None)
}

/// Returns the page without data.
async fn shell(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    let names: Vec<String> = app.catalog.listed().iter().map(|listed| listed.name()).collect();
    let nonce = access::random().map_err(Refusal::failed)?;
    let page = page::shell(&names.join(", "));
    let page = page.replace("<script>", &format!("<script nonce=\"{nonce}\">"));
    let page = page.replace("<style>", &format!("<style nonce=\"{nonce}\">"));
    let policy = access::policy_of_page(&nonce);
    Ok(([(CONTENT_SECURITY_POLICY, policy)], Html(page)).into_response())
}

/// The available recordings.
#[derive(Serialize)]
struct Recordings {
    version: &'static str,
    control: bool,
    query: bool,
    recordings: Vec<Recording>,
    /// The parts that the command line names, in order, to show first.
    moments: Vec<Moment>,
}

async fn recordings(State(app): State<Arc<App>>) -> Result<Json<Recordings>, Refusal> {
    let catalog = app.catalog.clone();
    let described = tokio::task::spawn_blocking(move || catalog.describe()).await;
    let (recordings, moments) = described.map_err(Refusal::failed)??;
    let (version, control, query) = (app.version, app.has_control, true);
    Ok(Json(Recordings { version, control, query, recordings, moments }))
}
