//! Looks up names in a process of its own, with limits. Debug information is untrusted: reading it
//! can take any amount of memory and time, overflow the stack, or panic, because formats refer to
//! parts of the file any number of times. If the process fails, a second one reads only the symbol
//! table.
//!
//! The process is started as `COMMAND --look-up-names MODE FILE`. It reads addresses from standard
//! input, eight bytes each. It writes a greeting, and a line of JSON for each address, in order:
//! the functions as name, file and line. The last line is the error, or `null`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use super::name::Name;
use super::references;

/// The first argument of such a process.
const ARGUMENT: &str = "--look-up-names";
/// Its first line: without it, the process is that of another program, such as an emulator.
const GREETING: &str = "heaptide names 1\n";
/// The address space of the process in bytes, for a small file. The demangler's stack takes 256
/// MiB, and a small module can have `.dwo` files.
const SPACE_BYTES: u64 = 2 << 30;
/// Its address space in addition, per byte of the file: the tables of a line program of one byte
/// per row take 32 times its size, and debug information can be compressed.
const SPACE_FACTOR: u64 = 64;
/// Its processor time in seconds, for a small file. The largest known files take a few milliseconds
/// per MiB.
const SECONDS: u64 = 30;
/// The size of a file for which it may take another second.
const BYTES_PER_SECOND: u64 = 1 << 20;
/// The maximum length of a line in bytes: 16 names of the maximum length.
const LINE_BYTES: u64 = 16 << 20;

static COMMAND: OnceLock<PathBuf> = OnceLock::new();

/// Makes this process look up names in processes that run `command`, which must call
/// [`super::answer_apart`] with its arguments.
///
/// ```
/// use heaptide_analysis::symbols::answer_apart;
/// assert_eq!(answer_apart(&["heaptide".into(), "report".into()]), None);
/// ```
pub fn look_up_apart(command: PathBuf) {
    let _ = COMMAND.set(command); // set once, at the start of the command
}

/// What is read of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    DebugInfo,
    SymbolTable,
}

impl Use {
    fn word(self) -> &'static str {
        match self {
            Use::DebugInfo => "debug",
            Use::SymbolTable => "symbols",
        }
    }
}

/// The functions at an address, outermost first: name, file, line.
#[derive(Serialize, Deserialize)]
struct Functions(Vec<(Option<String>, Option<String>, Option<u32>)>);

