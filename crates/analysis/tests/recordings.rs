//! Whole recordings: which files are read, how images ended, and sealing with real debug info.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use heaptide_analysis::model::{End, Process, Recording};
use heaptide_analysis::newest;
use heaptide_analysis::recording::metadata::{Metadata, Status, StatusKind};
use heaptide_analysis::seal;
use heaptide_fixtures::{ProfileBuilder, Scratch, site};
use heaptide_format as format;

mod compiled;
use compiled::{compile, has, metadata, record, run, stacks};

fn image(pid: u32, image: u32, change: impl FnOnce(&mut format::FileHeader)) -> Vec<u8> {
    let mut p = ProfileBuilder::new(format::Mode::Stacks, pid, image);
    p.site(0, site(0, 1, 16));
    p.lane(0, "app", |_| {});
    change(&mut p.header);
    p.finish()
}

fn ends(directory: &Path) -> Vec<(u32, u32, End)> {
    let recording = Recording::open(directory).unwrap();
    recording.processes.iter().map(|p| (p.identity.pid, p.identity.image, p.lifetime.end)).collect()
}

#[test]
fn what_is_no_recording_is_refused_with_a_reason() {
    let scratch = Scratch::new("none");
    let says = |path: &Path| Recording::open(path).unwrap_err().to_string();
    let missing = says(&scratch.join("missing.heaptide"));
    assert!(
        missing.ends_with("no such recording; create one with `heaptide run -- PROGRAM`"),
        "{missing}"
    );
    assert!(says(&scratch).contains("no profile in this directory, expected PID-IMAGE.profile"));
    scratch.write("12-0.profile", b"");
    assert!(says(&scratch).contains("12-0.profile: the file is empty"));
    scratch.write("13-0.profile", b"rubbish!");
    let both = says(&scratch);
    assert!(both.contains("none of its 2 profiles can be read; the first is"), "{both}");
}

#[test]
fn the_readable_part_of_a_recording_is_one() {
    let scratch = Scratch::new("part");
    scratch.write("12-0.profile", &image(12, 0, |_| {}));
    scratch.write("13-0.profile", b"rubbish!");
    scratch.write("recording.json", b"{\"version\":3}");
    scratch.write("symbols.json", b"{\"version\":1");
    let recording = Recording::open(&scratch).unwrap();
    assert_eq!((recording.processes.len(), recording.sealed), (1, false));
    let damaged: Vec<_> = recording
        .damaged
        .iter()
        .map(|file| {
            let name = file.path.file_name().unwrap().to_str().unwrap();
            (name, file.reason.contains("version 3"))
        })
        .collect();
    assert_eq!(
        damaged,
        [("13-0.profile", false), ("recording.json", true), ("symbols.json", false)]
    );
}

#[test]
fn images_are_in_order_of_start_and_end_by_what_is_known() {
    let scratch = Scratch::new("ends");
    let exited = |h: &mut format::FileHeader| {
        (h.end_kind, h.end_code, h.end_time_ns) = (format::End::Exited as u32, 4, 99);
    };
    scratch.write("12-0.profile", &image(12, 0, |_| {}));
    scratch.write("12-1.profile", &image(12, 1, |h| h.last_seen_ns = 5));
    scratch.write("13-0.profile", &image(13, 0, exited));
    scratch.write("14-0.profile", &image(14, 0, |h| h.end_kind = format::End::Exec as u32));
    let signal = Status { kind: StatusKind::Signaled, code: 9 };
    metadata(12, Some(signal)).write(&scratch).unwrap();
    let expected = [
        (12, 0, End::Exec),
        (13, 0, End::Exited(4)),
        (14, 0, End::Exec),
        (12, 1, End::Signaled(9)),
    ];
    assert_eq!(ends(&scratch), expected);
    let recording = Recording::open(&scratch).unwrap();
    let durations: Vec<_> = recording.processes.iter().map(|p| p.lifetime.duration_ns).collect();
    assert_eq!(durations, [1, 99, 0, 5], "12-0 lasted until 12-1 began, 1 ns later");
    let one = Recording::open(&scratch.join("12-0.profile")).unwrap();
    assert_eq!((one.processes.len(), one.processes[0].lifetime.end), (1, End::Exec));
    fs::remove_file(scratch.join("recording.json")).unwrap();
    assert_eq!(ends(&scratch)[3], (12, 1, End::Unknown));
}

