//! `heaptide view` over HTTP, with raw requests, for a program that tests control; and the requests
//! that it rejects.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use crate::harness::{Guest, Outcome, heaptide, profiles, recorded, run, scratch, until};
use crate::http_client::{self, Answer, PATIENCE, SlowClients, encoded};
use crate::steps::Steps;

/// A running server.
pub struct Viewer {
    child: Child,
    address: String,
    token: String,
}

impl Viewer {
    /// Starts `heaptide view --no-open` with these arguments.
    pub fn start(place: &Path, words: &[&str]) -> Viewer {
        let mut command = heaptide();
        command.args(["view", "--no-open"]).args(words).current_dir(place);
        Viewer::of(command)
    }

    /// Starts a server with a command.
    fn of(mut command: Command) -> Viewer {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("view");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        output.read_line(&mut line).expect("the address");
        let url = line.trim_end().strip_prefix("http://").expect("an address");
        let (address, token) = url.split_once("/?token=").expect("a token");
        assert_eq!(token.len(), 48, "192 bits: {token}");
        let (address, token) = (address.to_owned(), token.to_owned());
        Viewer { child, address, token }
    }

    /// Returns the address that the server prints.
    pub fn url(&self) -> String {
        format!("http://{}/?token={}", self.address, self.token)
    }

    fn connect(&self) -> TcpStream {
        http_client::connect(&self.address)
    }

    /// Returns the target of a request with the token.
    fn target(&self, path: &str, query: &[(&str, &str)]) -> String {
        let pairs = query.iter().map(|(name, value)| format!("&{name}={}", encoded(value)));
        format!("{path}?token={}{}", self.token, pairs.collect::<String>())
    }

    fn get(&self, path: &str, query: &[(&str, &str)]) -> Answer {
        self.ask(&format!("GET {} HTTP/1.1", self.target(path, query)), &[])
    }

    /// Sends a request line with the header `Host` and others.
    fn ask(&self, line: &str, headers: &[&str]) -> Answer {
        let host = format!("Host: {}", self.address);
        let headers: Vec<&str> = [&*host].into_iter().chain(headers.iter().copied()).collect();
        self.ask_raw(line, &headers, "")
    }

    fn ask_raw(&self, line: &str, headers: &[&str], body: &str) -> Answer {
        http_client::ask(&self.address, line, headers, body)
    }

    fn post(&self, body: &Value, headers: &[&str]) -> Answer {
        let body = body.to_string();
        let line = format!("POST {} HTTP/1.1", self.target("/api/control", &[]));
        let fixed = [
            format!("Host: {}", self.address),
            format!("Content-Length: {}", body.len()),
            "Content-Type: application/json".to_owned(),
        ];
        let headers: Vec<&str> =
            fixed.iter().map(String::as_str).chain(headers.iter().copied()).collect();
        self.ask_raw(&line, &headers, &body)
    }

    /// Returns the only row of the result of a query.
    fn row(&self, query: &str, more: &[(&str, &str)]) -> Value {
        let fixed = [("process", "0"), ("q", query)];
        let parameters: Vec<_> = fixed.into_iter().chain(more.iter().copied()).collect();
        let answer = self.get("/api/query", &parameters).json();
        assert_eq!((&answer["total"], &answer["cut"]), (&json!(1), &json!(0)), "{answer}");
        answer["rows"][0].clone()
    }

    /// Ends the server like Ctrl-C, and returns its status.
    fn interrupt(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
        self.child.wait().expect("its end").code()
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("descriptors").count()
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let _ = self.child.kill(); // may have ended
        let _ = self.child.wait();
    }
}

/// Records `ctl_steps.c` with some steps into `a.heaptide`.
fn finished(place: &Path, steps: &str) -> PathBuf {
    let mut guest = Steps::start(place, &[]);
    guest.steps(steps);
    guest.finish();
    place.join("a.heaptide")
}

const TOTALS: &str =
    "SELECT sum(allocations),sum(frees),sum(live_blocks),sum(live_bytes) GROUP BY none";

