//! Names in folded lines, and the smallest width of a box in a flame graph.

/// Characters of a name. A box rarely has room for more, and its tooltip shows all of them.
pub(crate) const NAME: usize = 160;
/// Boxes narrower than a tenth of a pixel, this fraction of the whole, are merged into their
/// parent.
pub(crate) const LEAST_PARTS: u64 = 12_000;

/// Returns a name that can be part of a line. Semicolons separate frames, and a number after the
/// last space would be read as a value, even in a frame that is not the last.
pub(crate) fn plain(name: &str) -> String {
    let name = name.trim().replace(';', ":");
    match name.rsplit_once(' ') {
        Some((words, last)) if last.parse::<f64>().is_ok() => format!("{words}\u{a0}{last}"),
        _ => name,
    }
}
