//! A client of debuginfod servers, which provide debug files of distributions by build id. `curl`
//! fetches the files into the cache of elfutils, which other tools share.

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use heaptide_analysis::symbols::{DebugFiles, is_debug_file_of};
use heaptide_analysis::text;
use heaptide_command::error::Error;
use heaptide_command::progress::Progress;
use heaptide_render::shared::quantity::{bytes, duration};

/// The variable with the URLs of servers, separated by spaces.
pub const URLS: &str = "DEBUGINFOD_URLS";
/// The variable with the directory of the cache.
const CACHE: &str = "DEBUGINFOD_CACHE_PATH";
/// The variable with the time, in seconds, after which a server that sends nothing is abandoned.
const TIMEOUT: &str = "DEBUGINFOD_TIMEOUT";
/// The default of elfutils.
const TIMEOUT_DEFAULT_SECONDS: u64 = 90;
/// The variable with the total time for all files, in seconds, after which no server is queried.
const MAXIMUM: &str = "DEBUGINFOD_MAXTIME";
/// The variable with the maximum size of a file, in bytes.
const MAXIMUM_SIZE: &str = "DEBUGINFOD_MAXSIZE";
/// Larger than any known debug file: that of Chromium has some 5 GB.
const MAXIMUM_SIZE_DEFAULT_BYTES: u64 = 16 << 30;
/// Enough for the debug files of a large program. Files fetched by then are kept, so sealing again
/// continues.
const MAXIMUM_DEFAULT_SECONDS: u64 = 600;
/// The timeout of connecting, in seconds.
const CONNECT_SECONDS: u64 = 10;
/// A server with a lower rate is treated like one that sends nothing.
const SLOWEST_BYTES_PER_SECOND: u64 = 1024;
/// How long servers are not queried again for a file that none of them had, as in elfutils.
const MISS: Duration = Duration::from_secs(600);
/// The interval of progress updates.
const TICK: Duration = Duration::from_millis(100);

/// Fetches debug files.
pub struct Client {
    /// URLs of the servers that have not failed yet.
    servers: RefCell<Vec<String>>,
    cache: PathBuf,
    timeout_seconds: u64,
    maximum: Duration,
    maximum_bytes: u64,
    /// The time of the first query.
    began: Cell<Option<Instant>>,
    progress: Option<Rc<Progress>>,
}

impl Client {
    /// Creates a client of the servers in `urls`, separated by spaces; none if there are none.
    ///
    /// Errors: no directory for the cache is known.
    pub fn new(urls: &str, progress: Option<Rc<Progress>>) -> Result<Option<Client>, Error> {
        let servers: Vec<String> = urls.split_ascii_whitespace().map(str::to_owned).collect();
        if servers.is_empty() {
            return Ok(None);
        }
        let Some(cache) = cache(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
        else {
            let what = format!("no directory for the cache of debug files; set HOME or {CACHE}");
            return Err(Error::new(what));
        };
        let number = |name, otherwise| {
            let given = std::env::var(name).ok().and_then(|text| text.parse().ok());
            given.filter(|&number: &u64| number > 0).unwrap_or(otherwise)
        };
        Ok(Some(Client {
            servers: RefCell::new(servers),
            cache,
            timeout_seconds: number(TIMEOUT, TIMEOUT_DEFAULT_SECONDS),
            maximum: Duration::from_secs(number(MAXIMUM, MAXIMUM_DEFAULT_SECONDS)),
            maximum_bytes: number(MAXIMUM_SIZE, MAXIMUM_SIZE_DEFAULT_BYTES),
            began: Cell::new(None),
            progress,
        }))
    }

    /// Returns the time left for transfers.
    fn left(&self) -> Duration {
        let began = self.began.get().unwrap_or_else(Instant::now);
        self.began.set(Some(began));
        self.maximum.saturating_sub(began.elapsed())
    }

    /// Fetches a file from one server. None if the server does not have it.
    ///
    /// Errors: `curl` cannot be run, the server failed, or the file cannot be written.
    fn ask(&self, server: &str, id: &str, file: &Path, name: &str) -> Result<Option<()>, String> {
        let url = format!("{}/buildid/{id}/debuginfo", server.trim_end_matches('/'));
        let draft = file.with_extension(format!("{}.new", std::process::id()));
        let _ = fs::remove_file(&draft); // left by a process that had the same id
        let answer = self.curl(&url, &draft).and_then(|child| self.wait(child, &draft, name));
        let done = match answer {
            // Networks answer requests of other pages with their own, such as a login.
            Ok(Answer::Found) if !is_debug_file_of(&draft, id) => {
                Err("the answer is not a debug file with this build id".to_owned())
            }
            Ok(Answer::Found) => fs::rename(&draft, file).map(Some).map_err(|e| e.to_string()),
            Ok(Answer::Missing) => Ok(None),
            Ok(Answer::Failed(why)) => Err(why),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err("curl is not installed; it is needed to fetch debug files".to_owned())
            }
            Err(error) => Err(format!("cannot run curl: {error}")),
        };
        if !matches!(done, Ok(Some(()))) {
            let _ = fs::remove_file(&draft); // may not exist
        }
        done
    }

