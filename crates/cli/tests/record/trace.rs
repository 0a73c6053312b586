//! Traces: programs with known events, random ones compared with a model, and sums of real ones.

use crate::allocators::{ALLOCATORS, library as allocator};
use crate::harness::{
    Guest, Trial, clean, heaptide, preloaded, profiles, recorded, report, run, scratch, until,
};
use crate::limits::Mount;
use crate::programs::python;
use crate::trace_model::{Ended, Log, assert_held};
use crate::trace_sums::assert_add_up;
use heaptide_analysis::model::{End, Process, Recording};
use heaptide_analysis::trace::{Event, Operation};
use heaptide_fixtures::Random as Points;
use heaptide_fixtures::skips::may_make_namespaces;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const TRACE: [&str; 2] = ["--mode", "trace"];

/// Runs a program of `dangers.rs` with every event in a trace: it behaves as bare, its known
/// numbers are met, and the trace adds up to them.
pub fn check(name: &str) {
    let variant = format!("{name}-traced");
    let trial = Trial::new(name, &variant, &[], &[]);
    let Some(recording) = trial.recording(&TRACE) else { return };
    if !trial.may_lose() && !trial.may_outrun() {
        assert_add_up(&recording);
    }
}

/// The random program, its logs and its recording.
struct Random {
    place: PathBuf,
    recording: PathBuf,
    logs: PathBuf,
    program: PathBuf,
    words: Vec<String>,
}

impl Random {
    fn new(name: &str, words: &[&str]) -> Random {
        let program = Guest::read("trace_random.c").build("trace_random.c", &[]);
        let place = scratch(&format!("trace-random-{name}"));
        let (recording, logs) = (place.join("a.heaptide"), place.join("logs"));
        fs::create_dir(&logs).expect("a directory for logs");
        let words = words.iter().map(|&word| word.to_owned()).collect();
        Random { place, recording, logs, program, words }
    }

    /// Returns a command that records it with `heaptide run` and these options.
    fn supervised(&self, options: &[&str]) -> Command {
        let mut command = recorded(&self.recording, &[&TRACE[..], options].concat());
        command.arg(&self.program).arg(&self.logs).args(&self.words);
        command
    }

    /// Returns a command that records it with the library alone.
    fn alone(&self) -> Command {
        let mut command = preloaded(&self.program, &self.recording);
        command.env("HEAPTIDE_MODE", "trace").arg(&self.logs).args(&self.words);
        command
    }

