//! `heaptide serve`, queried by Prometheus, `go tool pprof` and raw requests, for a program that
//! does a step for each letter of its input.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use heaptide_fixtures::skips::{ROOT, is_root, skip};

use crate::harness::{
    Clock, NOBODY, Outcome, clean, heaptide, profiles, recorded, run, scratch, until,
};
use crate::http_client::{self, Answer, PATIENCE, SlowClients};
use crate::programs::is_installed;
use crate::steps::{Steps, program};

/// The polling interval.
pub const POLL: Duration = Duration::from_millis(20);

/// A running server.
pub struct Served {
    child: Child,
    /// `127.0.0.1:PORT`.
    pub address: String,
    errors: PathBuf,
}

impl Served {
    /// Starts `heaptide serve` with these arguments, on a free port.
    pub fn start(place: &Path, words: &[&str]) -> Served {
        Served::of(heaptide(), place, words)
    }

    /// The same with a command that starts `heaptide`.
    fn of(mut command: Command, place: &Path, words: &[&str]) -> Served {
        let errors = place.join("serve-errors");
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(words).current_dir(place);
        command.stdout(Stdio::piped()).stderr(fs::File::create(&errors).expect("a file"));
        let mut child = command.spawn().expect("heaptide serve");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        output.read_line(&mut line).expect("the address");
        let address = line.strip_prefix("http://").and_then(|line| line.strip_suffix("/metrics\n"));
        let address = address.unwrap_or_else(|| panic!("no address: {line}")).to_owned();
        Served { child, address, errors }
    }

    /// Requests a path.
    pub fn get(&self, path: &str) -> Answer {
        http_client::get(&self.address, path, &[])
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> Metrics {
        let answer = self.get("/metrics");
        assert_eq!(answer.status, 200, "{}", answer.text());
        Metrics { text: answer.text() }
    }

    /// Waits until the metrics are as expected.
    fn until(&self, what: &str, is_so: impl Fn(&Metrics) -> bool) -> Metrics {
        let start = Instant::now();
        loop {
            let metrics = self.metrics();
            if is_so(&metrics) {
                return metrics;
            }
            assert!(start.elapsed() < PATIENCE, "waited for {what}: {}", metrics.text);
            std::thread::sleep(POLL);
        }
    }

    /// Waits until `count` processes run.
    pub fn until_running(&self, count: u64) -> Metrics {
        self.until(&format!("{count} processes"), |metrics| {
            metrics.value("heaptide_processes", &[]) == Some(count as f64)
        })
    }

    /// Ends the server by a signal, and returns its status.
    fn end(mut self, signal: &str) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill").success());
        self.child.wait().expect("its end").code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill(); // may have ended
        let _ = self.child.wait();
    }
}

/// A reply of `/metrics`.
pub struct Metrics {
    pub text: String,
}

impl Metrics {
    /// Returns the lines of series.
    pub fn series(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter(|line| !line.starts_with('#'))
    }

    /// Returns the value of the only series with this name and these labels.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut values = self.values(name, labels);
        let value = values.next();
        assert!(values.next().is_none(), "several {name} with {labels:?}: {}", self.text);
        value
    }

    /// Returns the values of all series with this name and these labels.
    fn values(&self, name: &str, labels: &[(&str, &str)]) -> impl Iterator<Item = f64> {
        self.series().filter_map(move |line| {
            let (series, value) = line.rsplit_once(' ')?;
            let of_name = series.strip_prefix(name)?;
            let is_it = of_name.is_empty() || of_name.starts_with('{');
            let has = |(key, value): &(&str, &str)| series.contains(&format!("{key}=\"{value}\""));
            (is_it && labels.iter().all(has)).then(|| value.parse().expect("a number"))
        })
    }

    /// Returns the names with labels.
    fn names(&self) -> BTreeSet<&str> {
        self.series().filter_map(|line| line.rsplit_once(' ')).map(|(name, _)| name).collect()
    }
}

/// Checks the counters of a program: allocations, frees, live blocks, live bytes, peak.
fn assert_totals(metrics: &Metrics, pid: &str, expected: [u64; 5]) {
    let names = [
        "heaptide_allocations_total",
        "heaptide_frees_total",
        "heaptide_live_blocks",
        "heaptide_live_bytes",
        "heaptide_peak_bytes",
    ];
    for (name, expected) in names.iter().zip(expected) {
        let found = metrics.value(name, &[("pid", pid), ("program", "ctl_steps-c")]);
        assert_eq!(found, Some(expected as f64), "{name} in {}", metrics.text);
    }
}

