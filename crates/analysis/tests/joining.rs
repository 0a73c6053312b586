//! Several processes joined: equal entries are merged, sums add up, clocks agree.

use heaptide_analysis::attribution::Owners;
use heaptide_analysis::model::{End, Process, Rank, Recording, Run, StackId, Sum};
use heaptide_analysis::recording::join::Apart;
use heaptide_analysis::recording::origin::{Origin, groups};
use heaptide_analysis::selection::filter::Filter;
use heaptide_analysis::views::aggregate::{Group, GroupBy, Key, group};
use heaptide_analysis::views::timeline::Timeline;
use heaptide_fixtures::{ProfileBuilder, site};
use heaptide_format::{Mark, MarkKind, Mode, Sample};
use zerocopy::FromZeros;

const SECOND: u64 = 1_000_000_000;

/// Returns a process that starts `after_s` seconds after the first, with `blocks` blocks of 64 live
/// bytes in a frame of a library at an address that depends on the pid, and the same number with a
/// label in a scope.
fn process(pid: u32, after_s: u64, blocks: u64) -> Process {
    let mut p = ProfileBuilder::new(Mode::Stacks, pid, 0);
    p.program(&format!("/bin/app{}", pid % 2), &["app"]);
    let at = u64::from(pid) << 24;
    let module = p.module("/lib/libx.so", at, &[7]);
    let outer = p.node(0, module, at + 0x100, 0);
    let inner = p.node(0, module, at + 0x200, outer);
    p.site(0, site(inner, blocks, 64));
    let root = p.scope(0, 0, 0, |_| {});
    let name = p.name("region", "load");
    let scope = p.scope(0, root, name, |scope| scope.entered = 3);
    let label = p.name("label", "grid");
    let key = p.key(0, |key| (key.stack, key.scope, key.label) = (outer, scope, label));
    p.site(0, site(key, blocks, 64));
    p.site(1, site(0, 1, 16));
    p.lane(0, "app", |lane| lane.requested_classes[6] = 2 * blocks);
    p.lane(1, &format!("own{pid}"), |lane| lane.requested_classes[4] = 1);
    p.header.start_realtime_ns = (100 + after_s) * SECOND;
    p.header.end_time_ns = 10 * SECOND;
    p.header.peak_bytes = 128 * blocks + 16;
    p.header.peak_time_ns = 4 * SECOND;
    for (time_s, live_bytes) in [(1, 64), (6, 128)] {
        let mut sample = Sample::new_zeroed();
        (sample.time_ns, sample.live_bytes, sample.peak_bytes) =
            (time_s * SECOND, live_bytes, live_bytes);
        p.sample(sample);
    }
    p.window("phase", |w| (w.begin_time_ns, w.end_time_ns) = (SECOND, 2 * SECOND));
    let mut mark = Mark::new_zeroed();
    (mark.time_ns, mark.kind) = (SECOND, MarkKind::Mark as u32);
    mark.name = p.string("here");
    p.mark(mark);
    Process::from_bytes(&p.finish(), "x.profile".as_ref()).expect("a profile")
}

fn recording(processes: Vec<Process>) -> Recording {
    Recording { path: "a.heaptide".into(), processes, ..Recording::default() }
}

fn joined(processes: Vec<Process>, apart: Apart) -> Process {
    let mut recording = recording(processes);
    recording.join(apart);
    assert_eq!(recording.processes.len(), 1);
    recording.processes.pop().expect("one")
}

#[test]
fn what_is_the_same_is_one_and_sums_are_sums() {
    let p = joined(vec![process(11, 0, 5), process(12, 3, 7), process(13, 3, 9)], Apart::Nowhere);
    assert_eq!((p.identity.images, p.identity.pid, &*p.who()), (3, 0, "3 process images"));
    assert_eq!((p.tables.modules.len(), p.tables.frames.len(), p.tables.stacks.len()), (1, 2, 3));
    assert_eq!((p.tables.scopes.len(), p.tables.labels.len(), p.tables.lanes.len()), (2, 1, 4));
    assert_eq!(
        (p.tables.scopes[1].entered, p.tables.entered.len(), p.tables.entered[0].times),
        (9, 1, 9)
    );
    assert_eq!(p.tables.sites.len(), 2 + 3);
    assert_eq!(p.tables.sites[0].measures.live_bytes, 64 * 21);
    assert_eq!(p.totals.live_bytes, 64 * 42 + 3 * 16);
    assert_eq!(p.totals.peak_bytes, 128 * 21 + 3 * 16);
    let sum = Sum::over(&p.tables.sites);
    assert_eq!(sum, heaptide_analysis::model::Measures { peak_bytes: 0, ..p.totals });
    assert_eq!((p.tables.lanes[0].threads, p.tables.lanes[0].measures.live_blocks), (3, 42));
    let classes: Vec<_> = p.tables.histogram.iter().map(|c| (c.size_min, c.requested)).collect();
    assert_eq!(classes, [(8, 3), (32, 42)]);
    assert_eq!((&*p.identity.program, &*p.identity.command), ("", &["app".to_owned()][..]));
    assert_eq!(p.lifetime.end, End::Unknown);
}

