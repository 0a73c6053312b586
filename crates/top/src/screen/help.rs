//! The keys: a line at the bottom, and the full list.

use ratatui::text::Span;

use super::style::Style;
use crate::model::app::{App, Overlay, Status};

/// The keys and their effects.
pub(super) const KEYS: [(&str, &str); 21] = [
    ("1 … 7, Tab", "owners, functions, threads, scopes, labels, stacks, lines"),
    ("s, < and >", "order by the next column, or the one before"),
    ("r", "reverse the order"),
    ("↑ ↓ PgUp PgDn", "select a row; also j and k, Home and End, the wheel"),
    ("Enter", "go into a row: callers of a function, owners in a thread"),
    ("c", "callers or callees"),
    ("Backspace, Esc", "go back"),
    ("/", "filter: [KIND:]REGEX as in --focus, ! as in --ignore"),
    ("m", "mark: growth counts from now, and the recording gets a mark"),
    ("w, S", "take a snapshot"),
    ("Space", "pause, or play a replay"),
    ("← →", "order by another column; move through a replay"),
    ("g, G", "first or last row, or moment of a replay"),
    ("t", "chart of the whole run or of the last minute"),
    ("p", "processes of the recording"),
    ("click", "select a row, a view, a column to order by"),
    ("?", "this help"),
    ("Ctrl-Z", "suspend"),
    ("q, Ctrl-C", "quit"),
    ("", "live, blocks, bytes: usable; at peak: live at peak usage"),
    ("", "growth: since the mark or, without one, since top started"),
];

/// Returns the most important keys, as many as fit.
pub(super) fn keys(app: &App, width: usize, style: &Style) -> Vec<Span<'static>> {
    let is_replay = matches!(app.status, Status::Replay { .. });
    let keys: &[(&str, &str)] = match &app.overlay {
        Overlay::Processes { .. } => &[("Enter", "show"), ("Esc", "back")],
        Overlay::Help => &[("any key", "back")],
        _ if app.has_tree() => {
            &[("q", "quit"), ("?", "help"), ("c", "callers/callees"), ("⌫", "back"), ("s", "sort")]
        }
        _ if is_replay => &[
            ("q", "quit"),
            ("?", "help"),
            ("←→", "time"),
            ("Space", "play"),
            ("s", "sort"),
            ("/", "filter"),
            ("Enter", "callers"),
            ("m", "mark"),
            ("p", "processes"),
        ],
        _ => &[
            ("q", "quit"),
            ("?", "help"),
            ("s", "sort"),
            ("/", "filter"),
            ("Enter", "callers"),
            ("m", "mark"),
            ("w", "snapshot"),
            ("Space", "pause"),
            ("p", "processes"),
            ("t", "chart"),
        ],
    };
    let mut spans = Vec::new();
    let mut used = 0;
    for (key, does) in keys {
        let text = format!(" {does}  ");
        let needs = key.chars().count() + text.chars().count();
        if used + needs > width {
            break;
        }
        used += needs;
        spans.extend([Span::styled(*key, style.chosen()), Span::raw(text)]);
    }
    spans
}