    fn runs(&self, mut command: Command) {
        let outcome = run(&mut command, &self.place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{}", outcome.stdout);
    }

    /// Reads the process that wrote the logs.
    fn process(&self) -> Process {
        let mut recording = Recording::open(&self.recording).expect("a recording");
        assert!(recording.damaged.is_empty(), "{:?}", recording.damaged);
        let last = recording.processes.pop().expect("a process");
        assert!(last.identity.program.ends_with("trace_random-c"), "{}", last.identity.program);
        last
    }

    fn assert_held(&self, ended: Ended) -> usize {
        let logs = Log::all(&self.logs);
        assert_held(&self.process(), &logs, ended);
        Log::operations(&logs)
    }
}

/// Runs programs of 1 to 8 threads, with several seeds each.
fn random_programs(name: &str, operations: usize, start: impl Fn(&Random) -> Command) {
    for threads in 1..=8 {
        for seed in ["1", "2"] {
            let (count, name) = (threads.to_string(), format!("{name}-{threads}-{seed}"));
            let labels = if seed == "1" { "plain" } else { "labels" };
            let random = Random::new(&name, &[seed, &count, &operations.to_string(), labels]);
            random.runs(start(&random));
            assert_eq!(random.assert_held(Ended::Itself), threads * operations);
            assert!(assert_add_up(&random.recording) as usize > threads * operations);
        }
    }
}

#[test]
fn random_programs_under_run() {
    random_programs("run", 3000, |random| random.supervised(&[]));
}

#[test]
fn random_programs_alone() {
    random_programs("alone", 3000, Random::alone);
}

#[test]
fn random_programs_with_stacks_of_frees_and_sizes() {
    random_programs("more", 2000, |random| random.supervised(&["--free-stacks", "--by-size"]));
    let random = Random::new("free-stacks", &["11", "3", "2000"]);
    random.runs(random.supervised(&["--free-stacks"]));
    let process = random.process();
    let names = |stack| {
        let frames = process.frames_of(stack).map(|frame| &process.tables.frames[frame.0 as usize]);
        frames.filter_map(|frame| frame.function.as_deref()).collect::<Vec<_>>()
    };
    let mut frees = 0;
    let events = process.replay().expect("a trace");
    for event in events.filter(|event| !event.operation.is_of_scope()) {
        let allocated = names(process.tables.sites[event.site as usize].stack);
        let is_ours = allocated.iter().any(|name| name.starts_with("operation_"));
        if event.operation != Operation::Free || !is_ours {
            continue;
        }
        let by = if event.reallocated { "by_realloc" } else { "released" };
        assert!(names(event.free_stack).contains(&by), "{event:?}");
        frees += 1;
    }
    assert!(frees > 1000, "{frees} frees");
}

/// The tables of queries contain the events of the replay.
#[test]
fn tables_are_the_events() {
    let random = Random::new("tables", &["12", "4", "3000", "labels"]);
    random.runs(random.supervised(&[]));
    let ask = |query: &str| {
        let mut command = heaptide();
        let outcome = run(command.args(["query", query]).arg(&random.recording), &random.place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{query}");
        outcome.stdout.lines().map(str::to_owned).collect::<Vec<String>>()
    };
    let process = random.process();
    let events: Vec<Event> = process.replay().expect("a trace").collect();
    let said = ask("SELECT * FROM events FORMAT \
                    format(\"%number% %time_ns% %operation% %uid% %size% %tid% %live_bytes%\")");
    let known = events.iter().map(|event| {
        let Event { time_ns, requested, thread, live_bytes, .. } = event;
        let shown = |number: u64| if number == 0 { String::new() } else { number.to_string() };
        let (number, uid) = (shown(event.number), shown(event.uid));
        let size = if event.uid == 0 { String::new() } else { requested.to_string() };
        let operation = event.operation.name();
        format!("{number} {time_ns} {operation} {uid} {size} {thread} {live_bytes}")
    });
    for (said, known) in said.iter().zip(known) {
        assert_eq!(*said, known);
    }
    assert_eq!(said.len(), events.len());
    let freed = "SELECT * FROM lifetimes FORMAT format(\"%uid% %lifetime_ns% %freed%\")";
    let mut lifetimes: Vec<String> = Vec::new();
    for event in events.iter().filter(|event| event.operation == Operation::Free) {
        lifetimes.push(format!("{} {} true", event.uid, event.time_ns - event.allocated_ns));
    }
    let live = process.replay().expect("a trace").into_live();
    lifetimes.extend(live.iter().map(|block| format!("{}  false", block.uid)));
    assert_eq!(ask(freed), lifetimes);
    // Labelling is an event in the scope and on the lane of the labelling thread, which can differ
    // from those of the site.
    let rest = "GROUP BY label,stack";
    let of_events = "SELECT label,stack,count() AS n,sum(size) AS b FROM events WHERE mem.alloc";
    let of_sites = "SELECT label,stack,sum(allocations) AS n,sum(requested_bytes) AS b FROM sites \
                    WHERE allocations>0";
    let sorted = |query: &str| {
        let mut lines = ask(&format!("{query} {rest}"));
        lines.sort();
        lines
    };
    assert_eq!(sorted(of_events), sorted(of_sites));
}

/// Events have the ids of threads, for threads one after the other on a few lanes and for 200 at
/// once.
#[test]
fn threads_by_number() {
    let place = scratch("trace-threads-by-number");
    let program = Guest::read("trace_threads.c").build("trace_threads.c", &[]);
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &TRACE);
    let outcome = run(command.arg(program).env("TRACE_THREADS_SAY", "1"), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    let recording = Recording::open(&recording).expect("a recording");
    let process = &recording.processes[0];
    let of_size = |size: u64| {
        let all = process.replay().expect("a trace");
        let ours = all.filter(|event| event.requested == size || event.requested == size + 100_000);
        ours.map(|event| event.thread).collect::<Vec<u32>>()
    };
    let said = outcome.stdout.lines().filter_map(|line| line.strip_prefix("thread "));
    let said: Vec<(u32, u64)> = said
        .map(|line| {
            let (tid, size) = line.split_once(' ').expect("two numbers");
            (tid.parse().expect("a thread"), size.parse().expect("a size"))
        })
        .collect();
    assert_eq!(said.len(), 300);
    for &(tid, size) in said.iter().filter(|(_, size)| size % 16 != 0).step_by(7) {
        // Its own block, allocated and freed, and the other one allocated, which main frees.
        let threads = of_size(size);
        assert!(
            threads.ends_with(&[tid, tid, tid, process.identity.pid]),
            "{size}: {threads:?} of {tid}"
        );
    }
    // Rows of several threads list their ids.
    let rows = process.tables.lanes.iter();
    let rows: Vec<u32> = rows.flat_map(|lane| &lane.tids).copied().collect();
    let threads: HashSet<u32> = said.iter().map(|&(tid, _)| tid).collect();
    assert!(threads.iter().all(|tid| rows.contains(tid)), "{rows:?}");
    let counted: u32 = process.tables.lanes.iter().map(|lane| lane.threads).sum();
    assert_eq!(rows.len(), counted as usize);
}

/// The events of a process since a reset: frees of older blocks are included.
#[test]
fn events_since_a_reset() {
    let place = scratch("trace-reset");
    let program = Guest::read("trace_reset.c").build("trace_reset.c", &[]);
    let recording = place.join("a.heaptide");
    let outcome = run(recorded(&recording, &TRACE).arg(program), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    let ask = |options: &[&str]| {
        let query = "SELECT operation,uid,frame FROM events WHERE frame=old OR frame=fresh";
        let mut command = heaptide();
        command.args(["query", query, "--format", "expand"]).args(options).arg(&recording);
        let outcome = run(&mut command, &place);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        outcome.stdout.lines().map(str::to_owned).collect::<Vec<String>>()
    };
    let mut known = Vec::new();
    let mut add = |operation: &str, uids: std::ops::RangeInclusive<u32>, frame: &str| {
        known.extend(uids.map(|uid| format!("operation={operation},uid={uid},frame={frame}")));
    };
    add("allocate", 1..=10, "old");
    add("free", 1..=2, "old");
    add("free", 3..=5, "old");
    add("allocate", 11..=15, "fresh");
    add("free", 11..=14, "fresh");
    assert_eq!(ask(&["--from-start"]), known);
    assert_eq!(ask(&[]), known[12..]);
}

/// Many extents of each thread, which are moved out while the program runs.
#[test]
fn random_program_of_many_events() {
    let random = Random::new("many", &["7", "4", "60000"]);
    random.runs(random.supervised(&[]));
    assert_eq!(random.assert_held(Ended::Itself), 240_000);
    assert_add_up(&random.recording);
}

/// The limit of `--max-trace-size` ends the trace for all threads at the same time, and nothing
/// else.
#[test]
fn bound_of_disk() {
    let random = Random::new("bound", &["3", "4", "60000"]);
    random.runs(random.supervised(&["--max-trace-size", "1M"]));
    assert_eq!(random.assert_held(Ended::Stopped), 240_000);
    let events = random.process().replay().expect("a trace").count();
    assert!((20_000..300_000).contains(&events), "{events} events");
    let taken: u64 = files(&random.recording, "trace").iter().map(|file| length(file)).sum();
    assert!(taken <= 1 << 20, "{taken} bytes");
    report(&random.recording, &random.place);
}

/// Returns the files of a recording with this extension.
fn files(recording: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(recording).expect("a recording").flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|e| e == extension)).collect()
}

fn length(file: &Path) -> u64 {
    fs::metadata(file).expect("a file").len()
}

/// A disk that becomes full ends the trace; the program is not affected.
#[test]
fn full_disk() {
    if !may_make_namespaces("trace::full_disk") {
        return;
    }
    for (size, alone) in [("1m", true), ("3m", true), ("1m", false), ("3m", false)] {
        let mut random = Random::new(&format!("full-{size}-{alone}"), &["5", "3", "100000"]);
        let mount = Mount::new(&random.place.join("disk"), &format!("size={size}"));
        random.recording = mount.0.join("a.heaptide");
        let mut command = if alone { random.alone() } else { random.supervised(&[]) };
        let outcome = run(&mut command, &random.place);
        assert_eq!((outcome.status, &*outcome.stdout), (0, ""), "{size}: {}", outcome.stderr);
        if size == "3m" {
            assert_eq!(random.assert_held(Ended::Stopped), 300_000);
            report(&random.recording, &random.place);
        }
    }
}

/// The recording is removed while the program runs: the program does not notice.
#[test]
fn recording_removed() {
    let random = Random::new("removed", &["6", "2", "200000"]);
    let mut command = random.supervised(&[]);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("a program");
    until("the logs", || Log::all(&random.logs).len() == 2);
    fs::remove_dir_all(&random.recording).expect("a recording to remove");
    assert!(child.wait().expect("its end").success());
    assert_eq!(Log::operations(&Log::all(&random.logs)), 400_000);
}

/// Read while the program runs, a trace contains what the logs contain by then.
#[test]
fn read_while_it_runs() {
    for alone in [true, false] {
        let random = Random::new(&format!("running-{alone}"), &["9", "2", "600000"]);
        let mut command = if alone { random.alone() } else { random.supervised(&[]) };
        let mut child = command.spawn().expect("a program");
        until("the logs", || Log::all(&random.logs).len() == 2);
        for _ in 0..3 {
            let logs = Log::all(&random.logs);
            let process = random.process();
            if process.lifetime.end == End::Running {
                assert_held(&process, &logs, Ended::NotYet);
            }
        }
        kill(&random);
        child.wait().expect("its end");
    }
}

/// Kills the program, not the command that runs it.
fn kill(random: &Random) {
    let profile = profiles(&random.recording).pop().expect("a profile");
    let name = profile.file_name().and_then(|name| name.to_str()).expect("a name");
    let pid = name.split('-').next().expect("a pid");
    Command::new("kill").args(["-KILL", pid]).status().expect("kill"); // may have ended
}

/// With every other allocator, preloaded.
#[test]
fn random_programs_under_other_allocators() {
    for name in ALLOCATORS {
        let Some(path) = allocator(name) else { continue };
        let random = Random::new(&format!("under-{name}"), &["4", "3", "5000", "labels"]);
        let mut command = random.supervised(&[]);
        // Some allocators print a message about failed requests.
        assert_eq!(run(command.env("LD_PRELOAD", &path), &random.place).status, 0);
        assert_eq!(random.assert_held(Ended::Itself), 15_000, "{name}");
        assert_add_up(&random.recording);
    }
}

/// Requests without recorded stacks are also in the trace.
#[test]
fn stacks_of_large_requests_only() {
    let random = Random::new("stacks-from", &["8", "2", "5000", "labels"]);
    random.runs(random.supervised(&["--stacks-from", "1000"]));
    assert!(assert_add_up(&random.recording) > 8_000);
}

/// How often programs are killed.
const KILLS: u64 = 12;

/// The number of operations below which programs are killed: the first extent of each thread is
/// full by then, and all threads still run.
const OPERATIONS: u64 = 20_000;

/// Kills random programs after a random number of operations.
fn killed(name: &str, start: impl Fn(&Random) -> Command, kill: impl Fn(&Random, &mut Child)) {
    let seed = Points::unseeded().next();
    println!("seed {seed}");
    let mut points = Points::new(seed);
    for round in 0..KILLS {
        let threads = round as usize % 4 + 1;
        let name = format!("{name}-{round}");
        let random =
            Random::new(&name, &[&round.to_string(), &threads.to_string(), "60000", "labels"]);
        let mut child = start(&random).stdin(Stdio::null()).spawn().expect("a program");
        let least = points.below(OPERATIONS) as usize;
        until("operations", || {
            let logs = Log::all(&random.logs);
            logs.len() == threads && Log::operations(&logs) > least
        });
        kill(&random, &mut child);
        child.wait().expect("its end");
        fs::remove_dir_all(&random.place).expect("a directory of ours");
    }
}

/// A kill can come between counting and tracing, so that they differ by one event per thread.
fn end_killed(random: &Random) {
    random.assert_held(Ended::Killed);
}

#[test]
fn killed_at_any_moment_under_run() {
    killed(
        "killed-run",
        |random| random.supervised(&[]),
        |random, child| {
            kill(random);
            child.wait().expect("its end");
            end_killed(random);
        },
    );
}

#[test]
fn killed_at_any_moment_alone() {
    killed("killed-alone", Random::alone, |random, child| {
        child.kill().expect("kill");
        child.wait().expect("its end");
        end_killed(random);
    });
}

/// Without the command that moves its events out, the program continues and nothing is lost.
#[test]
fn supervisor_killed_at_any_moment() {
    killed(
        "orphan",
        |random| random.supervised(&[]),
        |random, child| {
            child.kill().expect("kill");
            child.wait().expect("its end");
            let threads: usize = random.words[1].parse().expect("a number");
            until("the program's end", || {
                Log::operations(&Log::all(&random.logs)) == threads * 60000
            });
            assert_eq!(random.assert_held(Ended::Itself), threads * 60000);
        },
    );
}

/// Runs a script bare and with a trace of every process: the same output, and each trace adds up.
fn of_script(name: &str, processes: usize, least: u64, script: &str) {
    let place = scratch(&format!("trace-real-{name}"));
    fs::write(place.join("script.sh"), format!("set -eu\n{script}")).expect("the script");
    let start = |mut command: Command| {
        command.args(["bash", "script.sh"]).current_dir(&place).env("LC_ALL", "C");
        run(&mut command, &place)
    };
    let bare = start(clean(Command::new("env")));
    assert_eq!(bare.status, 0, "bare {name}: {}{}", bare.stdout, bare.stderr);
    let recording = place.join("a.heaptide");
    assert_eq!(bare, start(recorded(&recording, &TRACE)), "{name} differs");
    let found = profiles(&recording).len();
    assert!(found >= processes, "{name}: {found} profiles of at least {processes} processes");
    let events = assert_add_up(&recording);
    assert!(events >= least, "{name}: only {events} events");
}

#[test]
fn compiler_adds_up() {
    let script = "printf '%s\n' '#include <map>' '#include <regex>' '#include <string>' \
        'int main() { std::map<std::string, std::regex> m; return (int)m.size(); }' > a.cpp
        g++ -O2 -c a.cpp -o a.o && g++ a.o -o a && ./a && echo compiled";
    of_script("compiler", 6, 400_000, script);
}

#[test]
fn interpreter_of_threads_adds_up() {
    let python = python().expect("python3, which `cargo xtask needs` lists");
    let script = format!(
        "PYTHONMALLOC=malloc {python} - <<'END'
import collections, json, re, threading, zlib
def work(n, out):
    data = {{str(i): [i, {{'x': str(i) * 3}}] for i in range(n)}}
    text = json.dumps(data)
    words = collections.Counter(re.findall('[0-9]+', text))
    out.append((len(text), len(words), zlib.crc32(zlib.compress(text.encode()))))
out = []
threads = [threading.Thread(target=work, args=(3000 + i, out)) for i in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sorted(out))
END"
    );
    of_script("interpreter", 2, 400_000, &script);
}

#[test]
fn tools_add_up() {
    let script = r#"
seq 1 20000 > numbers
sqlite3 :memory: 'create table t(a, b); with recursive n(i) as (select 1 union all select i + 1
    from n where i < 8000) insert into t select i, hex(i * i) from n; create index u on t(b);
    select count(*), max(b) from t where b like "3%";'
jq -cn '[range(8000) | {n: ., s: tostring}] | map(select(.n % 7 == 0)) | group_by(.n % 5) |
    map(length)'
perl -e 'my %h; $h{$_ % 997} .= "x$_" for 1..20000; my @k = sort { $a <=> $b } keys %h;
    print scalar(@k), length(join ",", values %h), "
"'
xz -T2 -k -c --block-size=20000 numbers | xz -dc | cksum
sort -S 1M --parallel=2 -R --random-source=numbers numbers | sort -n | cksum
rm -rf repository && git init -q repository && cd repository && cp ../numbers . && git add numbers
git -c user.name=a -c user.email=b commit -qm first && git gc -q && git log --format=%s
"#;
    of_script("tools", 15, 100_000, script);
}

