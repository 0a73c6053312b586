//! Formats changes.

use heaptide_render::shared::quantity::bytes;

/// Formats a change in bytes, with its sign.
pub(super) fn signed_bytes(change: i64) -> String {
    let size = bytes(change.unsigned_abs());
    match change {
        0 => "0".to_owned(),
        1.. => format!("+{size}"),
        _ => format!("-{size}"),
    }
}
