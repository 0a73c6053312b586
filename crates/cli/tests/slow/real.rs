//! Real work of real programs: the same output and status as bare, and a consistent report.
//!
//! Each test is a shell script, run bare and recorded with all its children.

use crate::harness::{
    OF_OUTER_BUILD, Outcome, clean, heaptide, profiles, recorded, report, run, scratch,
};
use crate::programs::{is_installed, python};
use heaptide_fixtures::skips::skip;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Reports of more processes than this are not read: as JSON, those of a hundred interpreters have
/// gigabytes.
const REPORTED_MAX: usize = 16;

/// A shell script, and its working directory.
struct Script {
    place: PathBuf,
    file: PathBuf,
}

impl Script {
    fn new(name: &str, script: &str) -> Script {
        let place = scratch(name);
        let file = place.join("script.sh");
        fs::write(&file, format!("set -eu\n{script}")).expect("the script");
        Script { place, file }
    }

    fn start(&self, mut command: Command, within: &str) -> Outcome {
        let within = self.place.join(within);
        fs::create_dir_all(&within).expect("a working directory");
        command.arg("bash").arg(&self.file).current_dir(within).env("LC_ALL", "C");
        OF_OUTER_BUILD.iter().for_each(|name| _ = command.env_remove(name));
        run(&mut command, &self.place)
    }

    fn bare(&self) -> Outcome {
        self.start(clean(Command::new("env")), "bare")
    }

    /// Runs the script recorded; at least `processes` processes must have been recorded.
    fn recorded(&self, processes: usize) -> Outcome {
        let (outcome, found) = self.recorded_with_info(processes);
        if found <= REPORTED_MAX {
            report(&self.place.join("a.heaptide"), &self.place);
        }
        outcome
    }

    /// Like `recorded`, but reads only the description of each process. Second, their number.
    fn recorded_with_info(&self, processes: usize) -> (Outcome, usize) {
        let recording = self.place.join("a.heaptide");
        let outcome = self.start(recorded(&recording, &[]), "recorded");
        let found = profiles(&recording).len();
        assert!(found >= processes, "{found} profiles of at least {processes} processes");
        let info = run(heaptide().arg("info").arg(&recording), &self.place);
        assert_eq!(info.status, 0, "{}", info.stderr);
        (outcome, found)
    }
}

/// Runs a script bare and recorded; at least `processes` processes must have been recorded.
fn same(name: &str, needs: &[&str], processes: usize, script: &str) {
    if let Some(missing) = needs.iter().find(|program| !is_installed(program)) {
        return skip(missing);
    }
    let script = Script::new(name, script);
    let bare = script.bare();
    assert_eq!(bare.status, 0, "bare {name}: {}{}", bare.stdout, bare.stderr);
    assert!(!bare.stdout.is_empty(), "{name} shows nothing");
    assert_eq!(bare, script.recorded(processes), "{name} differs");
}

#[test]
fn python_objects() {
    let Some(python) = python() else {
        return skip("python3");
    };
    let script = format!(
        r#"PYTHONMALLOC=malloc {python} - <<'END'
import json, re, collections, threading, zlib
d = {{str(i): [i, {{"x": i * 2, "y": [str(i)] * 3}}] for i in range(20000)}}
text = json.dumps(d)
assert json.loads(text) == d
words = collections.Counter(re.findall(r"[0-9]+", text))
def work(n, out): out.append(sum(len(str(i)) for i in range(n)))
out = []
threads = [threading.Thread(target=work, args=(5000, out)) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(text), words.most_common(3), out, zlib.crc32(zlib.compress(text.encode())))
END"#
    );
    same("python-objects", &[], 2, &script);
}

/// Runs modules of Python's own tests, each with its options.
fn python_tests(name: &str, modules: &[&str], processes: usize) {
    let Some(python) = python() else {
        return skip("python3");
    };
    let has_tests = Command::new(&python).args(["-c", "import test.support"]).output();
    if !has_tests.is_ok_and(|output| output.status.success()) {
        return skip("test.test_json");
    }
    let line = |module: &&str| {
        format!(
            "{python} -m test -q {module} >log 2>&1 && echo {module} passes || {{ cat log; exit 1; }}\n"
        )
    };
    let script = Script::new(name, &modules.iter().map(line).collect::<String>());
    let (outcome, _) = script.recorded_with_info(processes);
    // The tests check themselves. They run without the recorder only if they fail.
    if outcome.status != 0 {
        panic!("{name}: recorded {outcome:?}, bare {:?}", script.bare());
    }
    let expected: String = modules.iter().map(|module| format!("{module} passes\n")).collect();
    assert_eq!((outcome.stdout, outcome.stderr), (expected, String::new()));
}

#[test]
fn python_tests_of_data() {
    let modules = ["test_json", "test_dict", "test_struct", "test_zlib", "test_queue"];
    python_tests("python-tests-of-data", &modules, 6);
}

#[test]
fn python_tests_of_the_system() {
    let modules =
        ["test_ctypes", "test_thread", "test_fork1", "test_wait4", "test_posix", "test_mmap"];
    python_tests("python-tests-of-the-system", &modules, 12);
}

#[test]
fn python_tests_of_threads() {
    // One of them fails if a `.pth` file imports `threading` at startup.
    let module = "test_threading -m ThreadTests -m LockTests -i test_import_from_another_thread";
    python_tests("python-tests-of-threads", &[module], 10);
}

#[test]
fn python_tests_of_subprocesses() {
    let modules = ["test_subprocess -m POSIXProcessTestCase"];
    python_tests("python-tests-of-subprocesses", &modules, 60);
}