#[test]
fn metrics_are_those_of_the_program_by_scope_and_label() {
    let place = scratch("serve-metrics");
    let mut guest = Steps::start(&place, &[]);
    guest.steps("abwl");
    let pid = guest.pid();
    let served = Served::start(&place, &["a.heaptide"]);
    let metrics = served.metrics();
    // 10 of 104 bytes, 5 of 5000; one of those is freed, and there is one of 72 instead.
    assert_totals(&metrics, &pid, [16, 1, 15, 1040 + 4 * 5000 + 72, 26040 + 72]);
    let of_scope = |name: &str| metrics.value(name, &[("pid", &pid), ("scope", "work")]);
    assert_eq!(of_scope("heaptide_scope_live_bytes"), Some(72.0));
    assert_eq!(of_scope("heaptide_scope_allocations_total"), Some(1.0));
    let of_label = |name: &str| metrics.value(name, &[("label", "cache"), ("memory", "heap")]);
    assert_eq!(of_label("heaptide_label_live_bytes"), Some(72.0), "{}", metrics.text);
    assert_eq!(of_label("heaptide_label_allocations_total"), Some(1.0));
    let value = |name: &str| metrics.value(name, &[("pid", &pid)]).expect("a value");
    assert!(value("heaptide_process_resident_memory_bytes") > 1e5);
    assert!((value("heaptide_process_start_time_seconds") - now()).abs() < 3600.0);
    assert_eq!(metrics.value("heaptide_process_info", &[("recording", "a.heaptide")]), Some(1.0));
    assert_eq!(metrics.value("heaptide_losses_total", &[("kind", "no_space")]), Some(0.0));
    assert_eq!(served.get("/healthz").text(), "ok: 1 process runs\n");

    guest.steps("f");
    let metrics = served.until("all blocks freed", |metrics| {
        metrics.value("heaptide_live_blocks", &[]) == Some(0.0)
    });
    assert_totals(&metrics, &pid, [16, 16, 0, 0, 26040 + 72]);
    let freed = metrics.value("heaptide_freed_bytes_total", &[]);
    assert_eq!(freed, metrics.value("heaptide_allocated_bytes_total", &[]));
    guest.ctl_while_it_allocates(&["off"]);
    served
        .until("recording off", |metrics| metrics.value("heaptide_recording_on", &[]) == Some(0.0));
    assert_eq!(served.end("-TERM"), Some(0));
}

#[test]
fn each_client_gets_the_text_that_it_accepts() {
    let place = scratch("serve-text");
    let mut guest = Steps::start(&place, &[]);
    guest.steps("abwl");
    let served = Served::start(&place, &["a.heaptide"]);
    let open = "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
    let answer = http_client::get(&served.address, "/metrics", &[open]);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(answer.header("content-type"), kind);
    assert!(answer.text().ends_with("\n# EOF\n"), "{}", answer.text());
    assert!(answer.text().contains("\n# UNIT heaptide_live_bytes bytes\n"), "{}", answer.text());
    let answer = served.get("/metrics");
    assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    assert!(!answer.text().contains("# EOF") && !answer.text().contains("# UNIT"));
    if !is_installed("promtool") {
        return skip("prometheus");
    }
    let file = place.join("metrics");
    fs::write(&file, answer.body).expect("a file");
    let mut promtool = Command::new("sh");
    promtool.args(["-c", "promtool check metrics < \"$0\""]).arg(&file);
    let Outcome { status, stdout, stderr } = run(&mut promtool, &place);
    assert_eq!((status, &*stdout, &*stderr), (0, "", ""));
}

