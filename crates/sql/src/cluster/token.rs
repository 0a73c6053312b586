//! The token of a cluster: each call between client, scheduler and executors carries it, and a call
//! without it is refused.
//!
//! It is part of the header `user-agent`, because that is the only header that Ballista lets a
//! program set on all of its connections.

use std::fmt;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ballista_core::extension::EndpointOverrideFn;
use heaptide_analysis::files::input;
use heaptide_command::error::Error;
use heaptide_format::settings::Setting;
use heaptide_http::access::{is_same, random};
use tonic::codegen::http::HeaderMap;
use tonic::codegen::http::header::USER_AGENT;
use tonic::transport::Endpoint;
use tonic::{Request, Status};

/// The variable that contains the token.
const VARIABLE: &str = Setting::ClusterToken.variable();
/// The default file, below the directory for the state of programs.
const FILE: &str = "heaptide/cluster-token";
/// What the token follows in the header.
const PREFIX: &str = "heaptide-token/";
/// The fewest characters: shorter tokens can be guessed.
const LENGTH_MIN: usize = 16;
/// The most characters.
const LENGTH_MAX: usize = 256;

/// The token of a cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    text: String,
    /// Where it was found, for messages.
    origin: String,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the token of {}", self.origin)
    }
}

impl Token {
    /// Returns the token of this file; without one, that of the variable, else that of the default
    /// file.
    ///
    /// Errors: there is none, others can read the file, or it is too short.
    pub fn find(file: Option<&Path>) -> Result<Token, Error> {
        let Some(path) = place(file)? else {
            return from_variable();
        };
        match read(&path)? {
            Some(token) => Ok(token),
            None => Err(Error::new(format!(
                "{}: no such file, expected the token of the cluster; copy it from the machine of \
                 the scheduler, or set {VARIABLE}",
                path.display()
            ))),
        }
    }

    /// Returns the token like [`Token::find`]; if its file does not exist, creates it.
    ///
    /// Errors: the same, or the file cannot be created.
    pub fn find_or_create(file: Option<&Path>) -> Result<Token, Error> {
        let Some(path) = place(file)? else {
            return from_variable();
        };
        if read(&path)?.is_none() {
            create(&path).map_err(|error| Error::file(&path, "write the token", error))?;
        }
        Token::find(Some(&path))
    }

    /// Returns where the token was found.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Adds the token to all calls of a connection.
    ///
    /// Errors: those of the header, which has a valid value.
    pub fn add_to(&self, endpoint: Endpoint) -> Result<Endpoint, tonic::transport::Error> {
        endpoint.user_agent(format!("{PREFIX}{}", self.text))
    }

    /// Returns the function that adds the token to all connections of Ballista.
    pub fn to_endpoints(&self) -> EndpointOverrideFn {
        let token = self.clone();
        Arc::new(move |endpoint| Ok(token.add_to(endpoint)?))
    }

    /// Returns whether a call has the token.
    pub fn is_in(&self, headers: &HeaderMap) -> bool {
        let agents = headers.get_all(USER_AGENT).iter();
        let words = agents.filter_map(|value| value.to_str().ok()).flat_map(str::split_whitespace);
        words.filter_map(|word| word.strip_prefix(PREFIX)).any(|given| is_same(given, &self.text))
    }

    /// Checks that a call has the token.
    ///
    /// Errors: it has not.
    pub fn check(&self, request: Request<()>) -> Result<Request<()>, Status> {
        let headers = request.metadata().as_ref();
        if self.is_in(headers) { Ok(request) } else { Err(refusal()) }
    }
}

/// Returns the answer to a call without the token.
pub fn refusal() -> Status {
    Status::unauthenticated("the token of the cluster is missing or wrong")
}

/// Returns the file of the token; `None` if the variable contains it.
fn place(file: Option<&Path>) -> Result<Option<PathBuf>, Error> {
    if file.is_some() || std::env::var_os(VARIABLE).is_some() {
        return Ok(file.map(Path::to_owned));
    }
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let state = state.filter(|path| path.is_absolute()).or_else(home);
    match state {
        Some(state) => Ok(Some(state.join(FILE))),
        None => Err(Error::new(format!(
            "no token of the cluster: neither HOME nor {VARIABLE} is set; use --token-file FILE"
        ))),
    }
}

