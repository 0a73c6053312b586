//! The files of `examples/serve`, read by the tools that they are for; and Prometheus, which
//! scrapes a program with known numbers.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use heaptide_fixtures::skips::skip;
use serde_json::Value;

use crate::harness::{run, scratch};
use crate::http_client::{self, PATIENCE, encoded};
use crate::programs::is_installed;
use crate::serve::{POLL, Served};
use crate::steps::Steps;

fn example(name: &str) -> PathBuf {
    crate::harness::programs().join("../../examples/serve").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(example(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A Prometheus that scrapes one server several times a second.
struct Prometheus {
    child: Child,
    address: String,
    log: PathBuf,
}

impl Prometheus {
    fn start(place: &Path, scraped: &str) -> Prometheus {
        let config = read("prometheus.yml");
        let config = config.replace("127.0.0.1:9743", scraped);
        let config = config.replace("_interval: 15s", "_interval: 200ms");
        fs::copy(example("alerts.yml"), place.join("alerts.yml")).expect("a copy");
        fs::write(place.join("prometheus.yml"), config).expect("a file");
        // Prometheus cannot report a port that it chose itself.
        let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
        let (address, log) = (free.to_string(), place.join("prometheus-log"));
        let mut command = Command::new("prometheus");
        command.arg("--config.file=prometheus.yml").arg("--storage.tsdb.path=data");
        command.arg(format!("--web.listen-address={address}")).current_dir(place);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(&log).expect("a file"));
        let child = command.spawn().expect("prometheus");
        Prometheus { child, address, log }
    }

    /// Returns the result of a query; none while there is no reply.
    fn ask(&self, query: &str) -> Option<Value> {
        std::net::TcpStream::connect(&self.address).ok()?;
        let path = format!("/api/v1/query?query={}", encoded(query));
        let answer = http_client::get(&self.address, &path, &[]);
        let answer: Value = serde_json::from_slice(&answer.body).ok()?;
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        Some(answer["data"]["result"].clone())
    }

    /// Waits until a query has the value.
    fn until(&self, query: &str, expected: f64) {
        let start = Instant::now();
        loop {
            let found = self.ask(query);
            let value = found.as_ref().and_then(|found| found[0]["value"][1].as_str());
            if value.and_then(|value| value.parse().ok()) == Some(expected) {
                return;
            }
            let log = || fs::read_to_string(&self.log).unwrap_or_default();
            let waited = start.elapsed() > PATIENCE;
            assert!(!waited, "waited for {query} to be {expected}: {found:?} {}", log());
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill(); // may have ended
        let _ = self.child.wait();
    }
}

#[test]
fn prometheus_scrapes_known_numbers_and_answers_the_dashboard() {
    if !is_installed("prometheus") {
        return skip("prometheus");
    }
    let place = scratch("serve-prometheus");
    let mut guest = Steps::start(&place, &[]);
    guest.steps("abwl");
    let served = Served::start(&place, &["."]);
    let prometheus = Prometheus::start(&place, &served.address);
    prometheus.until("up{job=\"heaptide\"}", 1.0);
    let of = |name: &str| format!("{name}{{job=\"heaptide\",program=\"ctl_steps-c\"}}");
    prometheus.until(&of("heaptide_live_bytes"), 1040.0 + 20000.0 + 72.0);
    prometheus.until(&of("heaptide_allocations_total"), 16.0);
    prometheus.until(&of("heaptide_frees_total"), 1.0);
    prometheus.until("sum(heaptide_scope_live_bytes{scope=\"work\"})", 72.0);
    prometheus.until("sum by (label) (heaptide_label_live_blocks)", 1.0);
    guest.steps("ta");
    prometheus.until(&of("heaptide_allocations_total"), 27.0);
    let grown = format!("max_over_time({}[1m]) - 16", of("heaptide_allocations_total"));
    prometheus.until(&grown, 11.0);
    let info = "heaptide_live_bytes * on (pid, program) group_left (recording) \
        heaptide_process_info{recording=\"a.heaptide\"}";
    prometheus.until(info, 2.0 * 1040.0 + 20000.0 + 72.0);
    let metrics = served.metrics();
    for query in queries_of_dashboard() {
        for name in names_of_metrics(&query) {
            let found = metrics.series().any(|line| {
                line.strip_prefix(&*name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            });
            assert!(found, "{query}: no metric {name} in {}", metrics.text);
        }
        let found = prometheus.ask(&query).expect("an answer");
        let may_be_empty = query.contains("> 0");
        assert!(may_be_empty || found.as_array().is_some_and(|all| !all.is_empty()), "{query}");
    }
    guest.finish();
    prometheus.until(&of("heaptide_process_running"), 0.0);
    prometheus.until(&format!("count({}) or vector(0)", of("heaptide_live_bytes")), 0.0);
}

/// Returns the queries of the dashboard, with values in place of its variables.
fn queries_of_dashboard() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let queries: Vec<String> = targets
        .map(|target| target["expr"].as_str().expect("a query"))
        .map(|query| query.replace("$__rate_interval", "10s").replace("[1h]", "[10s]"))
        .map(|query| ["$program", "$pid", "$job"].iter().fold(query, |q, v| q.replace(v, ".*")))
        .collect();
    assert!(queries.len() > 15 && queries.iter().all(|query| !query.contains('$')), "{queries:?}");
    queries
}

/// Returns the names of metrics in a query.
fn names_of_metrics(query: &str) -> Vec<String> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_name = |word: &&str| word.starts_with("heaptide_") || word.starts_with("process_");
    words.filter(is_name).map(str::to_owned).collect()
}

#[test]
fn rules_and_configuration_are_those_of_prometheus() {
    if !is_installed("promtool") {
        return skip("prometheus");
    }
    let place = scratch("serve-rules");
    for words in [["check", "rules", "alerts.yml"], ["check", "config", "prometheus.yml"]] {
        let mut promtool = Command::new("promtool");
        promtool.args(words).current_dir(example("."));
        let outcome = run(&mut promtool, &place);
        assert_eq!(outcome.status, 0, "{} {}", outcome.stdout, outcome.stderr);
    }
}

#[test]
fn the_unit_is_one_of_systemd() {
    if !is_installed("systemd-analyze") {
        return skip("systemd-analyze");
    }
    let place = scratch("serve-systemd");
    let heaptide = env!("CARGO_BIN_EXE_heaptide");
    let unit = read("heaptide-serve.service").replace("/usr/bin/heaptide", heaptide);
    // That user does not exist here, and names of other units are looked up next to this one.
    let unit = unit.replace("User=app", "User=daemon");
    fs::write(place.join("heaptide-serve.service"), unit).expect("a file");
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no", "./heaptide-serve.service"]).current_dir(&place);
    let outcome = run(&mut verify, &place);
    assert_eq!((outcome.status, &*outcome.stdout, &*outcome.stderr), (0, "", ""));
}

#[test]
fn the_pod_shares_processes_volumes_and_the_port() {
    let script = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin))))";
    let mut python = Command::new("sh");
    let command = "python3 -c \"$0\" < \"$1\"";
    python.args(["-c", command, script]).arg(example("kubernetes.yaml"));
    let has_yaml = Command::new("python3").args(["-c", "import yaml"]).output();
    if !has_yaml.is_ok_and(|output| output.status.success()) {
        return skip("yaml");
    }
    let outcome = run(&mut python, &scratch("serve-kubernetes"));
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let documents: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    let [pod] = &documents.as_array().expect("documents")[..] else { panic!("{documents}") };
    assert_eq!(
        (&pod["kind"], &pod["spec"]["shareProcessNamespace"]),
        (&Value::from("Pod"), &Value::from(true),)
    );
    let spec = &pod["spec"];
    let names = |list: &Value| -> Vec<String> {
        let list = list.as_array().expect("a list");
        list.iter().map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
    };
    let volumes = names(&spec["volumes"]);
    assert_eq!(names(&spec["containers"]), ["app", "heaptide-serve"]);
    let containers = [&spec["initContainers"], &spec["containers"]];
    let containers = containers.iter().flat_map(|list| list.as_array().expect("containers"));
    for container in containers {
        let mounted = names(&container["volumeMounts"]);
        assert!(mounted.iter().all(|name| volumes.contains(name)), "{container}");
    }
    let sidecar = &spec["containers"][1];
    let port = sidecar["ports"][0]["containerPort"].to_string();
    assert_eq!(pod["metadata"]["annotations"]["prometheus.io/port"], Value::from(&*port));
    let listen = sidecar["args"][2].as_str().expect("an address");
    assert_eq!(listen, format!("0.0.0.0:{port}"));
    // The program records into the directory that the sidecar serves.
    let output = spec["containers"][0]["env"][1]["value"].as_str().expect("a path");
    let watched = sidecar["args"][3].as_str().expect("a path");
    assert_eq!(Path::new(output).parent(), Some(Path::new(watched)));
}
