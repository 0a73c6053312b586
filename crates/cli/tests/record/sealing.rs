//! `heaptide seal`: names for recordings that no command sealed, from servers and directories.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::harness::{Guest, Outcome, heaptide, preloaded, recorded, report, run, scratch, until};
use crate::recording::{self, counted, frames, function, list};

const PROGRAM: &str = "#include <stdlib.h>\n\
    static void *volatile sink;\n\
    __attribute__((noinline)) static void inner(int n) { sink = malloc(n); free(sink); }\n\
    int main(int argc, char **argv) { inner(argc + 99); return 0; }\n";

/// Runs a command line and returns its output.
pub fn sh(directory: &Path, command: &str) -> String {
    let output = Command::new("sh").args(["-ec", command]).current_dir(directory).output();
    let output = output.expect("a shell");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
}

/// Records a stripped program without the command; returns its directory and build id. Its debug
/// file is `app.full`.
fn recorded_stripped(name: &str) -> (PathBuf, String) {
    let place = scratch(name);
    fs::write(place.join("app.c"), PROGRAM).expect("a source");
    sh(&place, "cc -g -O1 -Wl,--build-id=sha1 -o app app.c");
    let id = sh(&place, "readelf -n app | sed -n 's/.*Build ID: //p'");
    sh(&place, "objcopy --only-keep-debug app app.full && strip app");
    let outcome = run(&mut preloaded(place.join("app"), place.join("r.heaptide")), &place);
    assert_eq!(outcome.status, 0, "{outcome:?}");
    (place, id)
}

fn functions(place: &Path) -> Vec<String> {
    let report = report(&place.join("r.heaptide"), place);
    let frames = list(&report["processes"][0], "frames");
    frames.iter().filter_map(|frame| frame["function"].as_str().map(str::to_owned)).collect()
}

fn seal(place: &Path, options: &[&str], urls: &str) -> Outcome {
    let mut command = heaptide();
    command.arg("seal").args(options).arg(place.join("r.heaptide"));
    command.env("DEBUGINFOD_URLS", urls).env("DEBUGINFOD_CACHE_PATH", place.join("cache"));
    run(command.env("DEBUGINFOD_TIMEOUT", "1"), place)
}

/// Starts a local server of files by path, which replies 404 to other paths. Returns its address
/// and the list of requested paths.
fn serve(files: Vec<(String, Vec<u8>)>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let path = requested(&stream);
            let file = files.iter().find(|(name, _)| *name == path);
            log.lock().expect("a log").push(path);
            let _ = answer(stream, file.map(|(_, bytes)| bytes.as_slice()));
        }
    });
    (url, asked)
}

fn requested(stream: &TcpStream) -> String {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    lines.find(|line| line.is_empty());
    first.split(' ').nth(1).unwrap_or_default().to_owned()
}

fn answer(mut stream: TcpStream, file: Option<&[u8]>) -> std::io::Result<()> {
    let status = if file.is_some() { "200 OK" } else { "404 Not Found" };
    let body = file.unwrap_or_default();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len())?;
    write!(stream, "Connection: close\r\n\r\n")?;
    stream.write_all(body)
}

#[test]
fn names_come_from_a_server_and_stay() {
    let (place, id) = recorded_stripped("sealing-server");
    assert!(!functions(&place).contains(&"inner".to_owned()));
    let file = fs::read(place.join("app.full")).expect("a debug file");
    let path = format!("/buildid/{id}/debuginfo");
    let (url, asked) = serve(vec![(path.clone(), file)]);
    let without = seal(&place, &[], "");
    assert_eq!(without.status, 0, "{without:?}");
    let missing = without.stdout.lines().nth(1).expect("a line of the module");
    assert!(missing.contains(" have none in ") && missing.ends_with("/app"), "{without:?}");
    assert_eq!(asked.lock().expect("a log").len(), 0);
    let sealed = seal(&place, &[], &url);
    assert_eq!((sealed.status, sealed.stderr.as_str()), (0, ""));
    assert!(functions(&place).contains(&"inner".to_owned()), "{sealed:?}");
    let times = || asked.lock().expect("a log").iter().filter(|asked| **asked == path).count();
    assert_eq!(times(), 1);
    assert!(place.join("cache").join(&id).join("debuginfo").is_file());
    let again = seal(&place, &[&format!("--debuginfod={url}")], "");
    assert_eq!((again.status, times()), (0, 1), "the second time it is in the cache");
    fs::remove_file(place.join("app")).expect("to remove it");
    assert!(functions(&place).contains(&"inner".to_owned()));
}