#[test]
fn go_reads_profiles_and_their_differences() {
    if !is_installed("go") {
        return skip("go");
    }
    let place = scratch("serve-pprof");
    let mut guest = Steps::start(&place, &[]);
    guest.steps("abw");
    let served = Served::start(&place, &["a.heaptide"]);
    let raw = |path: &str| {
        let mut go = clean(Command::new("go"));
        go.args(["tool", "pprof", "-raw"]).arg(format!("http://{}{path}", served.address));
        go.env("PPROF_TMPDIR", &place).env("HOME", &place);
        let outcome = run(&mut go, &place);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        outcome.stdout
    };
    let heap = raw("/debug/pprof/heap");
    let columns = "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes";
    assert!(heap.contains(&format!("\n{columns}[dflt] peak_objects/count")), "{heap}");
    assert_eq!(sums(&heap)[..4], [16, 26112, 15, 1040 + 4 * 5000 + 72]);
    for function in ["small", "large", "work", "main"] {
        assert!(heap.contains(&format!(" {function} ")), "{function} in {heap}");
    }
    assert!(heap.contains("scope:[work]"), "{heap}");
    assert!(!heap.contains("pid:["), "of one process");
    let columns = "alloc_objects/count alloc_space/bytes[dflt] inuse_objects/count";
    let of_process = format!("/debug/pprof/allocs?pid={}&gc=1", guest.pid());
    assert!(raw(&of_process).contains(columns));
    // The difference begins when the server receives the request, so the program allocates until
    // the reply.
    let difference = std::thread::scope(|scope| {
        let asked = scope.spawn(|| raw("/debug/pprof/heap?seconds=2"));
        while !asked.is_finished() {
            guest.steps("t");
            std::thread::sleep(POLL);
        }
        asked.join().expect("a difference")
    });
    let [allocated, bytes, live, live_bytes] = sums(&difference)[..] else {
        panic!("four columns: {difference}");
    };
    assert!(allocated > 0 && bytes == allocated * 24, "{difference}");
    assert_eq!((live, live_bytes), (0, 0), "{difference}");
    assert!(innermost(&difference).iter().all(|name| *name == "touch"), "{difference}");
    assert!(difference.contains("Duration: 2"), "{difference}");
}

