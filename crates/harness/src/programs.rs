//! Programs of the system that tests need.

use std::path::Path;
use std::process::{Command, Stdio};

/// Returns whether a program is in PATH.
pub fn is_installed(program: &str) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("command -v {program}")]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Returns the path of the interpreter itself, since the one in PATH may be a script that starts
/// it.
pub fn python() -> Option<String> {
    let script = "import sys, os; print(os.path.realpath(sys.executable))";
    let output = Command::new("python3").args(["-c", script]).output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?.trim_end().to_owned();
    (output.status.success() && Path::new(&path).exists()).then_some(path)
}

/// Removes the variables of launchers, since the tests themselves may run in a job.
pub fn without_launchers(command: &mut Command) {
    for (name, _) in std::env::vars() {
        let of =
            ["OMPI_", "PMI", "MV2_", "SLURM", "FLUX_", "PALS_", "ALPS_", "JSM_", "PBS_", "LSB_"];
        if of.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
}
