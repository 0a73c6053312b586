//! Checks of the origin of requests, and tokens.
//!
//! A page of another site can make a browser send requests here. Its name may resolve to this
//! machine (DNS rebinding), which the `Host` header reveals; or it uses the name of this server,
//! which `Origin` and `Sec-Fetch-Site` reveal.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, Request, Response};
use subtle::ConstantTimeEq;

use crate::refusal::Refusal;

/// Random bytes of a token: 192 bits.
const TOKEN_BYTES: usize = 24;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// What responses permit a page, in addition to elements with a nonce: nothing from other servers.
const POLICY: &str = "default-src 'none'; connect-src 'self'; img-src 'self' data: blob:; \
    worker-src blob:; style-src-attr 'unsafe-inline'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// Accepted values of the header `Host`.
#[derive(Clone, Debug)]
pub enum Hosts {
    /// These names with their ports, and no other.
    Exactly(Vec<String>),
    /// Any address, `localhost` and these names, with any port. A name chosen by an attacker does
    /// not match.
    AddressesAnd(Vec<String>),
}

impl Hosts {
    /// Returns the names of a server on a loopback address, as browsers on this machine use them.
    pub fn of_loopback(address: SocketAddr) -> Hosts {
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
        Hosts::Exactly(hosts)
    }

    /// Checks that a request comes from a page of this server, from direct navigation, or from a
    /// program.
    ///
    /// Errors: the refusal, which names the header.
    pub fn check_site<B>(&self, request: &Request<B>) -> Result<(), Refusal> {
        let headers = request.headers();
        let hosts = headers.get_all(header::HOST).iter().map(text);
        let named = request.uri().authority().map(|authority| authority.as_str());
        let hosts: Vec<&str> = hosts.chain(named).collect();
        if hosts.is_empty() {
            return Err(Refusal::forbidden("header Host is missing"));
        }
        if !hosts.iter().all(|host| self.has(host)) {
            return Err(Refusal::forbidden("this server has another name (header Host)"));
        }
        let mut origins = headers.get_all(header::ORIGIN).iter().map(text);
        let is_own = |origin: &str| hosts.iter().any(|host| host.eq_ignore_ascii_case(origin));
        if !origins.all(|origin| origin.strip_prefix("http://").is_some_and(is_own)) {
            return Err(Refusal::forbidden("request of another site (header Origin)"));
        }
        let mut sites = headers.get_all(SEC_FETCH_SITE).iter().map(text);
        if !sites.all(|site| matches!(site, "same-origin" | "none")) && !is_followed_link(request) {
            return Err(Refusal::forbidden("request of another site (header Sec-Fetch-Site)"));
        }
        Ok(())
    }

    fn has(&self, host: &str) -> bool {
        match self {
            Hosts::Exactly(names) => names.iter().any(|own| own.eq_ignore_ascii_case(host)),
            Hosts::AddressesAnd(names) => {
                let name = without_port(host);
                is_address(name)
                    || name.eq_ignore_ascii_case("localhost")
                    || names.iter().any(|own| own.eq_ignore_ascii_case(name))
            }
        }
    }
}

/// Returns the host of a header without its port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Returns whether a host is an IPv4 address, or an IPv6 address in brackets.
fn is_address(name: &str) -> bool {
    match name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
        None => name.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4()),
    }
}

/// Returns whether the request is navigation to the page by a link elsewhere, such as in a terminal
/// in the browser.
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

/// Compares two tokens in constant time.
///
/// ```
/// use heaptide_http::access::is_same;
/// assert!(is_same("5d0e", "5d0e") && !is_same("5d0e", "5d0f"));
/// ```
pub fn is_same(given: &str, own: &str) -> bool {
    given.as_bytes().ct_eq(own.as_bytes()).into()
}

/// Returns random hexadecimal digits.
///
/// Errors: the system provides no random numbers.
///
/// ```
/// assert_eq!(heaptide_http::access::random().unwrap().len(), 48);
/// ```
pub fn random() -> io::Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Adds headers that protect a response from other pages and caches, and forbid it to load
/// anything.
pub fn protect<B>(response: &mut Response<B>) {
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

/// Returns the policy for a page whose scripts and styles have a nonce.
pub fn policy_of_page(nonce: &str) -> String {
    format!("{POLICY}; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(hosts: &Hosts, path: &str, headers: &[(&str, &str)]) -> Result<(), Refusal> {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        hosts.check_site(&request.body(()).expect("a request"))
    }

    fn loopback() -> Hosts {
        Hosts::of_loopback("127.0.0.1:4711".parse().expect("an address"))
    }

    #[test]
    fn only_own_hosts_and_sites_are_answered() {
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
            assert_eq!(checked(&loopback(), "/", headers), Ok(()), "{headers:?}");
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
            assert!(checked(&loopback(), "/", headers).is_err(), "{headers:?}");
        }
        let link = good[5];
        assert!(checked(&loopback(), "/api/data", link).is_err());
        assert!(checked(&loopback(), "http://evil.example/", &[host]).is_err());
        assert!(checked(&loopback(), "http://localhost:4711/", &[host]).is_ok());
    }

    #[test]
    fn names_that_an_attacker_may_own_are_no_addresses() {
        let hosts = Hosts::AddressesAnd(vec!["metrics.example".to_owned()]);
        for good in ["10.0.0.7:9743", "10.0.0.7", "[fe80::1]:9743", "localhost:4000", "LOCALHOST"] {
            assert_eq!(checked(&hosts, "/", &[("host", good)]), Ok(()), "{good}");
        }
        assert_eq!(checked(&hosts, "/", &[("host", "Metrics.Example:80")]), Ok(()));
        for bad in ["evil.example", "10.0.0.7.evil.example:80", "localhost.evil", "", ":80", "::1"]
        {
            assert!(checked(&hosts, "/", &[("host", bad)]).is_err(), "{bad}");
        }
        let other = [("host", "10.0.0.7:9743"), ("origin", "http://10.0.0.8:9743")];
        assert!(checked(&hosts, "/", &other).is_err(), "a page of another address");
    }
}