#[test]
fn one_process_stays_as_it_is_unless_it_is_to_have_a_place() {
    let one = joined(vec![process(11, 0, 5)], Apart::Nowhere);
    assert_eq!((one.identity.pid, one.identity.images, one.time.samples.len()), (11, 1, 2));
    let placed = joined(vec![process(11, 0, 5)], Apart::InStacks(Origin::Host));
    assert_eq!(
        (placed.identity.pid, placed.tables.stacks.len(), placed.time.samples.len()),
        (11, 4, 2)
    );
    let mut nothing = recording(Vec::new());
    nothing.join(Apart::InStacks(Origin::Rank));
    assert!(nothing.processes.is_empty());
}

#[test]
fn places_are_the_outermost_frames_or_scopes() {
    let processes = || {
        let mut processes = vec![process(11, 0, 5), process(12, 3, 7), process(13, 3, 9)];
        processes[0].identity.rank = Some(Rank { number: 10, of: 11 });
        processes[1].identity.rank = Some(Rank { number: 9, of: 11 });
        processes
    };
    let p = joined(processes(), Apart::InStacks(Origin::Rank));
    let outermost = |stack| p.label(*p.path_of(stack).first().expect("a place")).into_owned();
    let mut places: Vec<_> = p.tables.sites.iter().map(|site| outermost(site.stack)).collect();
    places.sort();
    assert_eq!(places.len(), 9);
    places.dedup();
    assert_eq!(places, ["[no rank]", "[rank 10]", "[rank 9]"]);
    let groups_of = groups(&processes(), Origin::Rank);
    let names: Vec<_> = groups_of.iter().map(|g| (&*g.name, g.rank)).collect();
    assert_eq!(names, [("rank 9", Some(9)), ("rank 10", Some(10)), ("no rank", None)]);
    let p = joined(processes(), Apart::InScopes(Origin::Process));
    let scopes = group(&p, &Owners::of(&p), GroupBy::Scope);
    let live = |name: &str| {
        let named = |id: usize| &*p.tables.scopes[id].value == name;
        let of = |g: &&Group| matches!(g.key, Key::Scope(id) if named(id.0 as usize));
        scopes.iter().find(of).map(|g| g.inclusive.live_bytes)
    };
    assert_eq!(live("pid 12 app"), Some(128 * 7 + 16));
    assert!(p.tables.sites.iter().all(|site| site.scope.0 != 0));
    assert_eq!(p.tables.stacks[1].parent, StackId(0));
}

#[test]
fn equal_pids_and_ranks_of_several_runs_have_names_of_their_own() {
    let of_run = |number: u32, rank: u32| {
        let mut process = process(11, 0, 5);
        process.identity.run = Some(Run { number, recording: format!("{number}.heaptide") });
        process.identity.rank = Some(Rank { number: rank, of: 2 });
        process
    };
    let names = |processes: &[Process], by| -> Vec<String> {
        groups(processes, by).iter().map(|group| group.name.to_string()).collect()
    };
    let two_jobs = [of_run(1, 0), of_run(1, 1), of_run(2, 0), of_run(2, 1)];
    let ranks = names(&two_jobs, Origin::Rank);
    assert_eq!(ranks, ["run 1 rank 0", "run 2 rank 0", "run 1 rank 1", "run 2 rank 1"]);
    assert_eq!(names(&two_jobs, Origin::Process)[2], "run 2 pid 11 app");
    assert_eq!(names(&two_jobs, Origin::Host), ["host host"]);
    let a_recording_a_rank = [of_run(1, 0), of_run(2, 1)];
    assert_eq!(names(&a_recording_a_rank, Origin::Rank), ["rank 0", "rank 1"]);
    let mut jobs = two_jobs;
    (jobs[2].identity.job, jobs[3].identity.job) = ("77".to_owned(), "77".to_owned());
    jobs[0].identity.job = "76".to_owned();
    jobs[1].identity.job = "76".to_owned();
    let ranks = names(&jobs, Origin::Rank);
    assert_eq!(ranks, ["job 76 rank 0", "job 77 rank 0", "job 76 rank 1", "job 77 rank 1"]);
}