/// Returns the sums of the samples that `go tool pprof -raw` prints: per sample a line with values
/// and stack.
fn sums(raw: &str) -> Vec<i64> {
    let samples = raw.lines().skip_while(|line| *line != "Samples:").skip(2);
    let samples = samples.take_while(|line| *line != "Locations");
    let mut sums: Vec<i64> = Vec::new();
    for line in samples {
        let Some((values, _)) = line.split_once(": ") else { continue }; // labels
        let values: Option<Vec<i64>> =
            values.split_whitespace().map(|value| value.parse().ok()).collect();
        let Some(values) = values else { continue };
        sums.resize(values.len(), 0);
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    sums
}

/// Returns the innermost function of each sample that `go tool pprof -raw` prints. Whether it also
/// prints locations that no sample refers to depends on its version.
fn innermost(raw: &str) -> Vec<&str> {
    let (samples, locations) = raw.split_once("\nLocations\n").expect("locations");
    let samples = samples.lines().skip_while(|line| *line != "Samples:").skip(2);
    let ids = samples.filter_map(|line| line.split_once(": ")?.1.split(' ').next());
    ids.filter(|id| id.parse::<u32>().is_ok())
        .map(|id| {
            let start = format!("{id}: ");
            let mut lines = locations.lines().map(str::trim_start);
            let line = lines.find(|line| line.starts_with(&start)).expect("a location");
            line.split_whitespace().nth(3).expect("a function")
        })
        .collect()
}

#[test]
fn idle_and_slow_clients_without_a_token_do_not_delay_a_scrape() {
    let place = scratch("serve-slow");
    let mut guest = Steps::start(&place, &[]);
    guest.steps("ab");
    fs::write(place.join("token"), "s3cret\n").expect("a file");
    let served = Served::start(&place, &["a.heaptide", "--token-file", "token"]);
    let mut clients = SlowClients::connect(&served.address, "/metrics", 2000);
    let token = ["Authorization: Bearer s3cret"];
    let answer = http_client::get(&served.address, "/metrics", &token);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let open = clients.open();
    assert!(open > 1000, "answered after the server had closed all but {open} of 2000");
}

#[test]
fn clients_that_do_not_read_responses_do_not_delay_a_scrape() {
    let place = scratch("serve-unread");
    let mut guest = Steps::start(&place, &[]);
    guest.steps("ab");
    let served = Served::start(&place, &["a.heaptide"]);
    let mut clients = SlowClients::connect(&served.address, "/metrics", 500);
    assert!(served.metrics().value("heaptide_processes", &[]) == Some(1.0));
    assert!(clients.open() > 250, "answered after the server had closed the others");
    assert_eq!(served.end("-TERM"), Some(0));
}

#[test]
fn more_clients_than_the_server_has_descriptors_do_not_delay_a_scrape() {
    let place = scratch("serve-descriptors");
    let mut guest = Steps::start(&place, &[]);
    guest.steps("ab");
    let mut limited = clean(Command::new("sh"));
    let script = "ulimit -n 256 && exec \"$0\" \"$@\"";
    limited.args(["-c", script]).arg(heaptide().get_program());
    let served = Served::of(limited, &place, &["a.heaptide"]);
    let mut clients = SlowClients::connect(&served.address, "/metrics", 1000);
    assert!(served.metrics().value("heaptide_processes", &[]) == Some(1.0));
    assert!(clients.open() <= 128, "half of the descriptors");
}

#[test]
fn what_cannot_be_answered_is_refused_in_a_line() {
    let place = scratch("serve-refused");
    let mut guest = Steps::start(&place, &[]);
    guest.steps("a");
    fs::write(place.join("token"), "s3cret\n").expect("a file");
    let served = Served::start(&place, &["a.heaptide", "--host", "metrics.example"]);
    let refused = |path: &str, headers: &[&str], status: u16, text: &str| {
        let answer = http_client::get(&served.address, path, headers);
        assert_eq!((answer.status, &*answer.text()), (status, text), "{path} {headers:?}");
    };
    refused("/nothing", &[], 404, "no such page; there are /metrics, /debug/pprof/ and /healthz\n");
    let expected = "pid=1: no such process is recorded here\n";
    refused("/debug/pprof/heap?pid=1", &[], 404, expected);
    for seconds in ["x", "-1", "601", "1.5"] {
        let path = format!("/debug/pprof/heap?seconds={seconds}");
        refused(&path, &[], 400, &format!("seconds={seconds}: expected 1 to 600\n"));
    }
    let text = "debug= and seconds= cannot be combined; omit one\n";
    refused("/debug/pprof/heap?debug=1&seconds=1", &[], 400, text);
    let text = served.get("/debug/pprof/heap?debug=1").text();
    assert!(text.contains(" with live_bytes, most first\n"), "{text}");
    assert!(text.contains("\nstack allocations=10 frees=0 "), "{text}");
    refused(
        "/metrics",
        &["Origin: http://evil.example"],
        403,
        "request of another site (header Origin)\n",
    );
    let of_host = |host: &str| {
        let header = format!("Host: {host}");
        http_client::ask(&served.address, "GET /metrics HTTP/1.1", &[&header], "").status
    };
    assert_eq!(of_host("evil.example"), 403);
    assert_eq!(of_host("metrics.example:9743"), 200);
    assert_eq!(of_host("localhost:4000"), 200, "by a forwarded port");
    let host = format!("Host: {}", served.address);
    let post = http_client::ask(&served.address, "POST /metrics HTTP/1.1", &[&host], "");
    assert_eq!(post.status, 405);
    assert_eq!(served.get("/debug/pprof").status, 308);
    let index = served.get("/debug/pprof/").text();
    assert!(index.contains(&format!("heap?pid={}", guest.pid())), "{index}");

    let with_token = Served::start(&place, &["a.heaptide", "--token-file", "token"]);
    let answer = with_token.get("/metrics");
    assert_eq!((answer.status, answer.header("www-authenticate")), (401, "Bearer"));
    assert_eq!(with_token.get("/debug/pprof/heap").status, 401);
    assert_eq!(with_token.get("/healthz").status, 200);
    let token = ["Authorization: Bearer s3cret"];
    assert_eq!(http_client::get(&with_token.address, "/metrics", &token).status, 200);
}

#[test]
fn an_address_that_other_machines_reach_is_stated() {
    let place = scratch("serve-remote");
    let words = ["serve", "--listen", "0.0.0.0:0", "."];
    let mut command = heaptide();
    command.args(words).current_dir(&place).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("heaptide serve");
    let mut line = String::new();
    BufReader::new(child.stderr.take().expect("errors")).read_line(&mut line).expect("a line");
    let address = line.split(' ').nth(2).expect("an address").trim_end_matches(':').to_owned();
    let port = address.rsplit(':').next().expect("a port");
    let served = Served { child, address: format!("127.0.0.1:{port}"), errors: place };
    let rule = "other machines can read metrics and profiles; --token-file requires a token";
    assert_eq!(line, format!("heaptide: --listen 0.0.0.0:{port}: {rule}\n"));
    let of_host = |host: &str| {
        let host = format!("Host: {host}");
        http_client::ask(&served.address, "GET /healthz HTTP/1.1", &[&host], "").status
    };
    assert_eq!(of_host("10.1.2.3:9743"), 200, "the address of a pod");
    assert_eq!(of_host("evil.example"), 403);
    let own = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    assert_eq!(of_host(own.trim()), 200);
}

#[test]
fn what_cannot_be_served_is_a_line_and_status_2() {
    let place = scratch("serve-wrong");
    let refused = |words: &[&str]| {
        let outcome = run(heaptide().arg("serve").args(words).current_dir(&place), &place);
        assert_eq!((outcome.status, &*outcome.stdout), (2, ""), "{words:?}: {}", outcome.stderr);
        outcome.stderr
    };
    let served = Served::start(&place, &[]);
    let expected = format!(
        "heaptide: cannot listen on {}: the port is in use; choose another --listen\n",
        served.address
    );
    assert_eq!(refused(&["--listen", &served.address]), expected);
    let missing = refused(&["missing.heaptide"]);
    assert!(missing.starts_with("heaptide: missing.heaptide: no such"), "{missing}");
    let me = std::process::id().to_string();
    let expected =
        format!("heaptide: pid {me}: not being recorded; start the program with `heaptide run`\n");
    assert_eq!(refused(&[&me]), expected);
    fs::write(place.join("empty"), "\n").expect("a file");
    let empty = refused(&["--token-file", "empty"]);
    assert!(empty.starts_with("heaptide: --token-file empty: expected a token of"), "{empty}");
    let wrong = refused(&["--listen", "localhost"]);
    assert!(wrong.contains("expected ADDRESS:PORT, such as 127.0.0.1:9743"), "{wrong}");
    let wrong = refused(&["--max-series", "10"]);
    assert!(wrong.contains("expected a number from 200"), "{wrong}");
}

#[test]
fn recordings_and_processes_come_and_go() {
    let place = scratch("serve-come-and-go");
    let clock = Clock::new(&place);
    let mut command = heaptide();
    clock.set(&mut command);
    let served = Served::of(command, &place, &[".", "--linger", "1h"]);
    let metrics = served.until_running(0);
    assert_eq!(metrics.values("heaptide_allocations_total", &[]).count(), 0);
    assert_eq!(served.get("/debug/pprof/heap").status, 404);
    let mut first = Steps::start(&place, &[]);
    first.steps("a");
    let (pid, recording) = (first.pid(), first.recording.clone());
    assert_totals(&served.until_running(1), &pid, [10, 0, 10, 1040, 1040]);
    let other = place.join("b.heaptide");
    let mut command = recorded(&other, &[]);
    command.arg(program());
    let mut second = Steps::spawn(command, other, place.clone());
    second.steps("b");
    let metrics = served.until_running(2);
    let names: Vec<f64> = metrics.values("heaptide_live_bytes", &[]).collect();
    assert_eq!(names.iter().sum::<f64>(), 26040.0, "{}", metrics.text);
    assert_eq!(metrics.value("heaptide_recordings", &[]), Some(2.0));

    first.steps("b");
    first.finish();
    let metrics = served.until_running(1);
    let of = |name: &str| metrics.value(name, &[("pid", &pid)]);
    assert_eq!(of("heaptide_allocations_total"), Some(15.0), "the last steps: {}", metrics.text);
    assert_eq!((of("heaptide_process_running"), of("heaptide_live_bytes")), (Some(0.0), None));
    clock.pass(Duration::from_secs(3600));
    served.until("the process gone", |metrics| {
        metrics.value("heaptide_allocations_total", &[("pid", &pid)]).is_none()
    });
    fs::remove_dir_all(&recording).expect("removed");
    let mut third = Steps::start(&place, &[]);
    third.steps("aa");
    let third_pid = third.pid();
    assert_totals(&served.until_running(2), &third_pid, [20, 0, 20, 2080, 2080]);
    assert_eq!(served.end("-INT"), Some(0));
}

#[test]
fn the_state_has_the_reason_why_nothing_can_be_read() {
    let place = scratch("serve-health");
    let mut guest = Steps::start(&place, &[]);
    guest.steps("a");
    let pid = guest.pid();
    let of_recording = Served::start(&place, &["a.heaptide"]);
    let of_process = Served::start(&place, &[&pid]);
    for served in [&of_recording, &of_process] {
        assert_eq!(served.get("/healthz").text(), "ok: 1 process runs\n");
        assert_totals(&served.metrics(), &pid, [10, 0, 10, 1040, 1040]);
    }
    guest.finish();
    of_process.until_running(0);
    let state = of_process.get("/healthz");
    let expected = format!("pid {pid}: has ended, or is no longer recorded\n");
    assert_eq!((state.status, state.text()), (503, expected));
    of_recording.until_running(0);
    assert_eq!(of_recording.get("/healthz").text(), "ok: 0 processes run\n");
    fs::remove_dir_all(&guest.recording).expect("removed");
    of_recording.until("the recording gone", |metrics| {
        metrics.value("heaptide_recordings", &[]) == Some(0.0)
    });
    let state = of_recording.get("/healthz");
    assert_eq!(state.status, 503, "{}", state.text());
    assert!(state.text().starts_with("a.heaptide: no such"), "{}", state.text());
    assert_eq!(of_recording.get("/metrics").status, 200);
    let mut again = Steps::start(&place, &[]);
    again.steps("b");
    assert_totals(&of_recording.until_running(1), &again.pid(), [5, 0, 5, 25000, 25000]);
    assert_eq!(of_recording.get("/healthz").text(), "ok: 1 process runs\n");
    let errors = fs::read_to_string(&of_recording.errors).expect("its errors");
    assert_eq!(errors, "", "nothing is printed");
}

#[test]
fn series_are_bounded_and_do_not_change_between_readings() {
    let place = scratch("serve-bound");
    let mut guest = Steps::start(&place, &[]);
    guest.steps("bm");
    let served = Served::start(&place, &["a.heaptide", "--max-series", "400"]);
    let first = served.until_running(1);
    assert!(first.series().count() <= 400, "{} series", first.series().count());
    let scopes = |metrics: &Metrics, name: &str| -> (usize, f64) {
        let values: Vec<f64> = metrics.values(name, &[]).collect();
        (values.len(), values.iter().sum())
    };
    let (count, live) = scopes(&first, "heaptide_scope_live_bytes");
    assert!(count > 10, "{count} scopes have places");
    assert_eq!(live, 300.0 * 104.0, "with the others, all that is in scopes");
    assert_eq!(scopes(&first, "heaptide_scope_allocations_total"), (count, 300.0));
    let other = first.value("heaptide_scope_live_blocks", &[("scope", "(other)")]);
    assert_eq!(other, Some(300.0 - (count as f64 - 1.0)), "{}", first.text);
    let groups = first.value("heaptide_other_groups", &[]);
    assert_eq!(groups, other, "one block in each");
    guest.steps("mt");
    let second = served.until("600 blocks", |metrics| {
        scopes(metrics, "heaptide_scope_allocations_total").1 == 600.0
    });
    assert_eq!(first.names(), second.names(), "the same series");
}

#[test]
fn processes_without_series_of_their_own_are_in_those_of_others() {
    let place = scratch("serve-processes");
    let mut command = recorded(&place.join("a.heaptide"), &[]);
    // They end when this test closes its end of the pipe.
    command.args(["sh", "-c", "exec 3<&0; for i in 1 2 3 4; do cat <&3 & done; wait"]);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("heaptide");
    // A server keeps the counters of a child that it has seen before its exec.
    until("four programs", || {
        let executed = |path: &PathBuf| path.to_string_lossy().ends_with("-1.profile");
        profiles(&place.join("a.heaptide")).iter().filter(|path| executed(path)).count() == 4
    });
    let all = Served::start(&place, &["."]);
    let few = Served::start(&place, &[".", "--max-series", "200"]);
    all.until_running(5);
    // The programs allocate until they wait for input.
    let few_metrics = few.until("the sums of all", |metrics| {
        let all_metrics = all.metrics();
        let sum = |metrics: &Metrics, name: &str| metrics.values(name, &[]).sum::<f64>();
        let names = ["heaptide_allocations_total", "heaptide_freed_bytes_total"];
        let names = names.iter().chain(&["heaptide_live_bytes", "heaptide_live_blocks"]);
        metrics.value("heaptide_processes", &[]) == Some(5.0)
            && names.into_iter().all(|name| sum(metrics, name) == sum(&all_metrics, name))
    });
    assert!(few_metrics.series().count() <= 200, "{}", few_metrics.text);
    let others = few_metrics.value("heaptide_other_processes", &[]);
    assert_eq!(others, Some(3.0), "{}", few_metrics.text);
    let other = [("pid", "(other)"), ("program", "(other)")];
    assert!(few_metrics.value("heaptide_allocations_total", &other) > Some(0.0));
    assert_eq!(few_metrics.value("heaptide_peak_bytes", &other), None, "peaks do not add up");
    let second = few.metrics();
    assert_eq!(few_metrics.names(), second.names(), "the same series");

    let text = all.get("/debug/pprof/heap?debug=1").text();
    assert_eq!(text.matches("\n# ").count() + 1, 5, "a part for each: {text}");
    if is_installed("go") {
        let tags = ["go", "tool", "pprof", "-tags", "-sample_index=alloc_objects"];
        let mut go = clean(Command::new(tags[0]));
        go.args(&tags[1..]).arg(format!("http://{}/debug/pprof/heap", all.address));
        go.env("PPROF_TMPDIR", &place).env("HOME", &place);
        let tags = run(&mut go, &place).stdout;
        let pids = tags.split(" pid: ").nth(1).expect("pids").lines().skip(1);
        let pids = pids.take_while(|line| !line.trim().is_empty());
        assert_eq!(pids.count(), 5, "{tags}");
    } else {
        skip("go");
    }
    drop(child.stdin.take());
    assert!(child.wait().expect("its end").success());
    all.until_running(0);
}

#[test]
fn programs_of_another_user_are_the_reason_why_nothing_is_read() {
    if !is_root() {
        return skip(ROOT);
    }
    let place = scratch("serve-user");
    let mut guest = Steps::start(&place, &[]);
    guest.steps("a");
    let mut command = clean(Command::new("setpriv"));
    command.args(["--reuid", &NOBODY.to_string(), "--clear-groups", "--"]);
    command.arg(env!("CARGO_BIN_EXE_heaptide"));
    let served = Served::of(command, &place, &["a.heaptide"]);
    let state = served.get("/healthz");
    let expected = format!(
        "a.heaptide/{0}-0.profile: pid {0} belongs to another user; run `heaptide serve` as that \
         user, or as root\n",
        guest.pid()
    );
    assert_eq!((state.status, state.text()), (503, expected));
    let profile = guest.recording.join(format!("{}-0.profile", guest.pid()));
    fs::set_permissions(&profile, fs::Permissions::from_mode(0o600)).expect("its owner");
    let metrics = served.until_running(0);
    assert_eq!(metrics.value("heaptide_recordings", &[]), Some(1.0));
    let start = Instant::now();
    while !served
        .get("/healthz")
        .text()
        .ends_with("-0.profile: cannot read: Permission denied (os error 13)\n")
    {
        assert!(start.elapsed() < PATIENCE, "{}", served.get("/healthz").text());
        std::thread::sleep(POLL);
    }
}

#[test]
fn every_mode_has_exact_totals() {
    // A mean of one byte samples all blocks, one of 1 TiB none.
    let modes = [("counters", 0), ("scopes", 1), ("sampled=1", 1), ("sampled=1024G", 0)];
    for (mode, scopes) in modes {
        let place = scratch(&format!("serve-{mode}"));
        let mut guest = Steps::start(&place, &["--mode", mode]);
        guest.steps("abw");
        let served = Served::start(&place, &["a.heaptide"]);
        let metrics = served.until_running(1);
        let pid = guest.pid();
        let of = |name: &str| metrics.value(name, &[("pid", &pid)]);
        assert_eq!(of("heaptide_allocations_total"), Some(16.0), "{mode}: {}", metrics.text);
        assert_eq!(of("heaptide_frees_total"), Some(1.0), "{mode}");
        assert_eq!(of("heaptide_live_bytes"), Some(1040.0 + 20000.0 + 72.0), "{mode}");
        let found = metrics.values("heaptide_scope_live_bytes", &[]).count();
        assert_eq!(found, scopes, "{mode}: {}", metrics.text);
        assert_eq!(served.get("/debug/pprof/heap").status, 200, "{mode}");
    }
}

fn now() -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("a time after 1970").as_secs_f64()
}