#[test]
fn servers_that_fail_are_given_up_with_a_line() {
    let (place, id) = recorded_stripped("sealing-silent");
    // It accepts connections and never replies.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = format!("http://{}", listener.local_addr().expect("an address"));
    let file = fs::read(place.join("app.full")).expect("a debug file");
    let (url, _) = serve(vec![(format!("/buildid/{id}/debuginfo"), file)]);
    let sealed = seal(&place, &[], &format!("{silent} {url}"));
    assert_eq!(sealed.status, 0, "{sealed:?}");
    assert!(functions(&place).contains(&"inner".to_owned()), "{sealed:?}");
    fs::remove_dir_all(place.join("cache")).expect("a cache");
    let failed = seal(&place, &[], &silent);
    let line = failed.stderr.lines().next().unwrap_or_default();
    assert!(line.contains("cannot fetch debug files"), "{failed:?}");
    assert_eq!((failed.status, failed.stderr.lines().count()), (0, 1), "{failed:?}");
    assert!(functions(&place).contains(&"inner".to_owned()), "names that are known stay");
}

/// A server that sends endlessly, fast enough not to be abandoned for its rate.
#[test]
fn transfers_take_a_limited_time() {
    let (place, _) = recorded_stripped("sealing-endless");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            requested(&stream);
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
            while stream.write_all(&[0; 4096]).is_ok() {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    });
    let mut command = heaptide();
    command.arg("seal").arg(place.join("r.heaptide")).env("DEBUGINFOD_MAXTIME", "2");
    command.env("DEBUGINFOD_URLS", &url).env("DEBUGINFOD_CACHE_PATH", place.join("cache"));
    let sealed = run(&mut command, &place);
    assert_eq!((sealed.status, sealed.stderr.lines().count()), (0, 1), "{sealed:?}");
    assert!(sealed.stderr.contains("cannot fetch debug files"), "{sealed:?}");
    let cache = fs::read_dir(place.join("cache")).expect("a cache");
    assert_eq!(cache.count(), 0, "a part of a file is not kept");
}

/// A login page in place of the file, and a file of another program.
#[test]
fn answers_other_than_the_debug_file_are_not_kept() {
    let (place, id) = recorded_stripped("sealing-portal");
    sh(&place, "echo 'int main(void) { return 1; }' > b.c && cc -g -Wl,--build-id=sha1 -o b b.c");
    let other = fs::read(place.join("b")).expect("a program");
    for answer in [b"<html>Log in</html>".to_vec(), other] {
        let (url, _) = serve(vec![(format!("/buildid/{id}/debuginfo"), answer)]);
        let sealed = seal(&place, &[], &url);
        let line = "cannot fetch debug files: the answer is not a debug file with this build id\n";
        assert!(sealed.status == 0 && sealed.stderr.ends_with(line), "{sealed:?}");
        assert!(!place.join("cache").join(&id).exists());
    }
    // As another program may have stored it.
    let kept = place.join("cache").join(&id);
    fs::create_dir(&kept).expect("a directory");
    fs::write(kept.join("debuginfo"), "<html>").expect("a file");
    let sealed = seal(&place, &[], "http://127.0.0.1:1");
    let line = "/debuginfo: not a debug file with this build id; remove it\n";
    assert!(sealed.status == 0 && sealed.stderr.ends_with(line), "{sealed:?}");
}