#[test]
fn a_live_process_that_has_not_mapped_the_file_is_another_one() {
    let scratch = Scratch::new("alive");
    let me = std::process::id();
    scratch.write(&format!("{me}-0.profile"), &image(me, 0, |h| h.last_seen_ns = 1));
    assert_eq!(ends(&scratch), [(me, 0, End::Unknown)]);
}

#[test]
fn the_newest_recording_is_found() {
    let scratch = Scratch::new("newest");
    assert_eq!(newest(&scratch).unwrap(), None);
    for (name, age) in [("old.heaptide", 3), ("new.heaptide", 2), ("later", 1)] {
        fs::create_dir(scratch.join(name)).unwrap();
        let directory = fs::File::open(scratch.join(name)).unwrap();
        directory.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
    }
    scratch.write("file.heaptide", b"");
    assert_eq!(newest(&scratch).unwrap(), Some(scratch.join("new.heaptide")));
    assert!(newest(&scratch.join("gone")).unwrap_err().to_string().contains("cannot read it"));
}

#[test]
fn inlined_calls_are_frames_of_their_own() {
    let scratch = Scratch::new("inlined");
    let (app, id, addresses) = compile(&scratch);
    record(&scratch, &app, &id, addresses);
    let mut told = Vec::new();
    let engine = &heaptide_analysis::symbols::Blazesym;
    let recording =
        Recording::open_with(&scratch, engine, &mut |done, of| told.push((done, of))).unwrap();
    let process = &recording.processes[0];
    assert_eq!((recording.sealed, process.completeness.notes.as_slice()), (false, [].as_slice()));
    let stacks = stacks(process);
    has(&stacks, "outer app.c:8 / inner app.c:3 inlined");
    has(&stacks, "outer app.c:7");
    let &(done, of) = told.last().unwrap();
    assert_eq!((done, of), (process.tables.sites.len(), process.tables.sites.len()));
}

#[test]
fn names_are_demangled_and_whole() {
    let scratch = Scratch::new("names");
    let program = "namespace ns {\n\
        static __attribute__((noinline)) char *local(int n) { return new char[n]; }\n\
        struct Type { __attribute__((noinline)) char *method(int n) { return local(n + 1); } };\n\
        }\n\
        int main(int argc, char **) { return ns::Type().method(argc) == nullptr; }\n";
    fs::write(scratch.join("app.cc"), program).unwrap();
    run(&scratch, "c++ -g -O1 -fno-optimize-sibling-calls -Wl,--build-id=none -o app app.cc");
    run(&scratch, "touch -d '1970-01-01 00:00:00 UTC' app");
    let symbols = run(&scratch, "nm app");
    let of = |name: &str| {
        let line = symbols.lines().find(|line| line.contains(name)).unwrap();
        u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
    };
    for (symbol, name) in [("5local", "ns::local(int)"), ("6method", "ns::Type::method(int)")] {
        record(&scratch, &scratch.join("app"), &[], of(symbol)..of(symbol) + 1);
        let process = &Recording::open(&scratch).unwrap().processes[0];
        assert_eq!(process.tables.frames[0].function.as_deref(), Some(name));
    }
}

