//! Rejected requests, and the line that explains the reason.

use std::fmt::Display;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

/// The content type of such lines.
pub const PLAIN: &str = "text/plain; charset=utf-8";

/// A rejected request, and the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The status of the response.
    pub status: StatusCode,
    /// The reason: one line, or an error of a query with its location below.
    pub line: String,
}

impl Refusal {
    /// The request is invalid.
    pub fn bad(line: impl Display) -> Refusal {
        Refusal { status: StatusCode::BAD_REQUEST, line: line.to_string() }
    }

    /// The client is not allowed to do this.
    pub fn forbidden(line: impl Display) -> Refusal {
        Refusal { status: StatusCode::FORBIDDEN, line: line.to_string() }
    }

    /// The requested resource does not exist.
    pub fn missing(line: impl Display) -> Refusal {
        Refusal { status: StatusCode::NOT_FOUND, line: line.to_string() }
    }

    /// The recording has no such data, or no longer.
    pub fn conflict(line: impl Display) -> Refusal {
        Refusal { status: StatusCode::CONFLICT, line: line.to_string() }
    }

    /// The server cannot answer now.
    pub fn busy(line: impl Display) -> Refusal {
        Refusal { status: StatusCode::SERVICE_UNAVAILABLE, line: line.to_string() }
    }

    /// A token is missing or wrong.
    pub fn unauthorized(line: impl Display) -> Refusal {
        Refusal { status: StatusCode::UNAUTHORIZED, line: line.to_string() }
    }

    /// A file cannot be read, or the server has an internal error.
    pub fn failed(line: impl Display) -> Refusal {
        Refusal { status: StatusCode::INTERNAL_SERVER_ERROR, line: line.to_string() }
    }
}

impl From<heaptide_analysis::Error> for Refusal {
    fn from(error: heaptide_analysis::Error) -> Refusal {
        use heaptide_analysis::Error::{
            Missing, NoProfiles, NoSnapshot, NoTrace, NoTraceInSnapshot,
        };
        match error {
            Missing { .. } | NoProfiles { .. } | NoSnapshot { .. } => Refusal::missing(error),
            NoTrace { .. } | NoTraceInSnapshot { .. } => Refusal::conflict(error),
            error => Refusal::failed(error),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, [(CONTENT_TYPE, PLAIN)], format!("{}\n", self.line)).into_response()
    }
}
