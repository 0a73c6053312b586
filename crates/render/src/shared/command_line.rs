//! The command of a process in a line.

use heaptide_analysis::model::Process;

use crate::shared::frames::file_name;
use crate::shared::names::printable;

/// The command as one would type it, as far as it fits.
pub(crate) fn command_line(process: &Process, width: usize) -> String {
    let joined = process.identity.images > 1;
    let plain = |c: char| c.is_alphanumeric() || "_-+./=:,@%^".contains(c);
    let quoted = process.identity.command.iter().enumerate().map(|(i, word)| {
        let word = if i == 0 { file_name(word) } else { word };
        if joined || !word.is_empty() && word.chars().all(plain) {
            word.to_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''").replace('\n', "⏎"))
        }
    });
    let line = quoted.collect::<Vec<_>>().join(" ");
    let line = if line.is_empty() { file_name(&process.identity.program).to_owned() } else { line };
    let line = printable(&line);
    if line.chars().count() > width {
        line.chars().take(width.saturating_sub(1)).chain(['…']).collect()
    } else {
        line.into_owned()
    }
}