fn from_variable() -> Result<Token, Error> {
    let text = std::env::var(VARIABLE).unwrap_or_default();
    checked(&text, VARIABLE.to_owned())
}

/// Reads the token of a file; `None` if it does not exist.
fn read(path: &Path) -> Result<Option<Token>, Error> {
    let failed = |error| Error::file(path, "read the token", error);
    let file = match input::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    let metadata = file.metadata().map_err(failed)?;
    let (mode, name) = (metadata.mode() & 0o7777, path.display());
    if mode & 0o077 != 0 {
        return Err(Error::new(format!(
            "{name}: other users may have read the token: mode {mode:04o}, expected 0600; remove \
             the file, and the scheduler creates a new one"
        )));
    }
    let own = fs::metadata("/proc/self").ok().map(|process| process.uid());
    if own.is_some_and(|own| ![own, 0].contains(&metadata.uid())) {
        let owner = metadata.uid();
        return Err(Error::new(format!(
            "{name}: the token belongs to user {owner}, expected a file of this user or root; copy it"
        )));
    }
    let mut text = String::new();
    file.take(LENGTH_MAX as u64 + 2).read_to_string(&mut text).map_err(failed)?;
    checked(text.trim_end_matches(['\n', '\r']), name.to_string()).map(Some)
}

fn checked(text: &str, origin: String) -> Result<Token, Error> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_plain && (LENGTH_MIN..=LENGTH_MAX).contains(&text.len()) {
        return Ok(Token { text: text.to_owned(), origin });
    }
    Err(Error::new(format!(
        "{origin}: expected a token of {LENGTH_MIN} to {LENGTH_MAX} printable ASCII characters in \
         one line, found {} characters",
        text.chars().count()
    )))
}

/// Writes a random token to a new file that only this user can read.
fn create(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let token = random()? + "\n";
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let written = file.write_all(token.as_bytes()).and_then(|()| {
        file.set_permissions(Permissions::from_mode(0o600))?; // whatever the umask is
        fs::hard_link(&draft, path) // fails if another scheduler has created it
    });
    let _ = fs::remove_file(&draft);
    match written {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use heaptide_fixtures::Scratch;

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().expect("a file").mode() & 0o777
    }

    #[test]
    fn a_token_is_created_once_and_only_for_its_user() {
        let place = Scratch::new("token");
        let path = place.join("deep/token");
        assert!(Token::find(Some(&path)).expect_err("none").to_string().contains("no such file"));
        let token = Token::find_or_create(Some(&path)).expect("a new token");
        assert_eq!((mode(&path), mode(&place.join("deep"))), (0o600, 0o700));
        assert_eq!(token.text.len(), 48);
        assert_eq!(Token::find_or_create(Some(&path)).expect("the same"), token);
        assert_eq!(fs::read_dir(place.join("deep")).expect("a directory").count(), 1);
        for (mode, is_right) in [(0o400, true), (0o640, false), (0o604, false), (0o620, false)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
            assert_eq!(Token::find(Some(&path)).is_ok(), is_right, "{mode:o}");
        }
    }

    #[test]
    fn only_the_whole_token_is_accepted() {
        let token = checked("0123456789abcdef", "test".to_owned()).expect("a token");
        assert!(checked("0123456789abcde", String::new()).is_err());
        assert!(checked("0123456789 abcdef", String::new()).is_err());
        let is_in = |agent: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(USER_AGENT, agent.parse().expect("a header"));
            token.is_in(&headers)
        };
        assert!(is_in("heaptide-token/0123456789abcdef tonic/0.14.9"));
        for wrong in
            ["", "0123456789abcdef", "heaptide-token/", "heaptide-token/0123456789abcde", "tonic"]
        {
            assert!(!is_in(wrong), "{wrong}");
        }
        assert!(!token.is_in(&HeaderMap::new()));
        assert!(!format!("{token:?}").contains("0123"));
    }
}