    fn curl(&self, url: &str, draft: &Path) -> io::Result<Child> {
        let mut curl = Command::new("curl");
        // --disable: ignore the user's configuration of curl
        curl.args(["--disable", "--silent", "--show-error", "--fail", "--location"])
            .args(["--max-redirs", "5", "--proto", "=http,https"])
            .args(["--connect-timeout", &CONNECT_SECONDS.to_string()])
            .args(["--max-filesize", &self.maximum_bytes.to_string()])
            .args(["--speed-limit", &SLOWEST_BYTES_PER_SECOND.to_string()])
            .args(["--speed-time", &self.timeout_seconds.to_string()])
            .args(["--max-time", &self.left().as_secs().max(1).to_string()])
            .args(["--write-out", "%{http_code}", "--output"])
            .arg(draft)
            .arg(url);
        curl.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    }

    /// Waits for the end of a transfer and shows its progress.
    fn wait(&self, mut child: Child, draft: &Path, name: &str) -> io::Result<Answer> {
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            let size = fs::metadata(draft).map_or(0, |metadata| metadata.len());
            if size > self.maximum_bytes {
                child.kill()?;
                child.wait()?;
                let most = bytes(self.maximum_bytes);
                return Ok(Answer::Failed(format!("larger than {most} ({MAXIMUM_SIZE})")));
            }
            if let Some(progress) = &self.progress {
                progress.show(&format!("fetching debug information of {name}, {}", bytes(size)));
            }
            thread::sleep(TICK);
        };
        let text = |stream: Option<&mut dyn Read>| {
            let mut text = String::new();
            // A message that cannot be read is not shown.
            let _ = stream.map(|stream| stream.take(MESSAGE_BYTES).read_to_string(&mut text));
            text.trim().to_owned()
        };
        let code = text(child.stdout.as_mut().map(|stream| stream as &mut dyn Read));
        let why = text(child.stderr.as_mut().map(|stream| stream as &mut dyn Read));
        Ok(match (status.success(), code.as_str()) {
            (true, _) => Answer::Found,
            (false, "404") => Answer::Missing,
            (false, _) => Answer::Failed(if why.is_empty() { status.to_string() } else { why }),
        })
    }
}

/// The maximum length of a message of `curl`, in bytes.
const MESSAGE_BYTES: u64 = 4096;

enum Answer {
    Found,
    Missing,
    Failed(String),
}

impl DebugFiles for Client {
    fn fetch(&self, build_id: &str, module: &Path) -> Result<Option<PathBuf>, String> {
        let file = self.cache.join(build_id).join("debuginfo");
        match fs::metadata(&file) {
            Ok(kept) if kept.len() > 0 && !is_debug_file_of(&file, build_id) => {
                let file = text::of_path(&file);
                return Err(format!("{file}: not a debug file with this build id; remove it"));
            }
            Ok(kept) if kept.len() > 0 => return Ok(Some(file)),
            Ok(kept) if is_recent(kept.modified()) => return Ok(None),
            _ => {}
        }
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        let servers = self.servers.borrow().clone();
        if servers.is_empty() {
            return Ok(None);
        }
        let directory = self.cache.join(build_id);
        let cannot = |error| format!("{}: cannot create it: {error}", directory.display());
        fs::create_dir_all(&directory).map_err(cannot)?;
        let mut failures = Vec::new();
        for server in servers {
            if self.left().is_zero() {
                self.servers.borrow_mut().clear();
                let after = duration(u64::try_from(self.maximum.as_nanos()).unwrap_or(u64::MAX));
                failures.push(format!(
                    "stopped fetching debug files after {after} ({MAXIMUM}); run `heaptide seal` \
                     to continue"
                ));
                break;
            }
            match self.ask(&server, build_id, &file, &name) {
                Ok(Some(())) => return Ok(Some(file)),
                Ok(None) => {}
                Err(why) => {
                    self.servers.borrow_mut().retain(|other| *other != server);
                    failures.push(format!("{server}: cannot fetch debug files: {why}"));
                }
            }
        }
        if failures.is_empty() {
            let _ = fs::write(&file, ""); // marks a miss; otherwise servers are queried again
            return Ok(None);
        }
        let _ = fs::remove_dir(&directory); // fails unless it is empty
        Err(failures.join("; "))
    }
}

fn is_recent(time: io::Result<SystemTime>) -> bool {
    time.ok().and_then(|time| time.elapsed().ok()).is_some_and(|age| age < MISS)
}

/// Returns the directory of the cache, chosen as elfutils does.
fn cache(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    const NAME: &str = "debuginfod_client";
    const FORMER: &str = ".debuginfod_client_cache";
    let home = variable("HOME").map(PathBuf::from);
    let former = home.as_ref().map(|home| home.join(FORMER)).filter(|former| former.is_dir());
    let below = |cache: PathBuf| cache.join(NAME);
    variable(CACHE)
        .map(PathBuf::from)
        .or(former)
        .or_else(|| variable("XDG_CACHE_HOME").map(PathBuf::from).map(below))
        .or_else(|| home.map(|home| below(home.join(".cache"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_elfutils_has_it() {
        let of = |known: &[(&str, &str)]| {
            let variable = |name: &str| known.iter().find(|(n, _)| *n == name).map(|k| k.1.into());
            cache(variable).map(|path| path.to_string_lossy().into_owned())
        };
        let home = ("HOME", "/nowhere/u");
        let xdg = ("XDG_CACHE_HOME", "/x");
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[home]).as_deref(), Some("/nowhere/u/.cache/debuginfod_client"));
        assert_eq!(of(&[home, xdg]).as_deref(), Some("/x/debuginfod_client"));
        assert_eq!(of(&[home, xdg, (CACHE, "/c")]).as_deref(), Some("/c"));
    }

    #[test]
    fn no_url_is_no_client() {
        assert!(Client::new(" ", None).expect("no error").is_none());
    }
}
