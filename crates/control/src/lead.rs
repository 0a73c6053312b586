//! The lead among commands that write to the same recording. Only the command with the lead moves
//! events and takes snapshots.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use heaptide_analysis::recording::members;

/// The lead of a recording. The first member of a launch takes it; when that member ends or is
/// killed, another one takes over.
#[derive(Debug)]
pub struct Lead {
    /// The shared recording; `None` if no other command writes to it.
    shared: Option<PathBuf>,
    /// The locked file, once this command has the lead.
    held: Mutex<Option<File>>,
}

impl Lead {
    /// Creates the lead of a recording that a single command writes to.
    pub fn alone() -> Lead {
        Lead { shared: None, held: Mutex::new(None) }
    }

    /// Creates the lead of a recording that the members of a launch write to.
    pub fn among(recording: &Path) -> Lead {
        Lead { shared: Some(recording.to_owned()), held: Mutex::new(None) }
    }

    /// Returns whether this command has the lead; takes it if no other command has it, and keeps it
    /// until this is dropped. On a file system without locks, no command has it; then sealing moves
    /// the events.
    pub fn is_ours(&self) -> bool {
        let Some(recording) = &self.shared else { return true };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_none() {
            let first = members::open_first(recording).ok();
            *held = first.filter(|first| first.try_lock().is_ok());
        }
        held.is_some()
    }
}

#[cfg(test)]
mod tests {
    use heaptide_analysis::recording::metadata::Member;
    use heaptide_fixtures::Scratch;

    use super::*;

    #[test]
    fn one_has_the_lead_and_another_gets_it() {
        let place = Scratch::new("lead");
        assert!(!Lead::among(&place).is_ours(), "without a member");
        members::add(&place, &Member::default()).expect("a member");
        let [first, second] = [Lead::among(&place), Lead::among(&place)];
        assert!(first.is_ours() && !second.is_ours() && first.is_ours());
        drop(first);
        assert!(second.is_ours());
        assert!(Lead::alone().is_ours());
    }
}