#[test]
fn a_finished_recording_is_answered_in_all_forms() {
    let place = scratch("view-finished");
    finished(&place, "abt");
    let viewer = Viewer::start(&place, &["a.heaptide"]);
    let page = viewer.get("/", &[]);
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    assert!(page.text().contains("a.heaptide"), "the title: {}", page.text());
    for (name, value) in [
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
    ] {
        assert_eq!(page.header(name), value);
    }
    let policy = page.header("content-security-policy");
    let (_, nonce) = policy.split_once("script-src 'nonce-").expect("a nonce");
    let nonce = &nonce[..48];
    assert!(policy.starts_with("default-src 'none'; connect-src 'self';"), "{policy}");
    let scripts = |of: &str| page.text().matches(of).count();
    assert_eq!(scripts(&format!("<script nonce=\"{nonce}\">")), 1);
    assert_eq!((scripts("<script>"), scripts("<style>")), (0, 0), "without a nonce");

    let answer = viewer.get("/api/recordings", &[]).json();
    assert_eq!((&answer["control"], &answer["query"]), (&json!(false), &json!(true)));
    assert_eq!(answer["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(answer["moments"], json!([{"process": 0, "snapshot": null}]));
    let [recording] = &answer["recordings"].as_array().expect("a list")[..] else {
        panic!("one recording: {answer}");
    };
    assert_eq!((&recording["name"], &recording["running"]), (&json!("a.heaptide"), &json!(false)));
    let process = &recording["processes"][0];
    assert_eq!((&process["number"], &process["mode"]), (&json!(0), &json!("stacks")));
    assert_eq!((&process["title"], &process["has_trace"]), (&json!("ctl_steps-c"), &json!(false)));
    assert_eq!(process["snapshots"], json!([]));

    let data = viewer.get("/api/data", &[("process", "0")]);
    let kind = "application/octet-stream";
    assert_eq!((data.status, data.header("content-type")), (200, kind));
    assert_eq!(data.header("x-heaptide-exact"), "whole");
    assert_eq!(viewer.get("/api/data", &[("process", "0")]).body, data.body);
    let version = data.header("x-heaptide-version");
    let same = viewer.get("/api/data", &[("process", "0"), ("since", version)]);
    assert_eq!((same.status, same.body.len()), (204, 0));

    let totals = json!([16, 1, 15, 26040]);
    assert_eq!(viewer.row(TOTALS, &[]), totals);
    let query = "SELECT function,sum(live_bytes) WHERE leaf() LIKE x FORMAT table";
    let wrong = viewer.get("/api/query", &[("process", "0"), ("q", query)]);
    assert_eq!(wrong.status, 400);
    assert!(wrong.text().starts_with("query: ") && wrong.text().contains('^'), "{}", wrong.text());
    let query = "SELECT stack,sum(live_blocks) AS n WHERE live_blocks>0 GROUP BY stack ORDER BY n";
    let csv = viewer.get("/api/query", &[("process", "0"), ("q", query), ("format", "csv")]);
    assert_eq!(csv.header("content-disposition"), "attachment; filename=\"heaptide.csv\"");
    let lines: Vec<String> = csv.text().lines().map(str::to_owned).collect();
    assert_eq!((lines.len(), &*lines[0]), (3, "stack,n"), "{lines:?}");
    assert!(lines[1].ends_with("/large,5") && lines[2].ends_with("/small,10"), "{lines:?}");
    let hint = viewer.get("/api/query", &[("process", "0"), ("q", "SELECT nothing")]).json();
    let note = "unknown column `nothing`; `heaptide query --describe sites` lists the columns";
    assert_eq!(hint["notes"], json!([note]));
    let table = viewer.get("/api/query", &[("process", "0"), ("q", "SELECT x FROM nowhere")]);
    assert!(table.status == 400 && table.text().starts_with("unknown table `nowhere`"));
    assert_eq!(viewer.interrupt(), Some(0));
}

#[test]
fn filters_are_those_of_the_command_line() {
    let place = scratch("view-filters");
    finished(&place, "abt");
    let viewer = Viewer::start(&place, &["a.heaptide"]);
    let filtered = |filter: &str| viewer.row(TOTALS, &[("filter", filter)]);
    assert_eq!(filtered("--focus ^large$"), json!([5, 0, 5, 25000]));
    assert_eq!(filtered("--ignore ^large$ --live-only"), json!([10, 0, 10, 1040]));
    assert_eq!(filtered("--min-size 4K"), json!([5, 0, 5, 25000]));
    let all = viewer.get("/api/data", &[("process", "0")]).body;
    let part = viewer.get("/api/data", &[("process", "0"), ("filter", "--focus ^large$")]).body;
    assert!(part.len() < all.len(), "{} {}", part.len(), all.len());
    for (filter, expected) in [
        ("--focus [", "--focus `[`: unclosed character class"),
        ("--nonsense", "unexpected argument '--nonsense' found"),
        ("--kind x", "invalid value 'x' for '--kind <heap|mapped|all|program|device>'"),
        ("--rules /etc/passwd", "--rules /etc/passwd: not a built-in rule set"),
        ("'", "filter `'`: missing closing quotation mark"),
    ] {
        for path in ["/api/data", "/api/query"] {
            let asked = [("process", "0"), ("q", "SELECT *"), ("filter", filter)];
            let answer = viewer.get(path, &asked);
            assert_eq!(answer.status, 400);
            assert!(answer.text().starts_with(expected), "{}", answer.text());
            assert_eq!(answer.text().lines().count(), 1, "{}", answer.text());
        }
    }
}

#[test]
fn lines_of_source_files_are_those_of_frames_and_of_no_other_file() {
    let place = scratch("view-source");
    finished(&place, "a");
    let viewer = Viewer::start(&place, &["a.heaptide"]);
    let lines =
        |frame: u32| viewer.get("/api/source", &[("process", "0"), ("frame", &frame.to_string())]);
    let found = (0..20).map(&lines).filter(|answer| answer.status == 200);
    let found: Vec<Value> = found.map(|answer| answer.json()).collect();
    let line_of = |lines: &Value| {
        let index = lines["line"].as_u64()? - lines["first"].as_u64()?;
        lines["lines"][index as usize].as_str().map(str::to_owned)
    };
    let of_frames: Vec<String> = found.iter().filter_map(line_of).collect();
    let call = |text: &str| of_frames.iter().any(|line| line.contains(text));
    assert!(call("kept[held++] = keep(malloc(100));") && call("case 'a': small();"), "{found:#?}");
    let file = found[0]["file"].as_str().expect("a file");
    assert!(file.ends_with("ctl_steps.c"), "{file}");
    assert_eq!(lines(4_000_000).status, 404);
    let more =
        viewer.get("/api/source", &[("process", "0"), ("frame", "0"), ("file", "/etc/passwd")]);
    assert!(!more.text().contains("root:"));
    let old = viewer.get("/api/source", &[("process", "0"), ("frame", "0"), ("version", "77")]);
    assert_eq!((old.status, &*old.text()), (409, "the tables have changed; load them again\n"));
}

/// Records steps with snapshots between them: 10 blocks of 104 bytes, then 5 of 5000, then all are
/// freed.
fn with_snapshots(place: &Path, options: &[&str]) -> Viewer {
    let mut guest = Steps::start(place, options);
    guest.steps("a");
    let viewer = Viewer::start(place, &["a.heaptide", "--control"]);
    let snapshot = |name: &str| {
        let asked = json!({"process": 0, "action": "snapshot", "text": name});
        let answer = viewer.post(&asked, &[]).json();
        assert!(answer["done"].as_str().is_some_and(|done| done.contains("snapshot ")), "{answer}");
    };
    snapshot("first");
    guest.steps("tb");
    snapshot("second");
    guest.steps("tf");
    guest.finish();
    viewer
}

#[test]
fn a_span_of_time_is_exact_by_a_trace_and_else_by_snapshots() {
    for (name, exact) in [("trace", "trace"), ("stacks", "snapshots")] {
        let place = scratch(&format!("view-span-{name}"));
        let viewer = with_snapshots(&place, &["--mode", name]);
        let answer = viewer.get("/api/recordings", &[]).json();
        let process = &answer["recordings"][0]["processes"][0];
        assert_eq!(process["has_trace"], json!(name == "trace"));
        let snapshots = &process["snapshots"];
        assert_eq!(snapshots[0]["name"], "first");
        let time = |index: usize| snapshots[index]["time_ns"].to_string();
        let (first, second) = (time(0), time(1));
        let span = |from: &str, to: &str| viewer.row(TOTALS, &[("from", from), ("to", to)]);
        assert_eq!(span(&first, &second), json!([6, 1, 15, 26040]), "{name}");
        assert_eq!(span("0", &first), json!([10, 0, 10, 1040]), "{name}");
        let end = u64::MAX.to_string();
        assert_eq!(span(&second, &end), json!([1, 16, 0, 0]), "{name}");
        assert_eq!(span("0", &end), json!([17, 17, 0, 0]), "{name}");
        let asked = [("process", "0"), ("from", &*first), ("to", &*second)];
        let data = viewer.get("/api/data", &asked);
        let header = |name: &str| data.header(name).to_owned();
        let span = (header("x-heaptide-exact"), header("x-heaptide-from"), header("x-heaptide-to"));
        assert_eq!(span, (exact.to_owned(), first.clone(), second.clone()));
        assert_ne!(data.body, viewer.get("/api/data", &[("process", "0")]).body);
        let function = "SELECT sum(allocations) WHERE function=large GROUP BY none";
        assert_eq!(viewer.row(function, &asked[1..]), json!([5]), "{name}");
        let wrong = viewer.get("/api/data", &[("process", "0"), ("from", "5"), ("to", "5")]);
        assert_eq!((wrong.status, &*wrong.text()), (400, "from=5&to=5: expected from < to\n"));
        let owners = viewer.get("/api/owners", &[("process", "0")]);
        let expected = if name == "trace" { 200 } else { 409 };
        assert_eq!(owners.status, expected, "{}", owners.text());
        let lifetimes = viewer.get("/api/lifetimes", &[asked[0]]);
        assert_eq!(lifetimes.status, expected, "{}", lifetimes.text());
        let old = viewer.get("/api/lifetimes", &[asked[0], ("version", "77")]);
        assert_eq!((old.status, &*old.text()), (409, "the tables have changed; load them again\n"));
        let of_first = viewer.row(TOTALS, &[("snapshot", "1")]);
        assert_eq!(of_first, json!([10, 0, 10, 1040]));
        let none = viewer.get("/api/data", &[("process", "0"), ("snapshot", "7")]);
        assert_eq!(none.status, 404, "{}", none.text());
    }
    let place = scratch("view-span-none");
    finished(&place, "a");
    let viewer = Viewer::start(&place, &["a.heaptide"]);
    let answer = viewer.get("/api/data", &[("process", "0"), ("from", "1"), ("to", "2")]);
    assert_eq!(answer.status, 409);
    assert!(answer.text().contains("without a trace or snapshots"), "{}", answer.text());
}

#[test]
fn snapshots_and_recordings_are_opened_side_by_side() {
    let place = scratch("view-two");
    drop(with_snapshots(&place, &[]));
    let viewer = Viewer::start(&place, &["a.heaptide@first", "a.heaptide@2"]);
    let answer = viewer.get("/api/recordings", &[]).json();
    let moments = json!([{"process": 0, "snapshot": 1}, {"process": 0, "snapshot": 2}]);
    assert_eq!(answer["moments"], moments);
    assert_eq!(viewer.interrupt(), Some(0));
}

/// Of a program behind a shell, the page states which process it shows.
#[test]
fn the_choice_of_the_process_is_stated() {
    let place = scratch("view-subject");
    let program = Guest::read("leaks.c").build("leaks", &[]);
    let mut command = recorded(&place.join("a.heaptide"), &[]);
    command.args(["sh", "-c", &format!("'{}'; true", program.display())]);
    let outcome = run(command.current_dir(&place), &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let viewer = Viewer::start(&place, &["a.heaptide"]);
    let listed = viewer.get("/api/recordings", &[]).json();
    let subject = &listed["recordings"][0]["subject"];
    assert_eq!(subject["number"], listed["moments"][0]["process"], "{listed}");
    let text = subject["text"].as_str().expect("a text");
    assert!(text.starts_with("leaks (pid ") && text.contains("; sh held "), "{text}");
}

#[test]
fn requests_without_the_token_or_from_other_sites_are_refused() {
    let place = scratch("view-access");
    finished(&place, "a");
    let viewer = Viewer::start(&place, &["a.heaptide"]);
    let own = viewer.target("/api/recordings", &[]);
    let line = format!("GET {own} HTTP/1.1");
    assert_eq!(viewer.ask(&line, &[]).status, 200);
    let token = &viewer.token;
    let targets = [
        "/".to_owned(),
        "/api/recordings".to_owned(),
        "/api/recordings?token=".to_owned(),
        format!("/api/recordings?token={}", &token[1..]),
        format!("/api/recordings?token={token}0"),
        format!("/api/recordings?token={}", "0".repeat(48)),
        format!("/api/recordings?token=x&token={token}"),
        "/api/changes".to_owned(),
        "/api/data?process=0".to_owned(),
        "/nothing".to_owned(),
    ];
    for target in targets {
        let answer = viewer.ask(&format!("GET {target} HTTP/1.1"), &[]);
        assert_eq!(answer.status, 403, "{target}");
        assert!(answer.text().contains("token; open the address"), "{}", answer.text());
        assert_eq!(answer.header("cache-control"), "no-store");
    }
    let refused = |headers: &[&str], what: &str| {
        let answer = viewer.ask_raw(&line, headers, "");
        assert_eq!(answer.status, 403, "{headers:?}");
        assert!(answer.text().contains(what), "{headers:?}: {}", answer.text());
    };
    let host = format!("Host: {}", viewer.address);
    let port = viewer.address.rsplit(':').next().expect("a port");
    refused(&[&format!("Host: rebound.example:{port}")], "header Host");
    refused(&["Host: 127.0.0.1"], "header Host");
    refused(&[&host, "Host: rebound.example"], "header Host");
    refused(&[&host, "Origin: http://evil.example"], "header Origin");
    refused(&[&host, "Origin: null"], "header Origin");
    refused(&[&host, "Origin: http://127.0.0.1:1"], "header Origin");
    refused(&[&host, "Sec-Fetch-Site: cross-site"], "header Sec-Fetch-Site");
    refused(&[&host, "Sec-Fetch-Site: same-site"], "header Sec-Fetch-Site");
    let absolute = format!("GET http://rebound.example{own} HTTP/1.1");
    assert_eq!(viewer.ask(&absolute, &[]).status, 403);
    let origin = format!("Origin: http://{}", viewer.address);
    assert_eq!(viewer.ask(&line, &[&*origin, "Sec-Fetch-Site: same-origin"]).status, 200);
    let asked = json!({"process": 0, "action": "mark", "text": "x"});
    let answer = viewer.post(&asked, &[]);
    assert_eq!(answer.status, 403);
    assert_eq!(answer.text(), "programs are not controlled without --control\n");
    for target in
        ["/../../etc/passwd", "/%2e%2e/etc/passwd", "/api/../../etc/passwd", "//etc/passwd"]
    {
        let answer = viewer.ask(&format!("GET {} HTTP/1.1", viewer.target(target, &[])), &[]);
        assert_eq!(answer.status, 404, "{target}");
    }
    let answer = viewer.ask(&format!("DELETE {own} HTTP/1.1"), &[]);
    assert_eq!(answer.status, 405);
    for bad in ["process=x", "process=-1", "process=99999999999", "snapshot=1"] {
        let line = format!("GET {}&{bad} HTTP/1.1", viewer.target("/api/data", &[]));
        let answer = viewer.ask(&line, &[]);
        assert_eq!(answer.status, 400, "{bad}");
        assert_eq!(answer.text().lines().count(), 1, "{}", answer.text());
    }
    assert_eq!(viewer.get("/api/data", &[("process", "7")]).status, 404);
}

#[test]
fn slow_huge_and_many_requests_hinder_nobody() {
    let place = scratch("view-clients");
    finished(&place, "ab");
    let viewer = Viewer::start(&place, &["a.heaptide"]);
    let own = |path: &str| viewer.get(path, &[("process", "0")]);
    let data = own("/api/data").body;
    let before = viewer.descriptors();
    let half_open: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = viewer.connect();
            stream.write_all(b"GET /api/da").expect("half a request");
            stream
        })
        .collect();
    assert_eq!(own("/api/data").body, data);
    let is_open = |stream: &TcpStream| {
        stream.set_nonblocking(true).expect("a socket");
        let read = stream.peek(&mut [0]);
        stream.set_nonblocking(false).expect("a socket");
        read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    assert!(half_open.iter().any(is_open), "it waited for the timeouts of the slow");
    // They are closed after a timeout, with or without a reply.
    for mut stream in half_open {
        let answer = Answer::read(&mut stream);
        assert!(matches!(answer.status, 0 | 408), "{}", answer.status);
    }
    for length in [70_000, 1 << 20] {
        let target = viewer.target(&format!("/{}", "x".repeat(length)), &[]);
        let mut stream = viewer.connect();
        // The server may close the connection before everything was sent.
        let _ = stream.write_all(format!("GET {target} HTTP/1.1\r\n\r\n").as_bytes());
        let status = Answer::read(&mut stream).status;
        assert!(matches!(status, 0 | 400 | 414 | 431), "{status}");
    }
    let mut stream = viewer.connect();
    stream.write_all(b"\x16\x03\x01 no HTTP at all\r\n\r\n").expect("nonsense");
    assert!(matches!(Answer::read(&mut stream).status, 0 | 400));
    thread::scope(|scope| {
        let ask = || assert_eq!(own("/api/data").body, data);
        let threads: Vec<_> = (0..100).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("the same answer"));
    });
    until("as many descriptors as before", || viewer.descriptors() <= before);
    assert_eq!(viewer.interrupt(), Some(0));
}

#[test]
fn idle_and_slow_clients_do_not_delay_the_page() {
    let place = scratch("view-slow");
    finished(&place, "ab");
    let viewer = Viewer::start(&place, &["a.heaptide"]);
    let path = viewer.target("/api/data", &[("process", "0")]);
    let mut clients = SlowClients::connect(&viewer.address, &path, 2000);
    assert_eq!(viewer.get("/", &[]).status, 200);
    assert_eq!(viewer.get("/api/data", &[("process", "0")]).status, 200);
    let open = clients.open();
    assert!(open > 1000, "answered after the server had closed all but {open} of 2000");
}

#[test]
fn a_request_with_a_large_or_slow_body_is_refused() {
    let place = scratch("view-bodies");
    finished(&place, "ab");
    let viewer = Viewer::start(&place, &["a.heaptide"]);
    let line = format!("POST {} HTTP/1.1", viewer.target("/api/control", &[]));
    let host = format!("Host: {}", viewer.address);
    let length = |bytes: usize| format!("Content-Length: {bytes}");
    let answer = viewer.ask_raw(&line, &[&host, &length(70_000)], "{");
    assert_eq!(answer.status, 413);
    assert_eq!(answer.text(), "the body of the request has more than 65536 bytes\n");
    let answer = viewer.ask_raw(&line, &[&host, &length(70)], "{");
    assert_eq!(answer.status, 408);
    assert_eq!(answer.text(), "the body of the request did not arrive within 10s\n");
}

/// A stream of events.
struct Events {
    stream: BufReader<TcpStream>,
    /// The names of received events.
    names: Vec<String>,
}

impl Events {
    fn listen(viewer: &Viewer) -> Events {
        let mut stream = viewer.connect();
        let target = viewer.target("/api/changes", &[]);
        let request = format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", viewer.address);
        stream.write_all(request.as_bytes()).expect("a request");
        let mut events = Events { stream: BufReader::new(stream), names: Vec::new() };
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            events.stream.read_line(&mut line).expect("a head");
        }
        events
    }

    /// Returns the data of the next event with a name for which a condition holds.
    fn until(&mut self, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        let (mut event, mut line) = (String::new(), String::new());
        loop {
            assert!(start.elapsed() < PATIENCE, "waited for {name}");
            line.clear();
            assert!(self.stream.read_line(&mut line).expect("an event") > 0, "the end of events");
            let text = line.trim_end();
            if let Some(name) = text.strip_prefix("event: ") {
                event = name.to_owned();
                self.names.push(name.to_owned());
            } else if let Some(data) = text.strip_prefix("data: ") {
                let data: Value = serde_json::from_str(data).expect("JSON");
                if event == name && holds(&data) {
                    return data;
                }
            }
        }
    }
}

