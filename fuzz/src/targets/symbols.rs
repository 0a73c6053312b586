//! Any bytes as `symbols.json`: an error, or names that survive writing and reading.

use std::fs;
use std::sync::LazyLock;

use heaptide_analysis::files::file_names::SYMBOLS_FILE;
use heaptide_analysis::model::Recording;
use heaptide_analysis::symbols::Symbols;
use heaptide_fixtures::ProgramBuilder;

use super::profile_reader::check;
use crate::fixtures::in_scratch;

static PROFILE: LazyLock<Vec<u8>> =
    LazyLock::new(|| ProgramBuilder::with_stacks(&["main;read;@malloc"]).profile.finish());

/// Opens a recording with these names, then writes and reads the names.
pub fn symbols(input: &[u8]) -> bool {
    in_scratch(|scratch| {
        scratch.write(SYMBOLS_FILE, input);
        let profile = scratch.write("1-0.profile", &PROFILE);
        let recording = Recording::open(&profile).expect("damaged names leave the profile");
        check(&recording.processes[0]);
        let Ok(Some(read)) = Symbols::read(scratch) else {
            return false;
        };
        assert_eq!(recording.damaged, []);
        read.write(scratch).expect("room");
        let written = || fs::read(scratch.join(SYMBOLS_FILE)).expect("a file");
        let first = written();
        let again = Symbols::read(scratch).expect("what was written").expect("a file");
        again.write(scratch).expect("room");
        assert_eq!(written(), first);
        true
    })
}
