//! Records one program.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::program::{Load, Program};
use crate::commands;

/// Lines of a summary that the document shows.
const LINES: usize = 10;
/// Seconds until a program that hangs is ended. The slowest takes a minute on a busy machine.
const LIMIT: &str = "400";

/// Records a program and returns the first lines of its summary.
pub fn record(heaptide: &Path, place: &Path, program: &Program) -> Result<Vec<String>, String> {
    for name in program.needs {
        let found = Command::new("sh").args(["-c", "command -v -- \"$0\"", name]).output();
        if !found.is_ok_and(|o| o.status.success()) {
            return Err(format!("no {name}; install {}", program.packages));
        }
    }
    let directory = program.directory(place);
    fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    let bash = |script: &str| {
        let mut command = Command::new("timeout");
        command.args([LIMIT, "bash", "-c", script]).current_dir(&directory);
        command.env("HEAPTIDE", heaptide);
        // Open MPI refuses to run as root, and more ranks than cores.
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        commands::output(&mut command)
    };
    bash(&format!("set -e\n{}", program.prepare))?;
    bash(&script(program))?;
    let path = directory.join("summary");
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let lines = text.lines().filter_map(|line| line.strip_prefix("heaptide: "));
    let lines: Vec<String> = lines.take(LINES).map(str::to_string).collect();
    if lines.len() < 3 {
        return Err(format!("the summary has {} lines: {text}", lines.len()));
    }
    Ok(lines)
}

/// Returns the script that runs a program; for a service with its load.
fn script(program: &Program) -> String {
    let run = "\"$HEAPTIDE\" run --force -o recording --";
    let command = program.command;
    let ended = "2> summary > output < /dev/null";
    match &program.load {
        None => format!("{run} {command} {ended} || {{ cat summary >&2; false; }}"),
        Some(Load { port, script, user }) => {
            let script = script.replace("PORT", &port.to_string());
            let as_user = user.map_or(String::new(), |user| {
                let ids = format!("--reuid {user} --regid {user} --clear-groups");
                format!("[ $(id -u) = 0 ] && as_user=\"setpriv {ids} env HOME=$PWD\"\n")
            });
            format!(
                "{as_user}$as_user {run} {command} {ended} & job=$!
until (: < /dev/tcp/127.0.0.1/{port}) 2> load; do kill -0 $job || break; sleep 0.2; done
{script}
kill -TERM $job; wait $job; true"
            )
        }
    }
}
