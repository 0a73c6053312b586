//! Profiles with the paths, parameters and headers of Go's `net/http/pprof`.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{Html, IntoResponse, Response};
use heaptide_http::{PLAIN, Refusal};
use serde::Deserialize;

use crate::app::App;
use crate::collector::{Listed, Reading};
use crate::profiles::{Form, SECONDS_MAX, Which};

/// Query parameters; others, such as `gc`, are ignored.
#[derive(Deserialize)]
pub(crate) struct Asked {
    seconds: Option<String>,
    pid: Option<String>,
    debug: Option<String>,
}

/// Returns the profile whose default column is live memory.
pub(crate) async fn heap(
    State(app): State<Arc<App>>,
    Query(asked): Query<Asked>,
) -> Result<Response, Refusal> {
    profile(&app, Which::Heap, &asked).await
}

/// Returns the profile whose default column is allocations.
pub(crate) async fn allocations(
    State(app): State<Arc<App>>,
    Query(asked): Query<Asked>,
) -> Result<Response, Refusal> {
    profile(&app, Which::Allocations, &asked).await
}

async fn profile(app: &App, which: Which, asked: &Asked) -> Result<Response, Refusal> {
    let seconds = match asked.seconds.as_deref() {
        None | Some("" | "0") => None,
        Some(text) => {
            Some(text.parse::<u64>().ok().filter(|n| *n <= SECONDS_MAX).ok_or_else(|| {
                Refusal::bad(format_args!("seconds={text}: expected 1 to {SECONDS_MAX}"))
            })?)
        }
    };
    let form = match asked.debug.as_deref() {
        None | Some("" | "0") => Form::Binary,
        Some(_) if seconds.is_some() => {
            return Err(Refusal::bad("debug= and seconds= cannot be combined; omit one"));
        }
        Some(_) => Form::Text,
    };
    let reading = app.readings.now().await?;
    let processes = chosen(&reading, asked.pid.as_deref())?;
    let bytes = match seconds {
        None => app.profiles.now((which, form), &processes).await?.bytes.clone(),
        Some(seconds) => {
            let time = Duration::from_secs(seconds);
            app.profiles.difference(which, &processes, time).await?.bytes
        }
    };
    if form == Form::Text {
        return Ok(([(CONTENT_TYPE, PLAIN)], bytes).into_response());
    }
    let name = match which {
        Which::Heap => "attachment; filename=\"heap\"",
        Which::Allocations => "attachment; filename=\"allocs\"",
    };
    let headers = [(CONTENT_TYPE, "application/octet-stream"), (CONTENT_DISPOSITION, name)];
    Ok((headers, bytes).into_response())
}

/// Returns the process with an id, or all running processes.
fn chosen(reading: &Reading, pid: Option<&str>) -> Result<Vec<Listed>, Refusal> {
    let Some(pid) = pid else {
        if reading.running.is_empty() {
            return Err(Refusal::missing("no recorded process runs"));
        }
        return Ok(reading.running.clone());
    };
    let ended = reading.processes.iter().filter(|listed| listed.image.is_some());
    let mut all = reading.running.iter().chain(ended);
    let found = all.find(|listed| &*listed.pid == pid);
    let missing = || Refusal::missing(format_args!("pid={pid}: no such process is recorded here"));
    found.map(|found| vec![found.clone()]).ok_or_else(missing)
}

/// Returns the list of profiles as a page.
pub(crate) async fn index(State(app): State<Arc<App>>) -> Result<Html<String>, Refusal> {
    let reading = app.readings.now().await?;
    let mut page = String::from(
        "<!DOCTYPE html><html lang=\"en\"><title>Profiles</title><h1>Profiles</h1>\
         <p>For <code>go tool pprof</code>, Parca and Pyroscope; <code>?seconds=N</code> is the \
         difference over N seconds.</p>",
    );
    let links = |query: &str| {
        format!("<a href=\"heap{query}\">heap</a> <a href=\"allocs{query}\">allocs</a>")
    };
    let _ = write!(page, "<p>{} of all running processes</p><ul>", links(""));
    for listed in &reading.running {
        let links = links(&format!("?pid={}", listed.pid));
        let _ = write!(page, "<li>{links} of pid {} ({})</li>", listed.pid, html(&listed.program));
    }
    page.push_str("</ul></html>\n");
    Ok(Html(page))
}

/// Escapes a text for a page.
fn html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