#[test]
fn a_running_program_is_followed_to_its_end() {
    let place = scratch("view-live");
    let mut guest = Steps::start(&place, &[]);
    guest.steps("a");
    let viewer = Viewer::start(&place, &["a.heaptide", "--control"]);
    assert_eq!(viewer.get("/api/recordings", &[]).json()["recordings"][0]["running"], true);
    let before = viewer.get("/api/data", &[("process", "0")]);
    assert_eq!(viewer.row(TOTALS, &[]), json!([10, 0, 10, 1040]));
    let mut events = Events::listen(&viewer);
    let live = |bytes: u64| move |data: &Value| data["live_bytes"] == bytes;
    let first = events.until("live", live(1040));
    assert_eq!((&first["process"], &first["allocations"]), (&json!(0), &json!(10)));
    assert_eq!(first["ended"], Value::Null);
    assert!(first["resident_bytes"].as_u64() > Some(100_000) && first["time_ns"].is_u64());
    // The tables are not sent again until the program counts something.
    (0..4).for_each(|_| drop(events.until("live", live(1040))));
    assert!(!events.names.iter().any(|name| name == "tables"), "{:?}", events.names);
    guest.steps("b");
    let second = events.until("live", live(26040));
    assert_eq!(second["allocations"], json!(15));
    let tables = events.until("tables", |_| true);
    assert_eq!(tables, json!({"process": 0}));
    let after = viewer.get("/api/data", &[("process", "0")]);
    assert_ne!(after.body, before.body);
    assert!(after.header("x-heaptide-version") != before.header("x-heaptide-version"));
    let large = "SELECT sum(live_blocks) WHERE function=large GROUP BY none";
    assert_eq!(viewer.row(large, &[("filter", "--live-only")]), json!([5]));

    let marked = viewer.post(&json!({"process": 0, "action": "mark", "text": "here"}), &[]).json();
    let later = marked["later"].as_str().unwrap_or_default();
    assert!(later.contains("the mark is pending until the next one"), "{marked}");
    guest.steps("t");
    let stopped = viewer.post(&json!({"process": 0, "action": "stop"}), &[]).json();
    assert!(stopped["done"].as_str().is_some_and(|done| done.contains("recording off")));
    guest.steps("b");
    let started = viewer.post(&json!({"process": 0, "action": "start"}), &[]).json();
    assert!(started["done"].as_str().is_some_and(|done| done.contains("recording on")));
    for (asked, status) in [
        (json!({"process": 0, "action": "explode"}), 400),
        (json!({"process": 0, "action": "mark"}), 400),
        (json!({"process": 5, "action": "mark", "text": "x"}), 404),
        (json!({"action": "mark"}), 400),
        (json!([]), 400),
    ] {
        assert_eq!(viewer.post(&asked, &[]).status, status, "{asked}");
    }
    let evil = viewer.post(&json!({"process": 0, "action": "reset"}), &["Origin: http://evil"]);
    assert_eq!(evil.status, 403);

    guest.finish();
    let last = events.until("live", |data| data["ended"] != Value::Null);
    assert_eq!(last["ended"], "exited with status 0");
    events.until("tables", |_| true);
    events.until("recordings", |_| true);
    assert_eq!(viewer.get("/api/recordings", &[]).json()["recordings"][0]["running"], false);
    assert_eq!(viewer.row(TOTALS, &[]), json!([16, 1, 15, 26040]));
    let marks = "SELECT count() WHERE name=here FROM snapshots GROUP BY none";
    assert_eq!(viewer.row(marks, &[]), json!([1]));
    let over = viewer.post(&json!({"process": 0, "action": "reset"}), &[]);
    assert_eq!(over.status, 409, "{}", over.text());
    assert!(over.text().ends_with("has ended\n"), "{}", over.text());
}

