//! `heaptide serve --otlp`: the requests, decoded by OpenTelemetry's own classes, and what it
//! reports if no collector accepts them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use heaptide_fixtures::skips::{reader, skip};
use serde_json::{Value, json};

use crate::harness::{clean, scratch};
use crate::http_client::PATIENCE;
use crate::serve::{POLL, Served};
use crate::steps::Steps;

/// A receiver of OTLP.
struct Receiver {
    child: Child,
    output: BufReader<ChildStdout>,
    port: String,
}

impl Receiver {
    /// Starts the receiver on a port, 0 for any, with the statuses of its first replies. None if
    /// its classes are not installed.
    fn start(port: &str, statuses: &[&str]) -> Option<Receiver> {
        let python = reader("python").join("bin/python");
        if !python.exists() {
            skip("python-readers");
            return None;
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve/otlp_receiver.py");
        let mut command = clean(Command::new(python));
        command.arg(script).arg(port).args(statuses).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python");
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let mut port = String::new();
        output.read_line(&mut port).expect("its port");
        Some(Receiver { child, output, port: port.trim().to_owned() })
    }

    /// Returns the next received request.
    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill(); // may have ended
        let _ = self.child.wait();
    }
}

/// Returns the resource of the program, not that of the server.
fn of_program(request: &Value) -> Option<&Value> {
    let resources = request["resources"].as_array().expect("resources");
    resources.iter().find(|resource| resource["attributes"]["service.name"] == "ctl_steps-c")
}

/// Returns the sum of the samples of a profile whose stacks contain a function; of all samples if
/// the name is empty.
fn sum(profile: &Value, function: &str) -> u64 {
    let samples = profile["samples"].as_array().expect("samples");
    let has = |sample: &&Value| {
        let stack = sample["stack"].as_array().expect("a stack");
        function.is_empty() || stack.iter().any(|name| name == function)
    };
    samples.iter().filter(has).map(|sample| sample["value"].as_u64().expect("a number")).sum()
}

#[test]
fn a_collector_gets_metrics_and_profiles_with_known_numbers() {
    let place = scratch("serve-otlp");
    let mut guest = Steps::start(&place, &[]);
    guest.steps("abwl");
    // The first request is sent again.
    let Some(mut receiver) = Receiver::start("0", &["503"]) else { return };
    let endpoint = format!("http://127.0.0.1:{}/", receiver.port);
    let words = ["a.heaptide", "--otlp", &endpoint, "--otlp-profiles", "--otlp-interval", "200ms"];
    let served = Served::start(&place, &words);
    let metrics = receiver.next();
    assert_eq!(metrics["path"], "/v1/metrics");
    let program = of_program(&metrics).expect("the program");
    let attributes = &program["attributes"];
    assert_eq!(attributes["process.pid"].to_string(), guest.pid());
    assert_eq!(attributes["process.executable.name"], "ctl_steps-c");
    let metric = |name: &str| &program["metrics"][name];
    let live = metric("heaptide_live_bytes");
    assert_eq!((&live["kind"], &live["unit"]), (&json!("gauge"), &json!("By")));
    assert_eq!(live["points"][0]["value"], 21112);
    let allocations = metric("heaptide_allocations");
    assert_eq!((&allocations["kind"], &allocations["unit"]), (&json!("sum"), &json!("")));
    assert_eq!((&allocations["temporality"], &allocations["monotonic"]), (&json!(2), &json!(true)));
    let point = &allocations["points"][0];
    assert_eq!(point["value"], 16);
    assert!(
        0 < point["start"].as_u64().expect("a time")
            && point["start"].as_u64() < point["time"].as_u64()
    );
    assert_eq!(metric("heaptide_frees")["points"][0]["value"], 1);
    assert_eq!(metric("heaptide_reallocations")["points"][0]["value"], 0, "a 0 is a value");
    let scope = &metric("heaptide_scope_live_bytes")["points"];
    assert_eq!(scope[0]["attributes"], json!({"scope": "work"}));
    assert_eq!(scope[0]["value"], 72);

    let profiles = receiver.next();
    assert_eq!(profiles["path"], "/v1development/profiles");
    let of = |profiles: &Value, name: &str| {
        of_program(profiles).expect("the program")["profiles"][name].clone()
    };
    let live = of(&profiles, "inuse_space");
    assert_eq!((&live["unit"], &live["duration"]), (&json!("By"), &json!(0)));
    assert_eq!((sum(&live, ""), sum(&live, "small"), sum(&live, "large")), (21112, 1040, 20000));
    let stack = live["samples"][0]["stack"].as_array().expect("a stack");
    let at = |name: &str| stack.iter().position(|frame| frame == name);
    assert!(at("main") > Some(0) && at("main") < at("_start"), "the leaf is first: {stack:?}");
    let samples = live["samples"].as_array().expect("samples");
    let of_work = samples.iter().find(|one| one["attributes"]["heaptide.scope"] == "work");
    assert_eq!(of_work.expect("the scope")["value"], 72);
    let allocated = of(&profiles, "alloc_objects");
    assert_eq!((&allocated["unit"], sum(&allocated, "")), (&json!("{object}"), 16));

    // Each allocation is in exactly one of the profiles, whenever they are taken.
    let (mut all, mut end, mut steps) = (16, u64::MAX, 0);
    while steps < 200 {
        guest.steps("ttttt");
        steps += 5;
    }
    let start = Instant::now();
    while all < 16 + 200 {
        assert!(start.elapsed() < PATIENCE, "{all} allocations in profiles");
        let request = receiver.next();
        if request["path"] == "/v1/metrics" {
            continue;
        }
        let allocated = of(&request, "alloc_objects");
        let time = |name: &str| allocated[name].as_u64().expect("a time");
        assert!(end == u64::MAX || time("time") == end, "spans follow each other");
        end = time("time") + time("duration");
        all += sum(&allocated, "");
        assert_eq!(sum(&of(&request, "inuse_space"), ""), 21112);
    }
    assert_eq!(all, 216);
    drop(served);
    assert_eq!(fs::read_to_string(place.join("serve-errors")).expect("errors"), "");
}

#[test]
fn each_kind_of_failure_of_a_collector_is_one_line() {
    let place = scratch("serve-otlp-failures");
    // A port that was free just before.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("bound");
    drop(free);
    let endpoint = format!("http://{address}");
    let served = Served::start(&place, &["--otlp", &endpoint, "--otlp-interval", "10ms"]);
    let errors = || fs::read_to_string(place.join("serve-errors")).expect("its errors");
    let until = |what: &str| {
        let start = Instant::now();
        while !errors().contains(what) {
            assert!(start.elapsed() < PATIENCE, "waited for `{what}`: {}", errors());
            std::thread::sleep(POLL);
        }
    };
    until("cannot connect");
    // Requests that are rejected permanently, then accepted ones.
    let statuses = ["400", "400", "400", "404"];
    let Some(mut receiver) = Receiver::start(&address.port().to_string(), &statuses) else {
        return;
    };
    until("are accepted again");
    assert_eq!(receiver.next()["path"], "/v1/metrics");
    drop(served);
    let expected = format!(
        "heaptide: --otlp {endpoint}: cannot send metrics: cannot connect: Connection refused \
         (os error 111)\n\
         heaptide: --otlp {endpoint}: cannot send metrics: answered 400 Bad Request\n\
         heaptide: --otlp {endpoint}: cannot send metrics: answered 404 Not Found: the collector \
         has no receiver for this\n\
         heaptide: --otlp {endpoint}: metrics are accepted again\n"
    );
    assert_eq!(errors(), expected);
}
