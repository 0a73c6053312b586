//! Reports that `heaptide run` writes when the program has ended: `--report`, or `HEAPTIDE_REPORT`.
//! A separate process writes each of them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_format::PROFILE_SUFFIX;
use heaptide_format::report::Request;
use heaptide_format::settings::Setting;
use heaptide_supervise::environment::Environment;

/// Checks that a format exists.
pub type Check = fn(&str) -> Result<(), Error>;

/// The requested reports, checked.
pub struct Reports {
    lists: Vec<OsString>,
}

impl Reports {
    /// Reads the requests from the options, or from the environment if there are none.
    ///
    /// Errors: a request has no format or no target, or the format does not exist.
    pub fn new(
        options: &[OsString],
        environment: &Environment,
        check: Check,
    ) -> Result<Reports, Error> {
        let variable = Setting::Report.variable();
        let lists = match environment.get(variable) {
            Some(list) if options.is_empty() => vec![list.to_owned()],
            _ => options.to_vec(),
        };
        let reports = Reports { lists };
        let name = if options.is_empty() { variable } else { "--report" };
        for request in reports.each() {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            let checked = match request {
                Ok(request) => check(&text(request.format)),
                Err(entry) => Err(Error::new(format!("`{}`: expected FORMAT:TARGET", text(entry)))),
            };
            checked.map_err(|error| Error::new(format!("{name}: {error}")))?;
        }
        Ok(reports)
    }

    fn each(&self) -> impl Iterator<Item = Result<Request<'_>, &[u8]>> {
        self.lists.iter().flat_map(|list| Request::each(list.as_bytes()))
    }

    /// Writes all reports of a finished recording. Errors are printed.
    pub fn write(&self, recording: &Path) {
        for request in self.each().flatten() {
            if !request.is_of_each_process() {
                write(&request, OsStr::new(""), recording);
                continue;
            }
            for (pid, profile) in processes(recording) {
                write(&request, OsStr::new(&pid.to_string()), &profile);
            }
        }
    }
}

/// Returns the profile of the last image of each process, by process id.
fn processes(recording: &Path) -> BTreeMap<u32, PathBuf> {
    let mut last: BTreeMap<u32, (u32, PathBuf)> = BTreeMap::new();
    for entry in fs::read_dir(recording).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(PROFILE_SUFFIX));
        let Some((pid, image)) = stem.and_then(|stem| stem.split_once('-')) else { continue };
        let (Ok(pid), Ok(image)) = (pid.parse(), image.parse()) else { continue };
        if last.get(&pid).is_none_or(|(before, _)| *before < image) {
            last.insert(pid, (image, entry.path()));
        }
    }
    last.into_iter().map(|(pid, (_, profile))| (pid, profile)).collect()
}

/// Writes one report, with `pid` inserted into its target.
#[expect(clippy::disallowed_methods, reason = "the stream is only handed on")]
fn write(request: &Request<'_>, pid: &OsStr, recording: &Path) {
    let mut target = Vec::new();
    request.expand(pid.as_bytes(), |piece| target.extend_from_slice(piece));
    let shown = String::from_utf8_lossy(request.format).into_owned();
    let failed = |why: &dyn std::fmt::Display| message(format_args!("--report {shown}: {why}"));
    let command = std::env::current_exe().and_then(|command| {
        let mut command = Command::new(command);
        command.arg("write").arg("--format").arg(OsStr::from_bytes(request.format));
        command.arg("--output");
        match &*target {
            b"stdout" => command.arg("-"),
            b"stderr" => command.arg("-").stdout(std::io::stderr()),
            _ => command.arg(OsString::from_vec(target.clone())),
        };
        command.arg(recording).stdin(Stdio::null()).status()
    });
    match command {
        Ok(status) if status.success() => {}
        // The process has printed the error.
        Ok(status) if status.code().is_some() => {}
        Ok(status) => failed(&status),
        Err(error) => failed(&error),
    }
}