/// GCC's debug info has only `operator()` for lambdas, regardless of the enclosing function.
#[test]
fn lambdas_have_the_names_of_the_symbol_table() {
    let scratch = Scratch::new("lambdas");
    let program = "#include <functional>\n\
        static int times(const std::function<int(int)> &f, int n) { return f(n); }\n\
        int first(int n) { return times([](int a) { return a + 1; }, n); }\n\
        int second(int n) { return times([](int a) { return a + 2; }, n); }\n\
        int main(int argc, char **) { return first(argc) + second(argc); }\n";
    fs::write(scratch.join("app.cc"), program).unwrap();
    run(&scratch, "c++ -g -O0 -Wl,--build-id=none -o app app.cc");
    run(&scratch, "touch -d '1970-01-01 00:00:00 UTC' app");
    let symbols = run(&scratch, "nm app");
    for function in ["first", "second"] {
        let mangled = format!("_ZZ{}{function}iENKUliE_clEi", function.len());
        let line = symbols.lines().find(|line| line.ends_with(&mangled)).unwrap();
        let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
        record(&scratch, &scratch.join("app"), &[], address..address + 1);
        let process = &Recording::open(&scratch).unwrap().processes[0];
        let name = format!("{function}(int)::{{lambda(int)#1}}::operator()(int) const");
        assert_eq!(process.tables.frames[0].function.as_ref().map(ToString::to_string), Some(name));
    }
    let invoke = symbols.lines().find(|line| line.contains("__invoke_rIiRZ5firsti")).unwrap();
    let address = u64::from_str_radix(invoke.split(' ').next().unwrap(), 16).unwrap();
    record(&scratch, &scratch.join("app"), &[], address..address + 1);
    let process = &Recording::open(&scratch).unwrap().processes[0];
    let function = process.tables.frames[0].function.as_deref().unwrap();
    assert!(
        function.contains("std::__invoke_r<int, first(int)::{lambda(int)#1}&, int>"),
        "{function}"
    );
}

/// GCC's debug info has no mangled names for functions that depend on a lambda or are local to a
/// file, and the symbol table has none for inlined functions: `operator()`,
/// `__invoke_r<…<lambda()>&>`, `Cache`.
#[test]
fn inlined_functions_have_their_scopes() {
    let scratch = Scratch::new("scopes");
    let program = "#include <functional>\n\
        static char *volatile sink;\n\
        namespace app { namespace {\n\
        struct Cache { char *p; Cache(size_t n) : p(new char[n]) {} };\n\
        inline char *helper(const Cache &, unsigned long n) { return new char[n]; }\n\
        }\n\
        template<class T> struct Box { template<class F> static void each(F f) { f(1); } };\n\
        void run(size_t n) {\n\
            auto a = [](int k) { sink = new char[k]; };\n\
            auto b = [](int k) { sink = new char[k + 1]; };\n\
            Box<long>::each(a); Box<long>::each(b);\n\
            Cache c(n); sink = c.p; sink = helper(c, n);\n\
            std::function<void(int)> f = b; f(2);\n\
        } }\n\
        extern \"C\" __attribute__((always_inline)) inline void plain() { app::run(9); }\n\
        int main() { plain(); }\n";
    fs::write(scratch.join("app.cc"), program).unwrap();
    run(&scratch, "c++ -g -O2 -Wl,--build-id=none -o app app.cc");
    run(&scratch, "touch -d '1970-01-01 00:00:00 UTC' app");
    let text = run(&scratch, "readelf -SW app | grep ' \\.text'");
    let numbers = text.split_once("PROGBITS").unwrap().1.split_ascii_whitespace();
    let numbers: Vec<_> = numbers.map_while(|n| u64::from_str_radix(n, 16).ok()).collect();
    record(&scratch, &scratch.join("app"), &[], numbers[0]..numbers[0] + numbers[2]);
    let process = &Recording::open(&scratch).unwrap().processes[0];
    let frames = process.tables.frames.iter().filter(|frame| frame.inlined);
    let mut names: Vec<_> = frames.filter_map(|frame| frame.function.as_deref()).collect();
    names.sort_unstable();
    names.dedup();
    for name in [
        "app::(anonymous namespace)::Cache::Cache(unsigned long)",
        "app::(anonymous namespace)::helper\
         (app::(anonymous namespace)::Cache const&, unsigned long)",
        "app::Box<long int>::each<app::run(size_t)::{lambda(int)#1}>\
         (app::run(unsigned long)::{lambda(int)#1})",
        "app::Box<long int>::each<app::run(size_t)::{lambda(int)#2}>\
         (app::run(unsigned long)::{lambda(int)#2})",
        "app::run(unsigned long)::{lambda(int)#1}::operator()(int) const",
        "app::run(unsigned long)::{lambda(int)#2}::operator()(int) const",
        "plain",
    ] {
        assert!(names.contains(&name), "{name} is not among {names:#?}");
    }
    let unqualified: Vec<_> =
        names.iter().filter(|name| !name.contains("::") && **name != "plain").collect();
    assert!(unqualified.is_empty(), "{unqualified:#?}");
}