#[test]
fn times_are_on_one_clock() {
    let p = joined(vec![process(11, 0, 5), process(12, 3, 7)], Apart::Nowhere);
    assert_eq!((p.lifetime.start_realtime_ns, p.lifetime.duration_ns), (100 * SECOND, 13 * SECOND));
    let live: Vec<_> = p.time.samples.iter().map(|s| (s.time_ns / SECOND, s.live_bytes)).collect();
    let (first, second) = (128 * 5 + 16, 128 * 7 + 16);
    // The first is alone at 1 s and has its peak at 4 s, when the second begins; at 10 s it has
    // ended, and its live bytes are gone.
    let expected = [
        (1, 64),
        (4, first + 64),
        (4, 128 + 64),
        (6, 128 + 64),
        (7, 128 + second),
        (7, 128 + 128),
        (9, 128 + 128),
        (10, 128),
        (13, second),
    ];
    assert_eq!(live, expected);
    assert_eq!(p.time.samples.last().map(|s| s.peak_bytes), Some(p.totals.peak_bytes));
    assert_eq!(p.peak_time_ns, 7 * SECOND);
    let highest = p.time.highest.expect("several processes");
    assert_eq!((highest.time_ns, highest.live_bytes), (7 * SECOND, 128 + second));
    let held: Vec<_> = highest.holders.iter().map(|(name, held)| (&**name, *held)).collect();
    assert_eq!(held, [("pid 12 app", second), ("pid 11 app", 128)]);
    let windows: Vec<_> =
        p.time.windows.iter().map(|w| (&*w.name, w.begin_time_ns / SECOND)).collect();
    assert_eq!(windows, [("phase [pid 11 app]", 1), ("phase [pid 12 app]", 4)]);
    let marks: Vec<_> = p.time.marks.iter().map(|m| (&*m.name, m.time_ns / SECOND)).collect();
    assert_eq!(marks, [("here [pid 11 app]", 1), ("here [pid 12 app]", 4)]);
}

/// The samples have all blocks, the totals those without a label: neither is the peak at one time
/// known, nor is the timeline of totals.
#[test]
fn timelines_stay_whole_when_blocks_are_excluded() {
    let whole = joined(vec![process(11, 0, 5), process(12, 3, 7)], Apart::Nowhere);
    let mut part = vec![process(11, 0, 5), process(12, 3, 7)];
    let ignore = vec!["label:grid".parse().expect("a pattern")];
    let filter = Filter { ignore, ..Filter::default() };
    part.iter_mut().for_each(|process| filter.apply(process, "--ignore label:grid"));
    assert!(part.iter().all(|process| !process.has_timeline_of_totals()));
    let live = |process: &Process| {
        let live = Timeline::of(process).live;
        (live.top(), [3, 7, 10].map(|time_s| live.at(time_s * SECOND)))
    };
    assert_eq!(live(&part[0]), live(&process(11, 0, 5)));
    let part = joined(part, Apart::Nowhere);
    assert!(part.totals.peak_bytes < whole.totals.peak_bytes);
    assert_eq!(live(&part), live(&whole));
    assert_eq!(part.time.highest, None);
    let said = part.completeness.part.expect("joined");
    assert_eq!(said, "the peak is at most this sum of each image's own");
}

#[test]
fn hundreds_of_processes_join_to_a_timeline_that_fits() {
    let processes: Vec<_> = (0..300).map(|n| process(100 + n, n.into(), 5)).collect();
    let p = joined(processes, Apart::InStacks(Origin::Process));
    assert_eq!(p.totals.live_blocks, 300 * 11);
    assert_eq!(
        (p.tables.stacks.len(), p.tables.sites.len(), p.time.windows.len()),
        (1 + 300 * 3, 900, 300)
    );
    assert!(p.time.samples.is_sorted_by_key(|s| s.time_ns));
    assert!(p.identity.command == ["app"], "{:?}", p.identity.command);
}
