//! The pattern of `-o`: `%` and a letter stand for what differs between runs.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use heaptide_command::error::Error;
use heaptide_supervise::environment::Environment;

/// The replacements of the letters.
pub struct Names<'a> {
    /// `%p`: the pid that the program itself sees.
    pub pid: u32,
    /// `%h`: the host.
    pub host: &'a str,
    /// `%r`: the rank.
    pub rank: Option<u32>,
    /// `%n`: the file name of the program.
    pub program: &'a OsStr,
    /// `%q{VAR}`: the environment of the program.
    pub environment: &'a Environment,
}

const EXPECTED: &str = "%p, %h, %r, %n, %q{VAR} or %%";

/// Replaces `%` and the letter after it.
///
/// Errors: an unknown letter; `%r` outside of a parallel program, or `%q` of a variable that is not
/// set, because all runs would get the same name.
pub fn expand(pattern: &Path, names: &Names) -> Result<PathBuf, Error> {
    let refuse = |what: String| Error::new(format!("-o {}: {what}", pattern.display()));
    let mut name = Vec::new();
    let mut rest = pattern.as_os_str().as_bytes();
    while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
        name.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let Some((&letter, behind)) = rest.split_first() else {
            return Err(refuse(format!("found % at the end, expected {EXPECTED}")));
        };
        rest = behind;
        match letter {
            b'%' => name.push(b'%'),
            b'p' => name.extend_from_slice(names.pid.to_string().as_bytes()),
            b'h' => name.extend_from_slice(names.host.as_bytes()),
            b'n' => name.extend_from_slice(names.program.as_bytes()),
            b'r' => {
                let rank = names.rank.ok_or_else(|| {
                    refuse("%r: no launcher gave this process a rank; set HEAPTIDE_RANK".into())
                })?;
                name.extend_from_slice(rank.to_string().as_bytes());
            }
            b'q' => {
                let variable = variable(&mut rest)
                    .ok_or_else(|| refuse("found %q, expected %q{VAR}".into()))?;
                let value = names.environment.get(&variable).ok_or_else(|| {
                    refuse(format!("%q{{{variable}}}: the variable {variable} is not set; set it"))
                })?;
                name.extend_from_slice(value.as_bytes());
            }
            letter => {
                let found = String::from_utf8_lossy(&[letter]).into_owned();
                return Err(refuse(format!("found %{found}, expected {EXPECTED}")));
            }
        }
    }
    name.extend_from_slice(rest);
    Ok(PathBuf::from(OsString::from_vec(name)))
}

/// Removes a name in braces from the start of `rest` and returns it; none if there is none.
fn variable(rest: &mut &[u8]) -> Option<String> {
    let inside = rest.strip_prefix(b"{")?;
    let end = inside.iter().position(|&byte| byte == b'}').filter(|&end| end > 0)?;
    *rest = &inside[end + 1..];
    Some(String::from_utf8_lossy(&inside[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(pattern: &str, rank: Option<u32>) -> Result<String, String> {
        let environment = Environment::new(&["A=x/y".into(), "B=".into()]);
        let program = OsStr::new("app");
        let names = Names { pid: 7, host: "node1", rank, program, environment: &environment };
        let path = expand(Path::new(pattern), &names);
        path.map(|path| path.display().to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn letters_are_replaced() {
        let all = "%n.%p-%h/%q{A}%q{B}.%r%%r.heaptide";
        assert_eq!(expanded(all, Some(3)).as_deref(), Ok("app.7-node1/x/y.3%r.heaptide"));
        assert_eq!(expanded("plain", None).as_deref(), Ok("plain"));
    }

    #[test]
    fn what_cannot_be_replaced_is_refused() {
        for (pattern, says) in [
            ("a-%x", "-o a-%x: found %x, expected %p, %h, %r, %n, %q{VAR} or %%"),
            ("a-%", "-o a-%: found % at the end, expected %p, %h, %r, %n, %q{VAR} or %%"),
            ("%r", "-o %r: %r: no launcher gave this process a rank; set HEAPTIDE_RANK"),
            ("%q{C}", "-o %q{C}: %q{C}: the variable C is not set; set it"),
            ("%q{A", "-o %q{A: found %q, expected %q{VAR}"),
            ("%q{}", "-o %q{}: found %q, expected %q{VAR}"),
            ("%qA", "-o %qA: found %q, expected %q{VAR}"),
        ] {
            assert_eq!(expanded(pattern, None), Err(says.to_owned()));
        }
    }
}
