//! Records 40 programs and writes the first lines of their summaries to `docs/first-answers.md`.

mod classics;
mod document;
mod launchers;
mod pictures;
mod program;
mod record;
mod runtimes;
mod services;

use std::path::Path;

use crate::commands;
use document::Document;
use program::Program;

const GROUPS: [(&str, &[Program]); 4] = [
    ("Launchers", &launchers::PROGRAMS),
    ("Runtimes", &runtimes::PROGRAMS),
    ("Services", &services::PROGRAMS),
    ("Classics", &classics::PROGRAMS),
];

/// Records the named programs, or all; `--pictures` takes pictures of recorded ones instead.
pub fn answers(root: &Path, arguments: &[String]) -> Result<(), String> {
    let (pictures, names) = match arguments.split_first() {
        Some((first, rest)) if first == "--pictures" => (true, rest),
        _ => (false, arguments),
    };
    let all = || GROUPS.iter().flat_map(|(_, programs)| programs.iter());
    if let Some(unknown) = names.iter().find(|n| all().all(|p| p.name != n.as_str())) {
        let known: Vec<&str> = all().map(|p| p.name).collect();
        return Err(format!("answers: `{unknown}`: expected one of {}", known.join(", ")));
    }
    let chosen = all().filter(|p| names.is_empty() || names.iter().any(|n| n == p.name));
    let heaptide = commands::command(root);
    if !heaptide.exists() {
        let path = heaptide.display();
        return Err(format!("answers: no {path}; run `cargo build --workspace` first"));
    }
    let place = commands::target(root).join("answers");
    if pictures {
        return chosen.into_iter().try_for_each(|p| pictures::take(&heaptide, &place, p));
    }
    let mut document = Document::read(root)?;
    for program in chosen {
        println!("{}", program.name);
        match record::record(&heaptide, &place, program) {
            Ok(lines) => document.insert(root, program, &lines)?,
            Err(reason) => println!("  not recorded: {reason}; its section is kept"),
        }
        document.write(root, &GROUPS)?;
    }
    Ok(())
}