/// A server that sends without end, and does not announce a size.
#[test]
fn transfers_have_a_limited_size() {
    let (place, _) = recorded_stripped("sealing-huge");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            requested(&stream);
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
            while stream.write_all(&[0; 4096]).is_ok() {}
        }
    });
    let mut command = heaptide();
    command.arg("seal").arg(place.join("r.heaptide")).env("DEBUGINFOD_MAXSIZE", "100000");
    command.env("DEBUGINFOD_URLS", &url).env("DEBUGINFOD_CACHE_PATH", place.join("cache"));
    let sealed = run(&mut command, &place);
    assert_eq!((sealed.status, sealed.stderr.lines().count()), (0, 1), "{sealed:?}");
    assert!(sealed.stderr.contains("cannot fetch debug files"), "{sealed:?}");
    assert_eq!(fs::read_dir(place.join("cache")).expect("a cache").count(), 0);
}

#[test]
fn recordings_in_use_and_wrong_options_are_refused() {
    let place = scratch("sealing-refused");
    let recording = place.join("r.heaptide");
    let mut command = preloaded("sh", &recording);
    command.args(["-c", "read line"]).stdin(Stdio::piped());
    let mut program = command.spawn().expect("a shell");
    let has_profile = || {
        let files = fs::read_dir(&recording).into_iter().flatten().flatten();
        files.map(|file| file.file_name()).any(|name| name.to_string_lossy().ends_with("profile"))
    };
    until("a profile", has_profile);
    let busy = seal(&place, &[], "");
    assert_eq!(busy.status, 2);
    assert!(
        busy.stderr.contains("still writes to it; seal it when that process has ended"),
        "{busy:?}"
    );
    drop(program.stdin.take());
    program.wait().expect("its end");
    assert_eq!(seal(&place, &[], "").status, 0);
    for (options, line) in [
        (&["--debuginfod"][..], "no server is known"),
        (&["--sysroot", "missing"][..], "--sysroot missing: expected a directory"),
        (&["--symbols", "missing"][..], "--symbols missing: expected a directory"),
    ] {
        let refused = seal(&place, options, "");
        assert_eq!(refused.status, 2);
        assert!(refused.stderr.contains(line), "{refused:?}");
    }
}

