//! Clusters on this machine: a scheduler and executors return the same results as the engine in one
//! process, even if an executor is killed, and report problems in one line.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{files, heaptide, job_and_dataset, output, recordings, refused, scratch};

/// The time limit for start and end of a server, and for a query.
const DEADLINE: Duration = Duration::from_secs(120);

/// Ranks of the dataset: copies of real recordings.
const RANKS: usize = 32;

/// A scheduler or an executor; dropping it kills it.
struct Server {
    child: Child,
    /// Its first line of output.
    said: String,
}

/// The token of all clusters here.
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Returns `heaptide` with the token.
fn client() -> Command {
    let mut command = heaptide();
    command.env("HEAPTIDE_CLUSTER_TOKEN", TOKEN);
    command
}

/// Returns `heaptide-sql` with the token.
fn engine() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heaptide-sql"));
    command.env("HEAPTIDE_CLUSTER_TOKEN", TOKEN);
    command
}

impl Server {
    fn start(arguments: &[&str]) -> Server {
        let mut command = engine();
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("heaptide-sql");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let (first, line) = mpsc::channel();
        thread::spawn(move || {
            let _ = first.send(lines.next());
            lines.for_each(drop);
        });
        let line = line.recv_timeout(DEADLINE).expect("a server in time");
        let said = line.expect("a line, or it ended").expect("UTF-8");
        Server { child, said }
    }

    fn scheduler(options: &[&str]) -> Server {
        Server::start(&[&["scheduler", "--port", "0"], options].concat())
    }

    /// Starts an executor with intermediate results in this directory.
    fn executor(scheduler: &str, directory: &Path, options: &[&str]) -> Server {
        let directory = directory.to_str().expect("UTF-8");
        let fixed = ["executor", "--scheduler", scheduler, "--work-dir", directory];
        Server::start(&[&fixed, options].concat())
    }

    /// Returns the address that it listens on.
    fn address(&self) -> &str {
        let rest = self.said.split_once("listens on ").unwrap_or_else(|| panic!("{}", self.said)).1;
        rest.split([' ', ';']).next().expect("a word")
    }

    /// Stops it with a signal.
    fn stop(mut self) -> ExitStatus {
        let id = self.child.id().to_string();
        output(Command::new("kill").args(["-TERM", &id]));
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(Instant::now() < deadline, "{} does not end", self.said);
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended already
        let _ = self.child.wait();
    }
}