#[test]
fn python_tests_of_multiprocessing() {
    let modules = ["test_multiprocessing_main_handling -m Fork*"];
    python_tests("python-tests-of-multiprocessing", &modules, 20);
}

#[test]
fn python_processes() {
    let Some(python) = python() else {
        return skip("python3");
    };
    let script = format!(
        r#"cat > work.py <<'END'
import multiprocessing, subprocess, sys, threading
def square(n): return n * n
if __name__ == "__main__":
    for method in ["fork", "spawn", "forkserver"]:
        with multiprocessing.get_context(method).Pool(3) as pool:
            print(method, sum(pool.map(square, range(500))))
    for i in range(5):
        command = [sys.executable, "-c", f"print({{i}} ** 5)"]
        print(subprocess.run(command, capture_output=True).stdout)
    done = threading.Event()
    threading.Timer(0.01, done.set).start()
    print(done.wait(20), subprocess.call("exit 7", shell=True))
END
{python} work.py"#
    );
    same("python-processes", &[], 15, &script);
}

#[test]
fn sqlite_script() {
    let script = r#"sqlite3 work.db <<'END'
create table t(id integer primary key, name text, size real);
with recursive n(i) as (select 1 union all select i+1 from n where i<20000)
  insert into t select i, hex(i*7919), i*1.5 from n;
create index by_name on t(name);
select count(*), sum(length(name)), round(total(size)) from t;
select substr(name,1,2) k, count(*) c from t group by k order by c desc, k limit 5;
update t set size = size + 1 where id % 3 = 0;
delete from t where id % 5 = 0;
vacuum;
pragma integrity_check;
select count(*) from t a join t b on a.id = b.id + 1;
END"#;
    same("sqlite-script", &["sqlite3"], 2, script);
}

#[test]
fn git_repository() {
    let script = r#"export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
git init -q -b main one && cd one
for i in 1 2 3 4 5; do seq $((i * 400)) > f$i; git add . ; git commit -q -m "step $i"; done
git checkout -q -b side HEAD~2; echo side > g; git add g; git commit -q -m side
git checkout -q main; git merge -q side -m merged; git log --stat | cat
git grep -c 77 | cat; git diff HEAD~3 --stat | cat; git gc -q; git fsck 2>&1
cd ..; git clone -q one two; git -C two rev-parse HEAD"#;
    same("git-repository", &["git"], 30, script);
}

#[test]
fn redis_under_benchmark() {
    let script = r#"port=$((20000 + $$ % 20000))
redis-server --port $port --bind 127.0.0.1 --save '' --appendonly no > log &
server=$!
for i in $(seq 500); do redis-cli -p $port ping > /dev/null 2>&1 && break; sleep 0.02; done
redis-benchmark -p $port -n 5000 -c 20 -q -t set,get,lpush,hset,zadd > /dev/null
for i in $(seq 50); do echo "set key$i $i"; done | redis-cli -p $port | sort | uniq -c
redis-cli -p $port get key42
redis-cli -p $port llen mylist
redis-cli -p $port shutdown nosave > /dev/null 2>&1 || true
wait $server && echo ended well"#;
    same("redis", &["redis-server", "redis-benchmark", "redis-cli"], 5, script);
}

#[test]
fn cargo_build() {
    let script = r#"mkdir -p tiny/src && cd tiny
printf '[package]\nname = "tiny"\nversion = "0.1.0"\nedition = "2021"\n[workspace]\n' > Cargo.toml
cat > src/main.rs <<'END'
use std::collections::BTreeMap;
fn main() {
    let squares: BTreeMap<u32, String> = (0..9).map(|i| (i, (i * i).to_string())).collect();
    println!("{squares:?}");
}
END
cargo build --offline -q 2>&1
./target/debug/tiny"#;
    same("cargo-build", &["cargo"], 3, script);
}

#[test]
fn cpp_compile() {
    let script = r##"cat > a.cpp <<'END'
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <vector>
int main() {
    std::map<std::string, std::vector<int>> m;
    for (int i = 0; i < 100; i++) m[std::to_string(i % 7)].push_back(i);
    for (auto &[k, v] : m) std::cout << k << ' ' << v.size() << '\n';
    std::cout << std::regex_replace(std::string("a1b22"), std::regex("[0-9]+"), "#") << '\n';
}
END
g++ -O1 -Wall -o a a.cpp
./a
g++ -fsyntax-only -x c++ - <<< 'int main() { return undefined; }' || echo "status $?""##;
    same("cpp-compile", &["g++"], 5, script);
}

#[test]
fn shell_and_loader() {
    let script = r#"ldd /bin/bash | sed 's/(0x[0-9a-f]*)//; /heaptide/d' | sort
declare -A words
while read -r a; do words[$a]=$((${words[$a]:-0} + 1)); done < <(seq 300 | tr 1-9 a-i)
echo ${#words[@]} | tee count; cat count | tr -d '\n' | wc -c
f() { local n=$1; ((n < 2)) && { echo $n; return; }; echo $(($(f $((n - 1))) + $(f $((n - 2))))); }
f 9; (exit 3) || echo "status $?"; kill -TERM $BASHPID & wait $! || echo "status $?"
printf '%s\n' {c,a,b}{3,1,2} | sort | awk '{s = s $0} END {print s}' | sed 's/a/A/g'
trap 'echo trapped' USR1; kill -USR1 $$; echo ${BASH_VERSION%%.*}"#;
    same("shell-and-loader", &["ldd"], 20, script);
}