#[test]
fn processes_that_come_are_reported() {
    let place = scratch("view-comes");
    let program = Guest::read("ctl_steps.c").build("ctl_steps.c", &[]);
    let mut command = recorded(&place.join("a.heaptide"), &[]);
    let script = format!("read x; echo $x; '{}'; true", program.display());
    command.args(["sh", "-c", &script]);
    let mut guest = Steps::spawn(command, place.join("a.heaptide"), place.clone());
    until("the shell", || !profiles(&place.join("a.heaptide")).is_empty());
    let viewer = loop {
        // The header is written shortly after the file is created.
        let probe = run(heaptide().arg("info").arg(place.join("a.heaptide")), &place);
        if probe.status == 0 {
            break Viewer::start(&place, &["a.heaptide"]);
        }
    };
    let mut events = Events::listen(&viewer);
    events.until("live", |_| true);
    guest.steps("\n");
    guest.steps("b");
    events.until("recordings", |_| true);
    events.until("live", |data| data["live_bytes"] == 25000);
    let answer = viewer.get("/api/recordings", &[]).json();
    let processes = answer["recordings"][0]["processes"].as_array().expect("processes");
    let titles: Vec<&str> = processes.iter().filter_map(|one| one["title"].as_str()).collect();
    assert!(titles.contains(&"ctl_steps-c") && titles.len() >= 2, "{titles:?}");
}

