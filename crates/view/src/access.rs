//! Access control: a request needs the token, and must come from a page of this server or from a
//! person. A page of another site does not know the token, whatever it sends.

use std::net::SocketAddr;
use std::sync::Mutex;

use axum::http::Request;
use heaptide_http::Refusal;
use heaptide_http::access::{Hosts, is_same, random};

use crate::error::Error;

/// Decides which requests are answered.
pub(crate) struct Access {
    token: String,
    /// Opens the page once: command lines, which others can read, contain this instead of the
    /// token.
    ticket: Mutex<Option<String>>,
    hosts: Hosts,
}

impl Access {
    /// Creates a new token for a server at an address.
    ///
    /// Errors: the system provides no random numbers.
    pub(crate) fn new(address: SocketAddr) -> Result<Access, Error> {
        let random = || random().map_err(Error::Token);
        let ticket = Mutex::new(Some(random()?));
        Ok(Access { token: random()?, ticket, hosts: Hosts::of_loopback(address) })
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
        self.hosts.check_site(request)
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

/// Returns the value of a query parameter; valid values contain no escaped characters.
fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Access {
        Access::new("127.0.0.1:4711".parse().expect("an address")).expect("random numbers")
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
}