#[test]
fn a_sealed_recording_needs_no_module() {
    let scratch = Scratch::new("sealed");
    let (app, id, addresses) = compile(&scratch);
    record(&scratch, &app, &id, addresses);
    let before = stacks(&Recording::open(&scratch).unwrap().processes[0]);
    let sealed = seal(&scratch, &mut |_, _| {}).unwrap();
    assert_eq!((sealed.addresses, sealed.notes), (sealed.named, Vec::new()));
    assert!(Metadata::read(&scratch).unwrap().unwrap().sealed);
    fs::remove_file(&app).unwrap();
    let recording = Recording::open(&scratch).unwrap();
    assert!(recording.sealed);
    assert_eq!(stacks(&recording.processes[0]), before);
    assert_eq!(recording.processes[0].completeness.notes, [""; 0]);
    let again = seal(&scratch, &mut |_, _| {}).unwrap();
    assert_eq!(again.named, sealed.named, "sealing again without the module loses nothing");
}

#[test]
fn separate_debug_info_is_found_by_its_link() {
    let scratch = Scratch::new("debuglink");
    let (app, id, addresses) = compile(&scratch);
    run(&scratch, "objcopy --only-keep-debug app app.debug && strip app");
    record(&scratch, &app, &id, addresses);
    let stripped = stacks(&Recording::open(&scratch).unwrap().processes[0]);
    assert_eq!(stripped, ["? -:0"]);
    run(&scratch, "objcopy --add-gnu-debuglink=app.debug app");
    let linked = stacks(&Recording::open(&scratch).unwrap().processes[0]);
    has(&linked, "outer app.c:8 / inner app.c:3 inlined");
}

#[test]
fn a_module_that_changed_gives_no_names() {
    let scratch = Scratch::new("changed");
    let (app, mut id, addresses) = compile(&scratch);
    id[0] ^= 1;
    record(&scratch, &app, &id, addresses);
    let process = &Recording::open(&scratch).unwrap().processes[0];
    assert!(process.tables.frames.iter().all(|frame| frame.function.is_none()));
    assert!(
        process.completeness.notes[0].contains("its build id is "),
        "{:?}",
        process.completeness.notes
    );
    assert!(process.completeness.notes[0].ends_with("its frames have no names"));
}

#[test]
fn a_module_without_a_build_id_is_trusted_if_it_is_older() {
    let scratch = Scratch::new("no-id");
    let (app, _, addresses) = compile(&scratch);
    run(&scratch, "cc -g -O2 -Wl,--build-id=none -o app app.c");
    record(&scratch, &app, &[], addresses);
    let notes = |p: &Process| p.completeness.notes.clone();
    let process = &Recording::open(&scratch).unwrap().processes[0];
    assert!(
        notes(process)[0].contains("the file changed after the recording"),
        "{:?}",
        notes(process)
    );
    run(&scratch, "touch -d '1970-01-01 00:00:00 UTC' app");
    let process = &Recording::open(&scratch).unwrap().processes[0];
    assert_eq!(notes(process), [""; 0]);
    assert!(process.tables.frames.iter().any(|f| f.function.as_deref() == Some("outer")));
}
