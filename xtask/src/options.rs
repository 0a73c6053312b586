//! Writes `docs/options.md` from the help of the commands.

use std::path::Path;
use std::process::Command;

use crate::commands::{heaptide, output};
use crate::problem::Problem;

const PAGE: &str = "docs/options.md";

const HEAD: &str = "\
# Options

This page contains the output of `heaptide COMMAND --help-all`. `cargo xtask options` writes it, and `cargo xtask tidy` checks it.

Sizes have the units of GNU commands: `4096`, `4K` and `10MiB` are in powers of 1024, `10MB` is 10 × 1000² bytes; `1.5G` is accepted. Times are `500ms`, `10s`, `2m`, `1h` or `7d`; a number without a unit is in seconds.
";

/// Writes the document.
pub fn write(root: &Path) -> Result<(), String> {
    std::fs::write(root.join(PAGE), page(&heaptide(root)?)?).map_err(|e| format!("{PAGE}: {e}"))
}

/// Returns a problem if the document differs from the help of the command.
pub fn check(root: &Path, heaptide: &Path) -> Result<Vec<Problem>, String> {
    let written = std::fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    let says = "differs from the help of the command; `cargo xtask options` writes it";
    let current = written == page(heaptide)?;
    Ok(if current { Vec::new() } else { vec![Problem::new(PAGE, 0, says)] })
}

fn page(heaptide: &Path) -> Result<String, String> {
    let overview = help(heaptide, &["--help-all"])?;
    let mut page = HEAD.to_string() + &section("heaptide", &overview);
    for command in commands(&overview) {
        page +=
            &section(&format!("heaptide {command}"), &help(heaptide, &[command, "--help-all"])?);
    }
    Ok(page)
}

fn help(heaptide: &Path, arguments: &[&str]) -> Result<String, String> {
    output(Command::new(heaptide).args(arguments).env("COLUMNS", "100"))
}

fn section(title: &str, help: &str) -> String {
    let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    format!("\n## {title}\n\n```text\n{}\n```\n", lines.join("\n"))
}

/// Returns the commands in the overview, except `help`.
fn commands(overview: &str) -> Vec<&str> {
    let listed = overview.lines().skip_while(|line| *line != "Commands:").skip(1);
    let rows = listed.take_while(|line| line.starts_with("  "));
    let named = rows.filter(|line| !line.starts_with("   "));
    named.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_parsed_from_the_overview() {
        let overview = "Records.\n\nUsage: heaptide <COMMAND>\n\nCommands:\n  run     Run a program,\n          \
                        and record\n  report  Show\n  help    Print\n\nOptions:\n  -h, --help\n";
        assert_eq!(commands(overview), ["run", "report"]);
    }

    #[test]
    fn a_section_has_no_trailing_spaces() {
        assert_eq!(section("x", "a  \nb\n\n"), "\n## x\n\n```text\na\nb\n```\n");
    }
}