/// Code without unwind tables that allocates 1000 bytes: it sets up a frame pointer, and calls
/// malloc. The program writes a map of it as JIT compilers do.
const JIT: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
    #include <sys/mman.h>\n#include <unistd.h>\n\
    int main(void) {\n\
        unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xbf, 0xe8, 3, 0, 0, 0x48, 0xb8,\n\
            0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xd0, 0x5d, 0xc3};\n\
        void *(*allocate)(size_t) = malloc;\n\
        memcpy(code + 11, &allocate, 8);\n\
        unsigned char *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,\n\
            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n\
        memcpy(made, code, sizeof code);\n\
        char name[64];\n\
        snprintf(name, sizeof name, \"/tmp/perf-%d.map\", getpid());\n\
        FILE *map = fopen(name, \"w\");\n\
        fprintf(map, \"%lx %zx JS:*made app.js:7\\n\", (unsigned long)made, sizeof code);\n\
        fclose(map);\n\
        puts(name);\n\
        free(((void *(*)(void))made)());\n\
    }\n";

#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "generates code of x86-64")]
fn code_of_jit_compilers_has_the_names_of_its_map() {
    let place = scratch("sealing-jit");
    fs::write(place.join("app.c"), JIT).expect("a source");
    sh(&place, "cc -g -O1 -fno-omit-frame-pointer -o app app.c");
    let mut command = preloaded(place.join("app"), place.join("r.heaptide"));
    let outcome = run(&mut command, &place);
    assert_eq!(outcome.status, 0, "{outcome:?}");
    let sealed = seal(&place, &[], "");
    fs::remove_file(outcome.stdout.trim()).expect("a map");
    assert_eq!(sealed.status, 0, "{sealed:?}");
    let report = report(&place.join("r.heaptide"), &place);
    let process = &report["processes"][0];
    let frames = list(process, "frames");
    let name = |index: &serde_json::Value| {
        let frame = &frames[index.as_u64().expect("an index") as usize];
        frame["function"].as_str().unwrap_or("?").to_owned()
    };
    let stacks = list(process, "sites").iter().map(|site| list(site, "stack"));
    let stacks: Vec<Vec<String>> = stacks.map(|stack| stack.iter().map(name).collect()).collect();
    let has = |stack: &Vec<String>| matches!(&stack[..], [.., main, made] if main == "main" && made == "made");
    assert!(stacks.iter().any(has), "{stacks:?}");
}

/// Returns the function that calls malloc, its caller, and the requested bytes, for each stack of
/// generated code in `jit_times.c`.
fn generated(recording: &Path, place: &Path) -> Vec<(String, String, i128)> {
    let report = report(recording, place);
    let mut found = Vec::new();
    for (process, site) in recording::sites(&report) {
        let stack: Vec<_> = frames(process, site).into_iter().map(function).collect();
        let callers = ["before", "after", "here", "there", "alike"];
        if let [.., caller, made] = &stack[..]
            && callers.contains(caller)
        {
            let bytes = counted(site, "requested_bytes");
            found.push((made.to_string(), caller.to_string(), bytes));
        }
    }
    found.sort_by_key(|&(.., bytes)| bytes);
    found
}

#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "generates code of x86-64")]
fn names_of_replaced_code_are_those_of_its_time() {
    let place = scratch("sealing-jit-times");
    let app = Guest::read("jit_times.c").build("jit_times.c", &["-fno-omit-frame-pointer"]);
    let recording = place.join("r.heaptide");
    let outcome = run(recorded(&recording, &[]).arg(app).current_dir(&place), &place);
    assert_eq!(outcome.status, 0, "{outcome:?}");
    let expected = [
        ("moved", "here", 500),
        ("moved", "there", 500),
        ("first", "before", 1000),
        ("second", "after", 2000),
        ("third", "alike", 7000), // and `fourth`, which has the same stack
    ];
    let expected = expected.map(|(made, caller, bytes)| (made.into(), caller.into(), bytes));
    assert_eq!(generated(&recording, &place), expected);
    sh(&place, "rm jit-*.dump && mv r.heaptide elsewhere.heaptide");
    assert_eq!(generated(&place.join("elsewhere.heaptide"), &place), expected, "they are stored");
    let merged = place.join("merged.heaptide");
    let mut command = heaptide();
    command.arg("merge").arg("-o").arg(&merged).arg(place.join("elsewhere.heaptide"));
    assert_eq!(run(&mut command, &place).status, 0);
    assert_eq!(generated(&merged, &place), expected, "merged");
    let report = report(&merged, &place);
    let stacks = recording::sites(&report)
        .map(|(process, site)| frames(process, site).into_iter().map(function).collect());
    let is_whole = |stack: Vec<&str>| matches!(stack[..], [.., "main", "around", _, "bare"]);
    assert!(stacks.into_iter().any(is_whole), "{report}");
}

#[test]
fn summary_and_report_end_with_what_gives_names() {
    let (place, _) = recorded_stripped("sealing-hint");
    let mut command = heaptide();
    command.arg("report").arg(place.join("r.heaptide"));
    let page = run(&mut command, &place).stdout;
    let last = page.lines().last().unwrap_or_default();
    assert!(last.starts_with("no names for 100% of the bytes, in app: build it with -g"), "{page}");
    let mut command = heaptide();
    command.args(["run", "-o"]).arg(place.join("s.heaptide")).arg("--symbols").arg(&place);
    let summary = run(command.arg("--").arg(place.join("app")), &place).stderr;
    assert!(summary.contains("in app: build it with -g"), "{summary}");
    fs::rename(place.join("app.full"), place.join("app.debug")).expect("to rename it");
    let mut command = heaptide();
    command.args(["run", "--force", "-o"]).arg(place.join("s.heaptide"));
    command.arg("--symbols").arg(&place);
    let summary = run(command.arg("--").arg(place.join("app")), &place).stderr;
    assert!(summary.contains("heaptide: ") && !summary.contains("no names"), "{summary}");
}
