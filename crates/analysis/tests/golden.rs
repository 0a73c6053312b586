//! Recordings made by earlier versions of the recorder, sealed later if they are older than the
//! current version: they must remain readable, with the numbers stated in `golden/program.c`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use heaptide_analysis::model::{End, Measures, Process, Recording, Sum};
use heaptide_analysis::trace::Operation;
use heaptide_format::{FileHeader, MAGIC, VERSION};
use zerocopy::FromBytes;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Returns the version in a packed profile.
fn version(recording: &Path) -> u32 {
    let entries = std::fs::read_dir(recording).unwrap().map(|entry| entry.unwrap().path());
    let mut profiles = entries.filter(|path| path.extension().is_some_and(|e| e == "profile"));
    let packed = File::open(profiles.next().unwrap()).unwrap();
    let mut bytes = [0; size_of::<FileHeader>()];
    zstd::Decoder::new(packed).unwrap().read_exact(&mut bytes).unwrap();
    let header = FileHeader::read_from_bytes(&bytes).unwrap();
    assert_eq!(header.magic, MAGIC);
    header.version
}

/// Returns the only process of a recording, after checking that its sums add up.
fn process(name: &str) -> Process {
    let mut recording = Recording::open(&path(name)).unwrap();
    assert_eq!((recording.sealed, recording.processes.len()), (true, 1), "{name}");
    assert_eq!(recording.damaged, [], "{name}");
    let process = recording.processes.remove(0);
    assert_eq!(
        (process.lifetime.end, &*process.completeness.losses, &*process.completeness.notes),
        (End::Exited(0), &[][..], &[][..])
    );
    assert_eq!(Sum::over(&process.tables.sites), Measures { peak_bytes: 0, ..process.totals });
    process
}

/// Returns the sum over sites whose stack contains this function. A labelled block counts where it
/// was allocated.
fn of_function(process: &Process, function: &str) -> Measures {
    let mut sum = Measures::default();
    for site in &process.tables.sites {
        let mut path = process.path_of(site.stack).into_iter();
        if path.any(|frame| process.label(frame) == function) {
            sum.add(&site.measures);
            sum.allocations -= site.moved.blocks;
            sum.frees -= site.moved.blocks;
            sum.requested_bytes -= site.moved.requested_bytes;
            sum.usable_bytes -= site.moved.usable_bytes;
            sum.freed_bytes -= site.moved.usable_bytes;
        }
    }
    sum
}

/// Checks the numbers stated in the program's comment; usable sizes are those of glibc.
fn check_program(process: &Process) {
    let kept = Measures {
        allocations: 12,
        frees: 3,
        cross_thread_frees: 3,
        requested_bytes: 5 * 64 + 7 * 100,
        usable_bytes: 5 * 72 + 7 * 104,
        freed_bytes: 3 * 72,
        live_blocks: 9,
        live_bytes: 2 * 72 + 7 * 104,
        at_peak_blocks: 9, // within the error bound of threads
        at_peak_bytes: 2 * 72 + 7 * 104,
        largest_bytes: 100,
        ..Measures::default()
    };
    assert_eq!(of_function(process, "kept"), kept);
    let freed = of_function(process, "freed");
    assert_eq!((freed.allocations, freed.frees, freed.temporary), (10, 10, 10));
    assert_eq!((freed.requested_bytes, freed.live_bytes), (3330, 0));
    let lanes: Vec<_> = process.tables.lanes.iter().map(|lane| &*lane.name).collect();
    assert_eq!(lanes, ["program", "worker"]);
    let frees: Vec<_> = process.tables.lanes.iter().map(|lane| lane.measures.frees_here).collect();
    assert_eq!(frees, [10, 3]);
}

#[test]
fn version_1_is_read() {
    assert_eq!(version(&path("version-1")), 1);
    let process = process("version-1");
    check_program(&process);
    assert_eq!(
        (process.tables.scopes.len(), process.tables.labels.len(), process.time.windows.len()),
        (1, 0, 0)
    );
}

/// Checks the annotations of the program.
fn check_annotations(process: &Process) {
    let scope = process.tables.scopes.iter().position(|scope| scope.name() == "load").unwrap();
    let in_scope = process.tables.sites.iter().filter(|site| site.scope.0 as usize == scope);
    let allocations: u64 = in_scope.map(|site| site.measures.allocations).sum();
    assert_eq!((process.tables.scopes[scope].entered, allocations), (1, 10));
    let [label] = &*process.tables.labels else { panic!("{:?}", process.tables.labels) };
    let labelled = process.tables.sites.iter().find(|site| site.label.is_some()).unwrap();
    assert_eq!((&*label.name, labelled.measures.live_bytes), ("label", 72));
    let [window] = &*process.time.windows else { panic!("{:?}", process.time.windows) };
    assert_eq!((&*window.name, window.open), ("window", false));
    assert_eq!((window.allocations, window.frees, window.live_bytes), (10, 10, 0));
    let marks: Vec<_> = process.time.marks.iter().map(|mark| &*mark.name).collect();
    assert_eq!(marks, ["mark"]);
}

#[test]
fn version_2_is_read() {
    assert_eq!(version(&path("version-2")), 2);
    let process = process("version-2");
    check_program(&process);
    check_annotations(&process);
}

/// The recorder currently writes this version; a later version adds a recording of its own and does
/// not change this one.
#[test]
fn the_current_version_is_read_with_its_events() {
    assert_eq!(version(&path("current")), VERSION);
    let process = process("current");
    check_program(&process);
    check_annotations(&process);
    let operations: Vec<_> = process.replay().unwrap().map(|event| event.operation).collect();
    let count = |operation| operations.iter().filter(|&&o| o == operation).count() as u64;
    let totals = &process.totals;
    assert_eq!(count(Operation::Allocate), totals.allocations - totals.reallocations);
    assert_eq!(count(Operation::Free), totals.frees - totals.reallocations);
    assert_eq!(count(Operation::Relabel), 1);
}
