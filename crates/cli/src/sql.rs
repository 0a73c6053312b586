//! Commands that need the SQL engine. That is a separate program, `heaptide-sql`, since few users
//! need it and it is many times as large as this one.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use heaptide_command::error::Error;
use heaptide_command::outcome::Outcome;
use heaptide_supervise::exec;

/// The name of the program.
const PROGRAM: &str = "heaptide-sql";

/// Replaces this process by that program, which accepts the same arguments.
///
/// Errors: it is not installed, or exec fails.
pub fn hand_over(what: &str) -> Outcome {
    let program = program(what)?;
    // In a program linked with musl that has its own `main`, `std::env` has no arguments.
    let arguments = exec::inherited().map(|inherited| &*inherited.arguments).unwrap_or_default();
    let error = Command::new(&program).args(arguments.iter().skip(1)).exec();
    Err(Error::file(&program, "start it", error).into())
}

/// Returns the path of the program, which `what` requires.
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

/// Finds the program next to this one, or in PATH.
fn find() -> Option<PathBuf> {
    let beside = env::current_exe().ok().map(|here| here.with_file_name(PROGRAM));
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|directory| directory.join(PROGRAM));
    beside.into_iter().chain(in_path).find(|program| program.is_file())
}
