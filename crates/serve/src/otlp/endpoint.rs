//! The address of a collector.

use std::fmt;
use std::str::FromStr;

/// Default port of OTLP over HTTP.
const PORT: u16 = 4318;

/// The address of a collector: `http://HOST[:PORT][/PATH]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// A host name or address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Prefix of paths such as `/v1/metrics`; empty, or begins with a slash.
    pub(crate) path: String,
}

/// The error if a text is not such an address.
#[derive(PartialEq, Eq, Debug)]
pub struct NoEndpoint(&'static str);

impl fmt::Display for NoEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for NoEndpoint {}

impl Endpoint {
    /// Returns the value of the header `Host`.
    pub(crate) fn authority(&self) -> String {
        let Endpoint { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.path)
    }
}

impl FromStr for Endpoint {
    type Err = NoEndpoint;

    fn from_str(text: &str) -> Result<Endpoint, NoEndpoint> {
        const EXPECTED: NoEndpoint = NoEndpoint("expected http://HOST:4318");
        if text.starts_with("https://") {
            return Err(NoEndpoint(
                "https is not supported; run a collector on this machine that forwards the data",
            ));
        }
        let rest = text.strip_prefix("http://").ok_or(EXPECTED)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#@".contains(&byte);
        if !rest.bytes().all(is_plain) {
            return Err(EXPECTED);
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(inner) => {
                let (host, rest) = inner.split_once(']').ok_or(EXPECTED)?;
                (host, rest.strip_prefix(':').or((rest.is_empty()).then_some("")).ok_or(EXPECTED)?)
            }
            None => authority.split_once(':').unwrap_or((authority, "")),
        };
        let port = if port.is_empty() { Ok(PORT) } else { port.parse() };
        let port = port.ok().filter(|port| *port != 0).ok_or(EXPECTED)?;
        if host.is_empty() {
            return Err(EXPECTED);
        }
        let path = path.trim_end_matches('/').to_owned();
        Ok(Endpoint { host: host.to_owned(), port, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port_and_may_have_a_path() {
        for (text, shown) in [
            ("http://localhost", "http://localhost:4318"),
            ("http://127.0.0.1:80/", "http://127.0.0.1:80"),
            ("http://[::1]:4318/otlp/", "http://[::1]:4318/otlp"),
            ("http://[::1]", "http://[::1]:4318"),
        ] {
            assert_eq!(text.parse::<Endpoint>().map(|e| e.to_string()), Ok(shown.to_owned()));
        }
        for wrong in
            ["localhost:4318", "http://", "http://:1", "http://a:0", "http://a b", "http://[::1"]
        {
            assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
        }
        let error = "https://a".parse::<Endpoint>().expect_err("no TLS").to_string();
        assert!(error.starts_with("https is not supported"), "{error}");
    }
}
