//! The command of a process in one line.

use heaptide_analysis::model::Process;

use crate::shared::frames::file_name;
use crate::shared::names::printable;

/// Returns the title that a process (nginx, chromium) wrote over its arguments, without the
/// directory of the program, or `None` if the first argument is not a title. A title is one
/// argument with spaces.
fn title<'a>(word: &'a str, program: &str) -> Option<&'a str> {
    let first = word.split(' ').next().filter(|first| first.len() < word.len())?;
    let name = file_name(first);
    let is_title = name.starts_with(file_name(program)) && !program.is_empty();
    is_title.then(|| &word[first.len() - name.len()..])
}

/// Returns the command as typed in a shell, shortened to `width` characters.
pub fn command_line(process: &Process, width: usize) -> String {
    let identity = &process.identity;
    typed(&identity.command, &identity.program, identity.images > 1, width)
}

/// Like [`command_line`], for a process whose tables were not read.
pub fn command_line_of(command: &[String], program: &str, width: usize) -> String {
    typed(command, program, false, width)
}

fn typed(command: &[String], program: &str, joined: bool, width: usize) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-+./=:,@%^".contains(c);
    let quoted = command.iter().enumerate().map(|(i, word)| {
        let title = (i == 0).then(|| title(word, program)).flatten();
        if let Some(title) = title {
            return title.to_owned();
        }
        let word = if i == 0 { file_name(word) } else { word };
        if joined || !word.is_empty() && word.chars().all(plain) {
            word.to_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''").replace('\n', "⏎"))
        }
    });
    let line = quoted.collect::<Vec<_>>().join(" ");
    let line = if line.is_empty() { file_name(program).to_owned() } else { line };
    let line = printable(&line);
    if line.chars().count() > width {
        line.chars().take(width.saturating_sub(1)).chain(['…']).collect()
    } else {
        line.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::title;

    #[test]
    fn titles_have_no_directory_cut_out_of_them() {
        let master = "nginx: master process nginx -c /tmp/a/nginx.conf";
        assert_eq!(title(master, "/usr/sbin/nginx"), Some(master));
        let renderer = "/usr/lib/chromium/chromium --type=renderer --user-data-dir=/tmp/p";
        let shown = "chromium --type=renderer --user-data-dir=/tmp/p";
        assert_eq!(title(renderer, "/usr/lib/chromium/chromium"), Some(shown));
        assert_eq!(title("/opt/My App/app", "/opt/My App/app"), None, "a path with a space");
        assert_eq!(title("/usr/bin/app", "/usr/bin/app"), None);
    }
}