/// Other users see the command line of `xdg-open`, so its address works only once.
#[test]
fn the_browser_gets_an_address_that_works_once() {
    let place = scratch("view-opens");
    finished(&place, "a");
    let open = place.join("xdg-open");
    fs::write(&open, "#!/bin/sh\necho \"$1\" > opened.new; mv opened.new opened\n")
        .expect("a script");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&open, mode).expect("executable");
    let mut command = heaptide();
    let path = std::env::var("PATH").unwrap_or_default();
    command.args(["view", "a.heaptide"]).current_dir(&place).env("DISPLAY", ":0");
    command.env("PATH", format!("{}:{path}", place.display()));
    let viewer = Viewer::of(command);
    until("xdg-open", || place.join("opened").exists());
    let opened = fs::read_to_string(place.join("opened")).expect("an address");
    assert!(!opened.contains(&viewer.token), "{opened}");
    let target = opened.trim_end().strip_prefix(&format!("http://{}", viewer.address));
    let line = format!("GET {} HTTP/1.1", target.expect("the same server"));
    assert_eq!(viewer.ask(&line.replace("/?", "/api/recordings?"), &[]).status, 403);
    let first = viewer.ask(&line, &[]);
    assert_eq!((first.status, first.header("location")), (303, &*viewer.target("/", &[])));
    assert_eq!(viewer.ask(&line, &[]).status, 403);
}

