//! Which blocks of a program were lost: what a search of its memory found.

use super::parsed::{Lost, Profile};

/// The beginning of the note on a process whose search failed.
pub const NOT_SEARCHED: &str = "its memory was not searched when it ended";

/// Stores in a profile which blocks were lost when the process was searched, if it was.
pub(crate) fn apply(profile: &mut Profile) {
    let mut lost = Lost::default();
    match &profile.search {
        Some(Ok(search)) => {
            for row in search.retained.sites.iter().filter(|row| row.state.is_lost()) {
                lost.sites.entry(row.site).or_default().plus(row.kept);
            }
            lost.searched = Some(search.when);
        }
        Some(Err(why)) => profile.notes.push(format!("{NOT_SEARCHED}: {why}")),
        None => {}
    }
    profile.lost = Some(Box::new(lost));
}
