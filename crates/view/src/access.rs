//! Access control: a request needs the token, and must come from a page of this server or from a
//! person.
//!
//! A page of another site can make a browser send requests here: its host name may resolve to this
//! machine (DNS rebinding), which the `Host` header reveals, or it may request this server's
//! address, which `Origin` and `Sec-Fetch-Site` reveal. In any case it does not know the token.

use std::net::SocketAddr;
use std::sync::Mutex;

use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, Request, Response};
use subtle::ConstantTimeEq;

use crate::error::Error;
use crate::refusal::Refusal;

/// Random bytes of a token: 192 bits.
const TOKEN_BYTES: usize = 24;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// The content security policy of responses, in addition to a nonce: nothing from other servers.
const POLICY: &str = "default-src 'none'; connect-src 'self'; img-src 'self' data: blob:; \
    worker-src blob:; style-src-attr 'unsafe-inline'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// Decides which requests are answered.
pub(crate) struct Access {
    token: String,
    /// Opens the page once: command lines, which others can read, contain this instead of the
    /// token.
    ticket: Mutex<Option<String>>,
    /// Valid values of `Host`.
    hosts: Vec<String>,
}

impl Access {
    /// Creates a new token for a server at an address.
    ///
    /// Errors: the system provides no random numbers.
    pub(crate) fn new(address: SocketAddr) -> Result<Access, Error> {
        let port = address.port();
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned(), "[::1]".to_owned()];
        let own = match address {
            SocketAddr::V4(address) => address.ip().to_string(),
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        };
        let names = names.into_iter().chain([own]);
        let mut hosts: Vec<String> = names.clone().map(|name| format!("{name}:{port}")).collect();
        if port == 80 {
            hosts.extend(names);
        }
        Ok(Access { token: random()?, ticket: Mutex::new(Some(random()?)), hosts })
    }

    /// Returns the query of an address that grants access.
    pub(crate) fn query(&self) -> String {
        format!("token={}", self.token)
    }

    /// Returns the query that grants access for one request.
    pub(crate) fn query_once(&self) -> String {
        let ticket = self.ticket.lock().unwrap_or_else(|error| error.into_inner());
        format!("ticket={}", ticket.as_deref().unwrap_or_default())
    }

    /// Returns whether a request has the ticket, and invalidates it.
    pub(crate) fn takes_ticket(&self, query: &str) -> bool {
        let Some(given) = parameter(query, "ticket") else { return false };
        let mut ticket = self.ticket.lock().unwrap_or_else(|error| error.into_inner());
        ticket.take_if(|ticket| is_same(given, ticket)).is_some()
    }

    /// Checks that a request comes from a page of this server or from a person.
    pub(crate) fn check_site<B>(&self, request: &Request<B>) -> Result<(), Refusal> {
        let headers = request.headers();
        let hosts = headers.get_all(header::HOST).iter().map(text);
        let named = request.uri().authority().map(|authority| authority.as_str());
        let is_own = |host: &str| self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host));
        let mut count = 0;
        for host in hosts.chain(named) {
            count += 1;
            if !is_own(host) {
                return Err(Refusal::forbidden("this server has another name (header Host)"));
            }
        }
        if count == 0 {
            return Err(Refusal::forbidden("header Host is missing"));
        }
        let mut origins = headers.get_all(header::ORIGIN).iter().map(text);
        if !origins.all(|origin| origin.strip_prefix("http://").is_some_and(is_own)) {
            return Err(Refusal::forbidden("request of another site (header Origin)"));
        }
        let mut sites = headers.get_all(SEC_FETCH_SITE).iter().map(text);
        if !sites.all(|site| matches!(site, "same-origin" | "none")) && !is_followed_link(request) {
            return Err(Refusal::forbidden("request of another site (header Sec-Fetch-Site)"));
        }
        Ok(())
    }

    /// Checks that a request has the token.
    pub(crate) fn check_token(&self, query: &str) -> Result<(), Refusal> {
        match parameter(query, "token") {
            Some(token) if is_same(token, &self.token) => Ok(()),
            Some(_) => Err(Refusal::forbidden(
                "wrong token; open the address that `heaptide view` has printed",
            )),
            None => Err(Refusal::forbidden(
                "no token; open the address that `heaptide view` has printed",
            )),
        }
    }
}