/// Returns a dataset in which each rank is one of two recordings.
fn dataset() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let place = scratch(&format!("ranks-{}", std::process::id()));
        for recording in recordings() {
            let mut export = heaptide();
            output(export.args(["export", "--format", "parquet", "-o"]).arg(&place).arg(recording));
        }
        for table in ["sites", "processes", "stacks", "lifetimes"] {
            // Events of only some ranks, because there are many.
            let ranks = if table == "lifetimes" { RANKS / 4 } else { RANKS };
            let run = place.join(table).join("run=steps");
            let host = fs::read_dir(&run).expect("hosts").next().expect("a host").expect("a name");
            let of_rank = host.path().join("rank=-1");
            for rank in 0..ranks {
                let node = run.join(format!("host=node{}", rank / 8)).join(format!("rank={rank}"));
                copy(&of_rank, &node).expect("a copy");
            }
        }
        output(heaptide().args(["dataset", "index"]).arg(&place));
        place
    })
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to)?;
        } else {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

/// Queries whose results have a defined order.
const QUERIES: [&str; 21] = [
    "SELECT count(*) AS rows, count(DISTINCT rank) AS ranks, count(DISTINCT host) AS hosts FROM sites",
    "SELECT run, host, rank, count(*) AS rows, sum(allocations) AS n, sum(live_bytes) AS bytes \
     FROM sites GROUP BY run, host, rank ORDER BY run, host, rank",
    "SELECT owner, sum(allocations) AS n FROM sites GROUP BY 1 ORDER BY n DESC, owner LIMIT 20",
    "SELECT label, median(lifetime_ns) AS m, count(*) AS n FROM lifetimes \
     WHERE rank < 4 GROUP BY label ORDER BY label",
    "SELECT rank, sum(live_bytes) AS b FROM sites WHERE stack_contains(stack, '^TimeIncrement$|^build$') \
     GROUP BY rank ORDER BY rank DESC LIMIT 9",
    "SELECT frame(stack, 0) AS innermost, frame(stack, -1) AS outermost, count(*) AS n FROM sites \
     GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT stack_text(stack) AS s, sum(usable_bytes) AS b FROM sites GROUP BY 1 ORDER BY b DESC, s LIMIT 10",
    "SELECT scope(scopes, 'function') AS f, path, sum(allocations) AS n FROM sites \
     WHERE rank = 7 GROUP BY 1, 2 ORDER BY f, n, array_to_string(path, '/')",
    "SELECT host, human_bytes(sum(usable_bytes)) AS b, human_time(count(*)) AS t FROM sites \
     GROUP BY host ORDER BY host",
    "SELECT s.rank, p.mode, sum(s.allocations) AS n, max(p.allocations) AS all_of_it \
     FROM sites s JOIN processes p ON s.run = p.run AND s.rank = p.rank AND s.process = p.process \
     WHERE s.label IS NOT NULL GROUP BY 1, 2 ORDER BY s.rank LIMIT 300",
    "SELECT f, sum(live_bytes) AS b FROM \
     (SELECT unnest(array_distinct(stack)) AS f, live_bytes FROM sites WHERE rank > 20) \
     GROUP BY f ORDER BY b DESC, f LIMIT 20",
    "SELECT rank, label, n, sum(n) OVER (PARTITION BY label ORDER BY rank) AS so_far FROM \
     (SELECT rank, label, sum(allocations) AS n FROM sites WHERE label IN ('dxx', 'x') GROUP BY 1, 2) \
     ORDER BY label, rank",
    "SELECT label, sum(allocations) AS n FROM sites WHERE rank = \
     (SELECT max(rank) FROM processes) GROUP BY label ORDER BY label",
    "SELECT count(*) AS n FROM sites WHERE rank IN (SELECT rank FROM processes WHERE rank % 10 = 0)",
    "WITH per AS (SELECT rank, sum(live_bytes) AS b FROM sites GROUP BY rank) \
     SELECT min(b) AS least, max(b) AS most, count(*) AS n FROM per WHERE rank IS NOT NULL",
    "SELECT program, host, rank, allocations FROM processes \
     ORDER BY allocations DESC, program, rank LIMIT 7 OFFSET 3",
    "SELECT run, count(*) FILTER (WHERE stack IS NULL) AS without, max(array_length(stack)) AS deepest \
     FROM sites GROUP BY run HAVING count(*) > 1 ORDER BY run",
    "SELECT rank, stack, path, scopes, label, allocations FROM sites WHERE rank BETWEEN 3 AND 4 \
     ORDER BY rank, stack_text(stack), label, allocations, array_to_string(path, '/'), \
     scope(scopes, 'iteration#mainloop')",
    "SELECT a.rank, count(*) AS pairs FROM sites a JOIN sites b ON a.rank = b.rank AND a.label = b.label \
     GROUP BY a.rank ORDER BY a.rank",
    "SELECT approx_distinct(frame) > 3 AS some, bool_and(usable_bytes >= 0) AS b, avg(rank) AS mean \
     FROM sites WHERE regexp_like(frame, '^[A-Za-z]')",
    "SELECT 1 AS one, human_bytes(1536) AS b",
];

fn ask(how: &[&str], query: &str) -> String {
    let mut command = client();
    command.args(["sql", "--format", "json", "--dataset"]).arg(dataset()).args(how).arg(query);
    output(&mut command)
}

/// Results have to be equal, including the order of rows.
fn judge(how: &[&str], query: &str) {
    let (own, theirs) = (ask(&[], query), ask(how, query));
    assert!(own.len() > 10, "{query}: {own}");
    assert_eq!(own, theirs, "{query}");
}

#[test]
fn two_executors_return_the_results_of_one_process() {
    let place = scratch("two executors");
    let scheduler = Server::scheduler(&[]);
    let cluster = ["--cluster", scheduler.address()];
    let executors =
        [1, 2].map(|_| Server::executor(scheduler.address(), &place, &["--threads", "2"]));
    assert_eq!(fs::read_dir(&place).expect("a directory").count(), 2);
    for query in QUERIES {
        judge(&cluster, query);
    }
    let calql = "SELECT rank,label,count(),sum(live_bytes) GROUP BY rank,label ORDER BY rank,label";
    let of = |how: &[&str]| {
        output(client().args(["query", calql, "--dataset"]).arg(dataset()).args(how))
    };
    assert_eq!(of(&[]), of(&cluster));
    // Errors of queries have the usual messages.
    let check_refused = |dataset: &Path, query: &str| {
        let of = |how: &[&str]| {
            refused(client().args(["sql", query, "--dataset"]).arg(dataset).args(how))
        };
        let said = of(&[]);
        assert_eq!(of(&cluster), said);
        said
    };
    for query in [
        "SELECT nothing FROM sites",
        "SELECT",
        "SELECT stack_contains(stack, '(') FROM sites",
        "SELECT * FROM nowhere",
    ] {
        check_refused(dataset(), query);
    }
    // So have those about the dataset.
    let [_, of_job] = job_and_dataset(&scratch("job for a cluster"), 2);
    let said = check_refused(&of_job, "SELECT count(*) FROM lifetimes");
    assert!(said.contains("recorded without a trace"), "{said}");
    let sums = "SELECT rank, sum(allocations) AS n FROM sites GROUP BY rank";
    let all = files(&of_job.join("sites/run=r1"));
    let file = all.iter().find(|path| path.ends_with("image-0.parquet")).expect("a file");
    let mut bytes = fs::read(file).expect("a file");
    let end = bytes.len();
    bytes[end - 300..end - 8].fill(0xff); // the metadata, before its length
    fs::write(file, bytes).expect("a file");
    let said = check_refused(&of_job, sums);
    assert!(said.starts_with(&format!("heaptide: {}: is damaged", file.display())), "{said}");
    fs::remove_file(file).expect("a file");
    let said = check_refused(&of_job, sums);
    assert!(said.starts_with(&format!("heaptide: {}: is missing", file.display())), "{said}");
    // A query on which Ballista would hang.
    let union =
        "SELECT 'a' AS t, count(*) AS n FROM sites UNION ALL SELECT 'b', count(*) FROM stacks";
    let mut asked = client();
    let said = refused(asked.args(["sql", union, "--dataset"]).arg(dataset()).args(cluster));
    assert!(said.contains("do not support UNION") && said.lines().count() == 1, "{said}");
    for server in executors.into_iter().chain([scheduler]) {
        let status = server.stop();
        assert!(status.success(), "{status}");
    }
    // Intermediate results were removed.
    assert_eq!(fs::read_dir(&place).expect("a directory").count(), 0);
}

/// Counts files with intermediate results.
fn results(place: &Path) -> usize {
    let inside = |path: PathBuf| if path.is_dir() { results(&path) } else { 1 };
    let Ok(entries) = fs::read_dir(place) else {
        return 0; // it was removed meanwhile
    };
    entries.flatten().map(|entry| inside(entry.path())).sum()
}

#[test]
fn a_killed_executor_does_not_change_the_result() {
    let place = scratch("killed executor");
    let scheduler = Server::scheduler(&["--executor-timeout", "8"]);
    let how = ["--cluster", scheduler.address()];
    // Executors on one machine read each other's results as files. Removing the killed executor's
    // directory, which contains only its own results, simulates a lost machine.
    let [first, second] = ["first", "second"].map(|name| place.join(name));
    for path in [&first, &second] {
        fs::create_dir(path).expect("a directory");
    }
    let mut killed = Server::executor(scheduler.address(), &first, &["--threads", "1"]);
    let left = Server::executor(scheduler.address(), &second, &["--threads", "1"]);
    let query = "SELECT a.rank, count(*) AS pairs, sum(b.allocations) AS n FROM sites a JOIN sites b \
                 ON a.rank = b.rank WHERE b.label IS NOT NULL GROUP BY a.rank ORDER BY a.rank";
    let expected = ask(&[], query);
    let answer = thread::scope(|scope| {
        let asked = scope.spawn(|| ask(&how, query));
        let deadline = Instant::now() + DEADLINE;
        while results(&first) == 0 {
            assert!(Instant::now() < deadline && !asked.is_finished(), "no result to lose");
            thread::sleep(Duration::from_millis(2));
        }
        assert!(!asked.is_finished());
        killed.child.kill().expect("a running executor");
        fs::remove_dir_all(&first).expect("its results");
        asked.join().expect("an answer")
    });
    assert_eq!(answer, expected);
    assert!(left.stop().success() && scheduler.stop().success());
}

#[test]
fn a_killed_scheduler_is_one_line() {
    let place = scratch("killed scheduler");
    let mut scheduler = Server::scheduler(&[]);
    let address = scheduler.address().to_owned();
    let _executor = Server::executor(&address, &place, &["--threads", "1"]);
    let query = "SELECT a.rank, count(*) AS pairs, sum(b.allocations) AS n FROM sites a JOIN sites b \
                 ON a.rank = b.rank WHERE b.label IS NOT NULL GROUP BY a.rank ORDER BY a.rank";
    let said = thread::scope(|scope| {
        let mut asked = client();
        asked.args(["sql", query, "--dataset"]).arg(dataset()).args(["--cluster", &address]);
        let asked = scope.spawn(move || refused(&mut asked));
        let deadline = Instant::now() + DEADLINE;
        while results(&place) == 0 {
            assert!(Instant::now() < deadline && !asked.is_finished(), "no result");
            thread::sleep(Duration::from_millis(2));
        }
        scheduler.child.kill().expect("a running scheduler");
        asked.join().expect("a message")
    });
    let lost = format!("heaptide: {address}: the scheduler no longer responds: ");
    assert!(said.starts_with(&lost) && said.lines().count() == 1, "{said}");
}

#[test]
fn problems_of_a_cluster_are_one_line() {
    let place = scratch("no cluster");
    let dataset = dataset().to_str().expect("UTF-8");
    let asked = |arguments: &[&str]| {
        let said = refused(client().args(["sql", "SELECT count(*) FROM sites"]).args(arguments));
        assert_eq!(said.lines().count(), 1, "{said}");
        said
    };
    let of = |cluster: &str| asked(&["--dataset", dataset, "--cluster", cluster]);
    assert_eq!(
        of("127.0.0.1:1"),
        "heaptide: 127.0.0.1:1: cannot connect to a scheduler: Connection refused (os error 111); \
         `heaptide-sql scheduler` starts one\n"
    );
    let said = of("no-such-host.invalid:50050");
    assert!(said.starts_with("heaptide: no-such-host.invalid:50050: cannot connect"), "{said}");
    let mut wrong = heaptide();
    wrong.args(["sql", "SELECT 1", "--dataset", dataset, "--cluster", "node1"]);
    let said = refused(&mut wrong);
    assert!(said.contains("expected HOST:PORT, such as node1:50050"), "{said}");
    // Another program listens there.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let other = thread::spawn(move || listener.accept().map(drop));
    let said = of(&address);
    assert!(said.starts_with(&format!("heaptide: {address}: ")), "{said}");
    other.join().expect("a thread").expect("a connection");
    // An executor listens there.
    let lonely = Server::scheduler(&[]);
    let executor = Server::executor(lonely.address(), &place, &[]);
    let said = of(executor.address());
    let expected =
        format!("heaptide: {}: not a heaptide scheduler: it may be an", executor.address());
    assert!(said.starts_with(&expected), "{said}");
    executor.stop();
    // Clusters do not query recordings.
    let [steps, _] = recordings();
    let steps = steps.to_str().expect("UTF-8");
    let said = asked(&[steps, "--cluster", "127.0.0.1:1"]);
    assert!(said.contains("`heaptide export --format parquet -o DIR`"), "{said}");
    let calql = ["query", "SELECT count()", steps, "--cluster", "127.0.0.1:1"];
    assert_eq!(refused(heaptide().args(calql)), said);
    // There is no executor.
    let scheduler = Server::scheduler(&[]);
    let address = scheduler.address();
    assert_eq!(
        of(address),
        format!(
            "heaptide: {address}: no executor has registered within 10 s; \
             `heaptide-sql executor --scheduler {address}` starts one\n"
        )
    );
    // An executor without a scheduler fails, and so does a second scheduler on the same port.
    let said = refused(engine().args(["executor", "--scheduler", "127.0.0.1:1"]));
    assert!(said.starts_with("heaptide: 127.0.0.1:1: cannot connect"), "{said}");
    let port = address.rsplit_once(':').expect("a port").1;
    let said = refused(engine().args(["scheduler", "--port", port]));
    let in_use = format!("heaptide: cannot listen on {address}: Address already in use");
    assert!(said.starts_with(&in_use) && said.lines().count() == 1, "{said}");
    let nowhere = place.join("nowhere");
    let mut executor = engine();
    executor.args(["executor", "--scheduler", address, "--work-dir"]).arg(&nowhere);
    let said = refused(&mut executor);
    assert!(said.contains("nowhere") && said.lines().count() == 1, "{said}");
}

/// Returns the number of TCP ports that a process listens on.
fn ports(server: &Server) -> usize {
    let process = PathBuf::from(format!("/proc/{}", server.child.id()));
    let open = fs::read_dir(process.join("fd")).expect("descriptors").flatten();
    let links = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    let sockets: Vec<String> = links
        .filter_map(|link| {
            Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    let of_file = |name: &str| {
        let text = fs::read_to_string(process.join(name)).unwrap_or_default();
        let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let is_listening = |words: &Vec<&str>| words.get(3) == Some(&"0A");
        let is_own = |words: &Vec<&str>| sockets.iter().any(|own| words.get(9) == Some(&&**own));
        words.filter(|words| is_listening(words) && is_own(words)).count()
    };
    of_file("net/tcp") + of_file("net/tcp6")
}

#[test]
fn a_cluster_refuses_everyone_without_its_token() {
    let place = scratch("tokens");
    let scheduler = Server::scheduler(&[]);
    let how = ["--dataset", dataset().to_str().expect("UTF-8"), "--cluster", scheduler.address()];
    let executor = Server::executor(scheduler.address(), &place, &["--threads", "1"]);
    let count = ["sql", "--format", "csv", "SELECT count(DISTINCT rank) FROM sites"];
    assert!(output(client().args(count).args(how)).ends_with(&format!("\n{RANKS}\n")));
    // The only ports are those that check the token.
    assert_eq!((ports(&scheduler), ports(&executor)), (1, 1));
    let home = |command: &mut Command| {
        command.env_remove("HEAPTIDE_CLUSTER_TOKEN").env("XDG_STATE_HOME", &place);
    };
    let file = place.join("heaptide/cluster-token");
    let asked = |arguments: &[&str]| {
        let mut command = heaptide();
        home(command.args(count).args(how).args(arguments));
        refused(&mut command)
    };
    let said = asked(&[]);
    let none =
        format!("heaptide: {}: no such file, expected the token of the cluster", file.display());
    assert!(said.starts_with(&none) && said.lines().count() == 1, "{said}");
    let mut command = engine();
    home(command.args(["executor", "--scheduler", scheduler.address()]));
    assert_eq!(refused(&mut command), said);
    // A scheduler of the same user creates the file; it is another token than that of this cluster.
    let mut command = engine();
    home(command.args(["scheduler", "--port", "0"]).stderr(Stdio::piped()));
    let mut other = command.spawn().expect("heaptide-sql");
    let line = BufReader::new(other.stderr.take().expect("a pipe")).lines().next();
    other.kill().expect("a scheduler");
    other.wait().expect("a scheduler");
    let line = line.expect("a line").expect("UTF-8");
    assert!(line.ends_with(&format!("; token: {}", file.display())), "{line}");
    let said = asked(&[]);
    assert_eq!(
        said,
        format!(
            "heaptide: {}: the scheduler has another token than {}; copy its token to this machine\n",
            scheduler.address(),
            file.display()
        )
    );
    let own = place.join("token");
    fs::write(&own, TOKEN).expect("a file");
    let own_name = own.to_str().expect("UTF-8");
    fs::set_permissions(&own, fs::Permissions::from_mode(0o644)).expect("a mode");
    let said = asked(&["--token-file", own_name]);
    assert!(said.contains("mode 0644, expected 0600") && said.lines().count() == 1, "{said}");
    fs::set_permissions(&own, fs::Permissions::from_mode(0o600)).expect("a mode");
    let mut command = heaptide();
    home(command.args(count).args(how).args(["--token-file", own_name]));
    assert!(output(&mut command).ends_with(&format!("\n{RANKS}\n")));
}

#[test]
fn statements_read_only_files_that_the_cluster_allows() {
    let place = scratch("statement files");
    let [open, secret] = ["open", "secret"].map(|name| place.join(name));
    for directory in [&open, &secret] {
        fs::create_dir(directory).expect("a directory");
    }
    let [good, hidden, link] = [open.join("a.csv"), secret.join("a.csv"), open.join("link.csv")];
    fs::write(&good, "a,b\n1,20\n2,22\n").expect("a file");
    fs::write(&hidden, "a,b\n7,77\n").expect("a file");
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o600)).expect("a mode");
    symlink(&hidden, &link).expect("a link");
    let back = open.join("../secret/a.csv");
    let read = |path: &Path| {
        format!(
            "CREATE EXTERNAL TABLE t (a INT, b INT) STORED AS CSV LOCATION '{}' \
             OPTIONS ('format.has_header' 'true'); SELECT sum(b) AS s FROM t",
            path.display()
        )
    };
    let dataset = dataset().to_str().expect("UTF-8");
    let asked = |scheduler: &Server, sql: &str| {
        let mut command = client();
        command.args(["sql", "--format", "csv", sql, "--dataset", dataset, "--cluster"]);
        command.arg(scheduler.address());
        command
    };
    let allowed = ["--allow-files", open.to_str().expect("UTF-8")];
    // Neither is started with --allow-files.
    let scheduler = Server::scheduler(&[]);
    let executor = Server::executor(scheduler.address(), &place, &[]);
    let said = refused(&mut asked(&scheduler, &read(&good)));
    let off =
        "heaptide: query: statements that name files are off in this cluster; start its scheduler";
    assert!(said.starts_with(off) && said.lines().count() == 1, "{said}");
    for other in [
        format!("COPY sites TO '{}'", open.join("out.csv").display()),
        format!("SELECT * FROM '{}'", good.display()),
        "INSERT INTO sites SELECT * FROM sites".to_owned(),
    ] {
        let said = refused(&mut asked(&scheduler, &other));
        assert!(said.starts_with("heaptide: query: "), "{other}: {said}");
    }
    assert!(!open.join("out.csv").exists());
    drop((scheduler, executor));
    // Only the scheduler is: the executor still refuses.
    let scheduler = Server::scheduler(&allowed);
    let executor = Server::executor(scheduler.address(), &place, &[]);
    let said = refused(&mut asked(&scheduler, &read(&good)));
    let neither = "it is neither part of a dataset nor below a directory that the scheduler and the \
                   executors allow with --allow-files";
    assert!(said.contains(neither) && said.lines().count() == 1, "{said}");
    drop(executor);
    // Both are.
    let _executor = Server::executor(scheduler.address(), &place, &allowed);
    assert_eq!(output(&mut asked(&scheduler, &read(&good))), "s\n42\n");
    for path in [&hidden, &link, &back] {
        let said = refused(&mut asked(&scheduler, &read(path)));
        assert!(said.contains(neither) && said.lines().count() == 1, "{}: {said}", path.display());
    }
}
