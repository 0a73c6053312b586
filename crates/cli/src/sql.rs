//! Commands that need the SQL engine: it is a program of its own, `heaptide-sql`, since few need
//! it and it is many times as large as this one.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use heaptide_command::error::Error;
use heaptide_command::outcome::Outcome;
use heaptide_supervise::exec;

/// The program.
const PROGRAM: &str = "heaptide-sql";

/// Becomes the program, with the arguments of this one: they mean the same there.
///
/// Errors: it is not installed, or exec fails.
pub fn hand_over(what: &str) -> Outcome {
    let program = program(what)?;
    // A program with a `main` of its own that is linked with musl has no arguments in `env`.
    let arguments = exec::inherited().map(|inherited| &*inherited.arguments).unwrap_or_default();
    let error = Command::new(&program).args(arguments.iter().skip(1)).exec();
    Err(Error::file(&program, "start it", error).into())
}

/// Where the program is, for what needs it.
///
/// Errors: it is not installed.
pub fn program(what: &str) -> Result<PathBuf, Error> {
    find().ok_or_else(|| {
        Error::new(format!(
            "{what} requires {PROGRAM}, which is neither next to heaptide nor in PATH; \
             install it with `cargo install --path crates/sql` in a checkout of heaptide"
        ))
    })
}

/// The program beside this one, else in PATH.
fn find() -> Option<PathBuf> {
    let beside = env::current_exe().ok().map(|here| here.with_file_name(PROGRAM));
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|directory| directory.join(PROGRAM));
    beside.into_iter().chain(in_path).find(|program| program.is_file())
}
