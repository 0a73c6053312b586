//! Names in folded lines, and what is too small for a flame graph.

/// Characters of a name; a box rarely has room for more, and its tooltip shows all of these.
pub(crate) const NAME: usize = 160;
/// Boxes narrower than a tenth of a pixel, this share of the whole, are merged into the one below.
pub(crate) const LEAST_PARTS: u64 = 12_000;

/// A name that can be part of a line: a semicolon separates frames, and a number after a space is
/// a value, also one before the last.
pub(crate) fn plain(name: &str) -> String {
    let name = name.trim().replace(';', ":");
    match name.rsplit_once(' ') {
        Some((words, last)) if last.parse::<f64>().is_ok() => format!("{words}\u{a0}{last}"),
        _ => name,
    }
}