fn refused(place: &Path, words: &[&str]) -> Outcome {
    run(heaptide().args(["view", "--no-open"]).args(words).current_dir(place), place)
}

#[test]
fn what_cannot_be_served_is_told_in_a_line() {
    let place = scratch("view-refused");
    finished(&place, "a");
    fs::create_dir(place.join("empty.heaptide")).expect("a directory");
    fs::create_dir(place.join("broken.heaptide")).expect("a directory");
    fs::write(place.join("broken.heaptide/1-0.profile"), b"nonsense").expect("a file");
    let busy = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = busy.local_addr().expect("its number").port().to_string();
    let in_use = format!("heaptide: cannot listen on 127.0.0.1:{port}: the port is in use");
    for (words, expected) in [
        (&["missing.heaptide"][..], "heaptide: missing.heaptide: no such recording"),
        (&["empty.heaptide"], "heaptide: empty.heaptide: "),
        (&["broken.heaptide"], "heaptide: broken.heaptide/1-0.profile: "),
        (&["a.heaptide", "broken.heaptide"], "heaptide: broken.heaptide/1-0.profile: "),
        (&["a.heaptide", "--port", &port], &in_use),
        (&["a.heaptide", "--listen", "0.0.0.0"], "heaptide: --listen 0.0.0.0: not a loopback"),
        (&["a.heaptide", "--listen", "::"], "heaptide: --listen ::: not a loopback address"),
        (&["a.heaptide", "--rules", "nowhere"], "heaptide: --rules nowhere: no such file"),
        (&["4294967295"], "heaptide: 4294967295: no such process"),
    ] {
        let outcome = refused(&place, words);
        assert_eq!((outcome.status, &*outcome.stdout), (2, ""), "{words:?}");
        assert!(outcome.stderr.starts_with(expected), "{words:?}: {}", outcome.stderr);
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    }
}

#[test]
fn ctrl_c_ends_it_with_status_0_and_frees_the_port() {
    let place = scratch("view-ends");
    let mut guest = Steps::start(&place, &[]);
    guest.steps("a");
    // Without a name: the newest recording.
    let viewer = Viewer::start(&place, &[]);
    let address = viewer.address.clone();
    let mut events = Events::listen(&viewer);
    events.until("live", |_| true);
    let half_open = viewer.connect();
    assert_eq!(viewer.interrupt(), Some(0));
    drop((half_open, events));
    let port = address.rsplit(':').next().expect("a port");
    let again = Viewer::start(&place, &["--port", port]);
    assert_eq!(again.address, address);
    let recordings = again.get("/api/recordings", &[]).json();
    let pid = recordings["recordings"][0]["processes"][0]["pid"].to_string();
    let by_pid = Viewer::start(&place, &[&pid]);
    assert_eq!(by_pid.row(TOTALS, &[]), json!([10, 0, 10, 1040]));
}
