//! Finds processes that write a profile: those that have more of it mapped than its first page.
//! Also checks how far traces of running processes are read.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use heaptide_analysis::model::{End, Process, Recording};
use heaptide_analysis::profile::reader;
use heaptide_analysis::recording::running;
use heaptide_analysis::trace::file::Appender;
use heaptide_fixtures::{ProfileBuilder, Scratch, site};
use heaptide_format::{
    FileHeader, Mode, PAGE, TRACE_FULL, TRACE_MOVED, TRACE_ON, TRACE_WRITING, TraceStart,
};
use heaptide_trace::{Block, Encoder, LONGEST, Record};
use zerocopy::IntoBytes;

fn profile(pid: u32) -> Vec<u8> {
    let mut p = ProfileBuilder::new(Mode::Stacks, pid, 0);
    p.site(0, site(0, 1, 16));
    p.lane(0, "app", |_| {});
    p.finish()
}

/// Maps the file named in its first line of input, and keeps it mapped until its input ends.
const MAPS: &str = "#include <fcntl.h>\n\
    #include <stdio.h>\n\
    #include <sys/mman.h>\n\
    int main(void) {\n\
        char path[4096]; long offset, length;\n\
        if (scanf(\"%4095s %ld %ld\", path, &offset, &length) != 3) return 1;\n\
        int fd = open(path, O_RDWR);\n\
        void *at = mmap(0, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);\n\
        puts(at == MAP_FAILED ? \"failed\" : \"mapped\");\n\
        fflush(stdout);\n\
        while (getchar() != EOF) {}\n\
        return 0;\n\
    }\n";

/// A program that has a part of its profile mapped.
struct Mapping {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Its profile, which is the mapped file.
    profile: PathBuf,
}

impl Mapping {
    /// Minimum size of its profile in bytes.
    const LENGTH: u64 = 8 * PAGE;

    /// Starts the program; `profile_of` returns the profile for a pid.
    fn start(directory: &Path, profile_of: impl FnOnce(u32) -> Vec<u8>) -> Mapping {
        let program = directory.join("maps");
        if !program.exists() {
            fs::write(directory.join("maps.c"), MAPS).unwrap();
            let mut compiler = Command::new("cc");
            compiler.arg("-o").arg(&program).arg(directory.join("maps.c"));
            assert!(compiler.status().unwrap().success());
        }
        let (stdin, stdout) = (Stdio::piped(), Stdio::piped());
        let mut child = Command::new(&program).stdin(stdin).stdout(stdout).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let profile = directory.join(format!("{}-0.profile", child.id()));
        let mut bytes = profile_of(child.id());
        bytes.resize(bytes.len().max(Mapping::LENGTH as usize), 0);
        fs::write(&profile, bytes).unwrap();
        Mapping { child, input, output, profile }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Makes the program map a part of its profile.
    fn map(&mut self, offset: u64, length: u64) {
        let line = format!("{} {offset} {length}\n", self.profile.display());
        self.input.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        assert_eq!(answer, "mapped\n");
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        drop(self.input.take());
        self.child.wait().unwrap();
    }
}

#[test]
fn a_process_that_maps_more_than_the_first_page_writes_the_profile() {
    for (offset, length, writes) in
        [(0, PAGE, false), (0, 2 * PAGE, true), (PAGE, PAGE, true), (2 * PAGE, PAGE, true)]
    {
        let scratch = Scratch::new("running-maps");
        let mut mapping = Mapping::start(&scratch, profile);
        mapping.map(offset, length);
        let end = Recording::open(&scratch).unwrap().processes[0].lifetime.end;
        let expected = if writes { End::Running } else { End::Unknown };
        assert_eq!(end, expected, "{length} bytes from {offset}");
        assert_eq!(running::of_recording(&scratch).unwrap().len(), usize::from(writes));
        let found = running::of_process(mapping.pid()).unwrap();
        assert_eq!(found.map(|found| found.file), writes.then(|| mapping.profile.clone()));
    }
}

/// Returns the contents of an extent of events: one allocation at each of these ticks.
fn events(number: u32, state: u32, ticks: &[u64], site: u32) -> (TraceStart, Vec<u8>) {
    let (first, last) = (ticks[0], ticks[ticks.len() - 1]);
    let start = TraceStart {
        ticks: first,
        time_ns: first * 10,
        last_ticks: last,
        last_time_ns: last * 10,
        state,
        number,
        tid: number,
        ..TraceStart::default()
    };
    let (mut encoder, mut room, mut records) = (Encoder::new(), [0; LONGEST], Vec::new());
    encoder.begin(first);
    for &ticks in ticks {
        let block =
            Block { address: ticks << 8, site, requested: 8, usable: 24, ..Block::default() };
        let length = encoder.record(&mut room, ticks, &Record::Allocated(block));
        records.extend_from_slice(&room[..length]);
    }
    (start, records)
}

/// Returns the ticks of the events of a process.
fn ticks(process: &Process) -> Vec<u64> {
    process.replay().unwrap().map(|event| event.time_ns / 10).collect()
}

/// The trace of a running process ends with the last event that any lane had when the profile was
/// read, even if that was in an extent that had been moved and its lane had no new extent yet.
#[test]
fn a_lane_between_two_extents_has_all_events_that_it_had() {
    let scratch = Scratch::new("running-trace");
    let mut site_of_both = 0;
    let mut mapping = Mapping::start(&scratch, |pid| {
        let mut p = ProfileBuilder::new(Mode::Stacks, pid, 0);
        (p.header.trace, p.extent_pages) = (TRACE_ON, 1);
        site_of_both = p.site(0, site(0, 1, 8));
        p.lane(0, "app", |_| {});
        p.lane(1, "worker", |_| {});
        let (start, records) = events(1, TRACE_WRITING, &[10], site_of_both);
        p.events(0, start, &records);
        let (start, records) = events(2, TRACE_MOVED, &[20, 40, 60], site_of_both);
        p.events(1, start, &records);
        p.finish()
    });
    let mut trace = Appender::of(&mapping.profile).unwrap();
    let (start, records) = events(2, TRACE_FULL, &[20, 40, 60], site_of_both);
    trace.append(1, &[start.as_bytes(), &*records].concat()).unwrap();
    mapping.map(PAGE, PAGE);
    let before = Recording::open(&scratch).unwrap().processes.remove(0);
    assert_eq!(before.lifetime.end, End::Running);
    assert_eq!(ticks(&before), [10, 20, 40, 60]);
}

/// A recorder first extends the file, then updates its header. A reader that read the length before
/// the header reported such a file as truncated and omitted the newest sites.
#[test]
fn profile_that_grows_is_not_truncated() {
    const GROWS: u64 = 2000;
    let scratch = Scratch::new("profile-that-grows");
    let path = scratch.join("app.heaptide");
    let bytes = profile(1);
    fs::write(&path, &bytes).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let grow = thread::spawn(move || {
        for pages in 1..=GROWS {
            let end = bytes.len() as u64 + pages * PAGE;
            file.set_len(end).unwrap();
            file.write_at(&end.to_le_bytes(), offset_of!(FileHeader, file_end) as u64).unwrap();
        }
    });
    let mut reads = 0;
    while !grow.is_finished() {
        let notes = reader::read(&path).unwrap().notes;
        assert!(!notes.iter().any(|note| note.contains("truncated")), "{notes:?} in read {reads}");
        reads += 1;
    }
    grow.join().unwrap();
}