/// Scopes begin and end as events that contain the live bytes: also scopes that allocate nothing,
/// or only free, and one that its thread left open.
#[test]
fn scopes_begin_and_end_as_events() {
    let program = Guest::read("trace_scopes.c").build("trace_scopes.c", &[]);
    let place = scratch("trace-scope-events");
    let recording = place.join("a.heaptide");
    let outcome = run(recorded(&recording, &TRACE).arg(&program), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    let ask = |question: &str| {
        let outcome = run(heaptide().args(["query", question]).arg(&recording), &place);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        outcome.stdout
    };
    let changes =
        ask("SELECT event.begin#phase AS begin,event.end#phase AS end,mem.active FROM events \
         WHERE event.begin#phase OR event.end#phase FORMAT expand");
    let main: Vec<&str> = changes.lines().take(10).collect();
    let compute = ["begin=compute,mem.active=1000", "end=compute,mem.active=1000"];
    let first = ["begin=build,mem.active=0", "end=build,mem.active=1000"];
    let last = ["begin=drop,mem.active=1000", "end=drop,mem.active=0"];
    assert_eq!(main, [first, compute, compute, compute, last].concat());
    let phases = ask(
        "SELECT phase,count(),max(alloc.region.highwatermark) AS high GROUP BY phase FROM events \
         WHERE phase FORMAT expand",
    );
    let of = |phase: &str| phases.lines().find(|line| line.contains(phase)).map(str::to_owned);
    assert_eq!(of("compute").as_deref(), Some("phase=compute,count=6,high=1000"));
    let of_worker = ask("SELECT operation,phase,tid FROM events WHERE lane=worker FORMAT expand");
    let worker: Vec<&str> = of_worker.lines().collect();
    let [begun, left, ..] = worker[..] else { panic!("{of_worker}") };
    assert_eq!(begun.replace("begin", "end"), left, "it ends for the thread that began it");
    assert!(left.contains("phase=forgotten") && worker.len() == 4, "{of_worker}");
}
