//! An HTTP client with full control over requests.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::harness::clean;

/// The maximum wait for a reply, also on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The reply of a server.
pub struct Answer {
    /// The status code.
    pub status: u16,
    headers: BTreeMap<String, String>,
    /// The content.
    pub body: Vec<u8>,
}

impl Answer {
    /// Reads a reply up to the end of the connection.
    pub fn read(stream: &mut TcpStream) -> Answer {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes); // a rejected request may end in a reset
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(bytes.len());
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let status =
            lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
        let header = |line: &str| {
            let (name, value) = line.split_once(": ")?;
            Some((name.to_ascii_lowercase(), value.to_owned()))
        };
        let headers = lines.filter_map(header).collect();
        Answer { status, headers, body: bytes.get(end + 4..).unwrap_or_default().to_vec() }
    }

    /// Returns the content as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the content, which must be JSON.
    pub fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// Returns the value of a header; empty without it.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// Connects to a server.
pub fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    stream
}

/// Sends a request with exactly these headers.
pub fn ask(address: &str, line: &str, headers: &[&str], body: &str) -> Answer {
    let mut stream = connect(address);
    let head = headers.iter().map(|header| format!("{header}\r\n")).collect::<String>();
    let request = format!("{line}\r\n{head}Connection: close\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).expect("a request");
    Answer::read(&mut stream)
}

/// Requests a path, with the header `Host`.
pub fn get(address: &str, path: &str, headers: &[&str]) -> Answer {
    let host = format!("Host: {address}");
    let headers: Vec<&str> = [&*host].into_iter().chain(headers.iter().copied()).collect();
    ask(address, &format!("GET {path} HTTP/1.1"), &headers, "")
}

/// Encodes a value for a query string.
pub fn encoded(value: &str) -> String {
    let one = |byte: u8| match byte {
        b if b.is_ascii_alphanumeric() => char::from(b).to_string(),
        b => format!("%{b:02X}"),
    };
    value.bytes().map(one).collect()
}

/// Clients that send nothing, send or read slowly, or stay idle after a request. They are in a
/// process of their own, which needs many descriptors.
pub struct SlowClients {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl SlowClients {
    /// Connects `count` clients to a server, and returns when all are connected and have sent the
    /// beginning of their requests. Those that read slowly request `path`.
    pub fn connect(address: &str, path: &str, count: u32) -> SlowClients {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/slow_clients.py");
        let mut command = clean(Command::new("python3"));
        command.arg(script).args([address, path, &count.to_string()]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let mut clients = SlowClients { child, output };
        assert_eq!(clients.line(), "connected");
        clients
    }

    /// Returns how many connections the server has not closed yet.
    pub fn open(&mut self) -> u32 {
        drop(self.child.stdin.take());
        self.line().parse().expect("a number")
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }
}

impl Drop for SlowClients {
    fn drop(&mut self) {
        let _ = self.child.kill(); // may have ended
        let _ = self.child.wait();
    }
}