/// Returns whether a person followed a link to the page from another one, such as a terminal in a
/// browser.
fn is_followed_link<B>(request: &Request<B>) -> bool {
    let is = |name: HeaderName, value: &str| {
        let mut all = request.headers().get_all(name).iter().map(text);
        all.next() == Some(value) && all.next().is_none()
    };
    let is_page = request.method() == Method::GET && request.uri().path() == "/";
    is_page && is(SEC_FETCH_MODE, "navigate") && is(SEC_FETCH_DEST, "document")
}

fn text(value: &HeaderValue) -> &str {
    value.to_str().unwrap_or_default()
}

/// Returns the value of a query parameter; valid values contain no escaped characters.
fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

fn is_same(given: &str, own: &str) -> bool {
    given.as_bytes().ct_eq(own.as_bytes()).into()
}

/// Returns random hexadecimal digits.
///
/// Errors: the system provides no random numbers.
pub(crate) fn random() -> Result<String, Error> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(Error::Token)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Adds headers to a response that protect it from other pages and caches, and forbid loading
/// anything.
pub(crate) fn protect<B>(response: &mut Response<B>) {
    let headers: &mut HeaderMap = response.headers_mut();
    let fixed = [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let policy = HeaderValue::from_static(POLICY);
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(policy);
}

/// Returns the policy of a page whose scripts and styles have a nonce.
pub(crate) fn policy_of_page(nonce: &str) -> String {
    format!("{POLICY}; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Access {
        Access::new("127.0.0.1:4711".parse().expect("an address")).expect("random numbers")
    }

    fn checked(path: &str, headers: &[(&str, &str)]) -> Result<(), Refusal> {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        access().check_site(&request.body(()).expect("a request"))
    }

    #[test]
    fn tokens_are_random_and_only_the_right_one_is_accepted() {
        let (one, other) = (access(), access());
        assert_ne!(one.token, other.token);
        assert_eq!(one.token.len(), 48);
        assert!(one.check_token(&one.query()).is_ok());
        assert!(one.check_token(&format!("process=1&{}&x=2", one.query())).is_ok());
        for wrong in ["", "token=", "token", "Token=x", &other.query(), &one.query()[..40]] {
            assert!(one.check_token(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_ticket_is_valid_once() {
        let access = access();
        let ticket = access.query_once();
        assert!(!access.takes_ticket("ticket=") && !access.takes_ticket(&access.query()));
        assert!(access.takes_ticket(&ticket) && !access.takes_ticket(&ticket));
        assert!(!access.takes_ticket(&access.query_once()));
    }

    #[test]
    fn requests_of_other_hosts_and_sites_are_rejected() {
        let host = ("host", "127.0.0.1:4711");
        let good: [&[_]; 6] = [
            &[host],
            &[("host", "LOCALHOST:4711")],
            &[("host", "[::1]:4711")],
            &[host, ("origin", "http://127.0.0.1:4711"), ("sec-fetch-site", "same-origin")],
            &[host, ("sec-fetch-site", "none")],
            &[
                host,
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", "document"),
            ],
        ];
        for headers in good {
            assert_eq!(checked("/", headers), Ok(()), "{headers:?}");
        }
        let bad: [&[_]; 10] = [
            &[],
            &[("host", "127.0.0.1")],
            &[("host", "127.0.0.1:80")],
            &[("host", "evil.example:4711")],
            &[host, ("host", "evil.example")],
            &[host, ("origin", "null")],
            &[host, ("origin", "https://127.0.0.1:4711")],
            &[host, ("origin", "http://127.0.0.1:4712")],
            &[host, ("sec-fetch-site", "same-site")],
            &[
                host,
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", "iframe"),
            ],
        ];
        for headers in bad {
            assert!(checked("/", headers).is_err(), "{headers:?}");
        }
        let link = good[5];
        assert!(checked("/api/data", link).is_err());
        assert!(checked("http://evil.example/", &[host]).is_err());
        assert!(checked("http://localhost:4711/", &[host]).is_ok());
    }
}