/// Called with an address and the functions there.
type Each<'a> = &'a mut dyn FnMut(u64, &[Name<'_>]);

/// Looks up addresses in another process; `None` if it cannot be started, or this process has no
/// command for it.
///
/// Errors: the same as those of [`super::Engine::look_up`], and the process failed.
pub(super) fn look_up(
    file: &Path,
    addresses: &[u64],
    each: Each<'_>,
) -> Option<Result<(), String>> {
    let command = COMMAND.get()?;
    let mut rest = addresses;
    let first = Run::of(command, Use::DebugInfo, file, addresses)?.read(&mut rest, each);
    let failure = match first {
        Ok(done) => return Some(done),
        Err(failure) => failure?,
    };
    let second = Run::of(command, Use::SymbolTable, file, rest)?.read(&mut rest, each);
    let consequence = match second {
        Ok(Ok(())) => "functions have the names of its symbol table",
        _ => "its functions have no names",
    };
    Some(Err(format!("cannot read its debug information: {failure}; {consequence}")))
}

/// A process that looks names up.
struct Run {
    child: Child,
    seconds: u64,
}

impl Run {
    /// Starts a process; `None` if it does not start.
    fn of(command: &Path, used: Use, file: &Path, addresses: &[u64]) -> Option<Run> {
        let mut command = Command::new(command);
        command.args([OsStr::new(ARGUMENT), used.word().as_ref(), file.as_os_str()]);
        // Keys that end this command would also end the process, which then looks like a failure.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn().ok()?;
        let mut run = Run { child, seconds: limits(file).1 };
        let mut input = run.child.stdin.take()?;
        let bytes: Vec<u8> = addresses.iter().flat_map(|address| address.to_le_bytes()).collect();
        // It reads everything before it answers. If it has ended, there is no answer.
        let _ = input.write_all(&bytes);
        Some(run)
    }

    /// Calls `each` with the answers and removes their addresses from `rest`.
    ///
    /// Errors: the process failed; how. `None` if it is that of another program.
    fn read(
        mut self,
        rest: &mut &[u64],
        each: Each<'_>,
    ) -> Result<Result<(), String>, Option<String>> {
        let mut out = self.child.stdout.take().map(BufReader::new);
        let is_ours = out.as_mut().is_some_and(greets);
        let last = out.filter(|_| is_ours).and_then(|out| answers(out, rest, each));
        if last.is_none() {
            let _ = self.child.kill(); // may have ended
        }
        match (last, self.child.wait()) {
            (Some(done), _) => Ok(done.map_or(Ok(()), Err)),
            (None, _) if !is_ours => Err(None),
            (None, Ok(status)) => Err(Some(self.failure(status))),
            (None, Err(error)) => Err(Some(error.to_string())),
        }
    }

    fn failure(&self, status: ExitStatus) -> String {
        match status.signal() {
            Some(signal) if signal == Signal::SIGXCPU as i32 => {
                format!("it takes more than {} s of processor time", self.seconds)
            }
            _ => format!("it is damaged, or takes too much memory ({status})"),
        }
    }
}

fn greets(out: &mut impl BufRead) -> bool {
    let mut greeting = [0; GREETING.len()];
    out.read_exact(&mut greeting).is_ok() && greeting == GREETING.as_bytes()
}

/// Reads answers until the last line, and returns the error in that; `None` if there is no such
/// line.
fn answers(mut out: impl BufRead, rest: &mut &[u64], each: Each<'_>) -> Option<Option<String>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        out.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line).ok()?;
        if !line.ends_with(b"\n") {
            return None;
        }
        let Some((&address, others)) = rest.split_first() else {
            return serde_json::from_slice(&line).ok();
        };
        let Ok(Functions(functions)) = serde_json::from_slice(&line) else {
            // an error before all addresses are looked up
            return serde_json::from_slice(&line).ok();
        };
        let names: Vec<_> = functions
            .iter()
            .map(|(function, file, line)| Name {
                function: function.as_deref(),
                file: file.as_deref(),
                line: *line,
            })
            .collect();
        each(address, &names);
        *rest = others;
    }
}

/// Looks up names in the file that arguments name, if they are those of such a process; returns the
/// exit status.
pub(super) fn answer(
    arguments: &[OsString],
    look_up: impl FnOnce(&Path, &[u64], Use, Each<'_>) -> Result<(), String>,
) -> Option<u8> {
    let [_, first, mode, file] = arguments else { return None };
    if first != ARGUMENT {
        return None;
    }
    let used = if mode == Use::SymbolTable.word() { Use::SymbolTable } else { Use::DebugInfo };
    let file = Path::new(file);
    confine(file);
    Some(u8::from(respond(|addresses, each| look_up(file, addresses, used, each)).is_err()))
}

fn respond(look_up: impl FnOnce(&[u64], Each<'_>) -> Result<(), String>) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    out.write_all(GREETING.as_bytes())?;
    out.flush()?;
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    let addresses: Vec<u64> =
        bytes.as_chunks().0.iter().map(|&address| u64::from_le_bytes(address)).collect();
    let mut written = Ok(());
    let done = look_up(&addresses, &mut |_, names| {
        let text = |text: Option<&str>| text.map(str::to_owned);
        let names = names.iter().map(|name| (text(name.function), text(name.file), name.line));
        let line = line(&Functions(names.collect()));
        if written.is_ok() {
            written = line.and_then(|line| out.write_all(&line));
        }
    });
    written?;
    out.write_all(&line(&done.err())?)?;
    out.flush()
}

fn line(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

/// Limits the memory and time of this process, and ends it with its parent.
fn confine(file: &Path) {
    let (space, seconds) = limits(file);
    // Lower limits stay. Without limits, the process can only take more.
    let limit = |resource, most: u64| {
        let hard = getrlimit(resource).map_or(u64::MAX, |(_, hard)| hard);
        let _ = setrlimit(resource, most.min(hard), hard);
    };
    limit(Resource::RLIMIT_AS, space);
    limit(Resource::RLIMIT_CPU, seconds);
    limit(Resource::RLIMIT_CORE, 0);
    let _ = set_pdeathsig(Signal::SIGKILL);
}

/// Returns the limits of a process that reads a file: bytes of address space, and seconds of
/// processor time.
fn limits(file: &Path) -> (u64, u64) {
    let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
    let bytes = references::package(file).map_or(0, |package| size(&package)) + size(file);
    let space = SPACE_BYTES.saturating_add(bytes.saturating_mul(SPACE_FACTOR));
    (space, SECONDS + bytes / BYTES_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the answers for addresses 1 to 3: returns what was found, how many addresses remain,
    /// and the error.
    fn read(text: &str) -> (Vec<String>, usize, Option<Option<String>>) {
        let (mut rest, mut found) = (&[1, 2, 3][..], Vec::new());
        let last = answers(text.as_bytes(), &mut rest, &mut |address, names| {
            let names: Vec<_> = names.iter().filter_map(|name| name.function).collect();
            found.push(format!("{address} {}", names.join(";")));
        });
        (found, rest.len(), last)
    }

    #[test]
    fn answers_are_complete_or_end_in_a_failure() {
        let lines = "[[\"f\",null,null],[\"g\",\"g.c\",7]]\n[]\n[[null,null,1]]\n";
        let all = ["1 f;g", "2 ", "3 "].map(str::to_owned).to_vec();
        assert_eq!(read(&format!("{lines}null\n")), (all.clone(), 0, Some(None)));
        assert_eq!(
            read(&format!("{lines}\"no .dwo\"\n")),
            (all.clone(), 0, Some(Some("no .dwo".into())))
        );
        assert_eq!(read(lines), (all.clone(), 0, None), "killed before the last line");
        assert_eq!(read("[]\n[[\"f\""), (vec!["1 ".to_owned()], 2, None), "killed in a line");
        assert_eq!(
            read("[]\n\"cannot\"\n"),
            (vec!["1 ".to_owned()], 2, Some(Some("cannot".into())))
        );
        assert_eq!(read("Usage: ld.so\n"), (Vec::new(), 3, None), "another program");
    }

    #[test]
    fn limits_grow_with_the_file() {
        assert_eq!(limits(Path::new("/nowhere")), (SPACE_BYTES, SECONDS));
        let place = heaptide_fixtures::Scratch::new("apart");
        let file = place.write("a", b"");
        fs::File::create(&file).and_then(|file| file.set_len(100 << 20)).expect("a sparse file");
        assert_eq!(limits(&file), (SPACE_BYTES + (6400 << 20), SECONDS + 100));
    }
}
