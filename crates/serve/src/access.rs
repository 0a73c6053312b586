//! Access control: accepts requests of programs and of pages of this server, with the token if one
//! is required.

use std::fs;
use std::net::SocketAddr;

use axum::http::Request;
use axum::http::header::AUTHORIZATION;
use heaptide_http::Refusal;
use heaptide_http::access::{Hosts, is_same};

/// The rules for accepting requests.
pub(crate) struct Access {
    hosts: Hosts,
    token: Option<String>,
}

impl Access {
    /// Creates the rules for a server at an address, with additional host names, and a token if
    /// required.
    pub(crate) fn new(
        address: SocketAddr,
        mut names: Vec<String>,
        token: Option<String>,
    ) -> Access {
        if !address.ip().is_loopback() {
            let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            names.extend(Some(host.trim().to_owned()).filter(|host| !host.is_empty()));
        }
        Access { hosts: Hosts::AddressesAnd(names), token }
    }

    /// Checks a request.
    ///
    /// Errors: the refusal.
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<(), Refusal> {
        self.hosts.check_site(request)?;
        let is_open = request.uri().path() == "/healthz";
        let Some(token) = self.token.as_ref().filter(|_| !is_open) else { return Ok(()) };
        let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| {
            let (scheme, given) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(given.trim())
        });
        match given {
            Some(given) if is_same(given, token) => Ok(()),
            Some(_) => Err(Refusal::unauthorized("wrong token (header Authorization)")),
            None => Err(Refusal::unauthorized("no token (header Authorization: Bearer TOKEN)")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_needed_but_for_the_state() {
        let address = "127.0.0.1:9743".parse().expect("an address");
        let access = Access::new(address, Vec::new(), Some("s3cret".to_owned()));
        let check = |path: &str, authorization: Option<&str>| {
            let mut request = Request::get(path).header("host", "127.0.0.1:9743");
            if let Some(value) = authorization {
                request = request.header("authorization", value);
            }
            access.check(&request.body(()).expect("a request")).map_err(|error| error.status)
        };
        assert_eq!(check("/metrics", Some("Bearer s3cret")), Ok(()));
        assert_eq!(check("/metrics", Some("bearer s3cret")), Ok(()));
        assert_eq!(check("/healthz", None), Ok(()));
        for wrong in [None, Some("Bearer s3cre"), Some("Basic s3cret"), Some("s3cret")] {
            let refused = check("/metrics", wrong).expect_err("refused");
            assert_eq!(refused.as_u16(), 401, "{wrong:?}");
        }
    }
}
