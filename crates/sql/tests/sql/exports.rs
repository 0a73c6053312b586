//! Exports into a dataset that others read, write or replace at the same time, and killed exports:
//! a run is there as a whole or not at all.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{files, heaptide, output, recordings, scratch};

/// The time limit for an event.
const DEADLINE: Duration = Duration::from_secs(120);

/// Rows of tables by run, in one statement; the tables have to be of the same moment.
const SHAPE: &str = "SELECT p.run AS run, p.n AS processes, s.n AS sites, t.n AS timeline, m.n AS modules \
    FROM (SELECT run, count(*) AS n FROM processes GROUP BY run) p \
    FULL JOIN (SELECT run, count(*) AS n FROM sites GROUP BY run) s ON s.run = p.run \
    FULL JOIN (SELECT run, count(*) AS n FROM timeline GROUP BY run) t ON t.run = p.run \
    FULL JOIN (SELECT run, count(*) AS n FROM modules GROUP BY run) m ON m.run = p.run ORDER BY 1";

fn export(dataset: &Path, recording: &Path) -> Command {
    let mut command = heaptide();
    command.args(["export", "--format", "parquet", "-o"]).arg(dataset).arg(recording);
    command
}

/// Returns a line for each run, without its name.
fn shapes(dataset: &Path) -> Vec<String> {
    let mut ask = heaptide();
    let text = output(ask.args(["sql", "--format", "csv", SHAPE, "--dataset"]).arg(dataset));
    let lines = text.lines().skip(1).map(|line| line.split_once(',').expect("a name").1.to_owned());
    lines.collect()
}

/// Copies a recording under other names.
fn copies(recording: &Path, place: &Path, count: usize) -> Vec<PathBuf> {
    let copy = |number: usize| {
        let to = place.join(format!("copy{number}.heaptide"));
        output(Command::new("cp").arg("-r").arg(recording).arg(&to));
        to
    };
    (0..count).map(copy).collect()
}

#[test]
fn a_reader_during_exports_sees_whole_runs_only() {
    let place = scratch("read meanwhile");
    let [steps, _] = recordings();
    let dataset = place.join("heap");
    output(&mut export(&dataset, steps));
    let one = shapes(&dataset);
    assert!(one.len() == 1 && !one[0].contains(",,") && !one[0].ends_with(','), "{one:?}");
    let copies = copies(steps, &place, 5);
    let (read, partial) = thread::scope(|scope| {
        let exports = scope.spawn(|| {
            for copy in &copies {
                output(&mut export(&dataset, copy));
                output(export(&dataset, copy).arg("--force"));
            }
        });
        let (mut read, mut partial) = (0, Vec::new());
        while !exports.is_finished() {
            let now = shapes(&dataset);
            partial.extend(now.into_iter().filter(|shape| *shape != one[0]));
            read += 1;
        }
        exports.join().expect("exports");
        (read, partial)
    });
    assert!(read > 1 && partial.is_empty(), "{read} times read: {one:?}, but: {partial:?}");
    assert_eq!(shapes(&dataset), vec![one[0].clone(); 6]);
    assert!(!dataset.join(".exports").exists());
}

#[test]
fn a_replaced_run_stays_readable() {
    let place = scratch("replaced meanwhile");
    let [steps, _] = recordings();
    let dataset = place.join("heap");
    output(&mut export(&dataset, steps));
    let one = shapes(&dataset);
    let read = thread::scope(|scope| {
        let exports = scope.spawn(|| {
            for _ in 0..8 {
                output(export(&dataset, steps).arg("--force"));
            }
        });
        let mut read = 0;
        while !exports.is_finished() {
            assert_eq!(shapes(&dataset), one);
            read += 1;
        }
        exports.join().expect("exports");
        read
    });
    assert!(read > 1, "{read}");
    // Old files are removed.
    let of_sites = files(&dataset.join("sites"));
    assert_eq!(of_sites.len(), 2, "{of_sites:?}");
}

/// Waits until a table of an unfinished export exists; returns false if the export ends before.
fn has_begun(export: &mut Child, dataset: &Path, table: &str) -> bool {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let unfinished = fs::read_dir(dataset.join(".exports")).into_iter().flatten().flatten();
        if unfinished.into_iter().any(|of| of.path().join(table).is_dir()) {
            return true;
        }
        if export.try_wait().expect("a child").is_some() {
            return false;
        }
        assert!(Instant::now() < deadline, "no {table}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_killed_export_leaves_no_part_of_its_run() {
    let place = scratch("killed export");
    let [steps, compiler] = recordings();
    let dataset = place.join("heap");
    output(&mut export(&dataset, compiler));
    let mut before = shapes(&dataset);
    let tables =
        ["sites", "events", "lifetimes", "stacks", "frames", "lanes", "timeline", "modules"];
    let mut killed = 0;
    for (number, table) in tables.into_iter().enumerate() {
        // The first half adds a run, the second half replaces one.
        let recording = if number < 4 { steps } else { compiler };
        let mut command = export(&dataset, recording);
        command.arg("--force").stderr(Stdio::null());
        let mut running = command.spawn().expect("heaptide");
        let has_begun = has_begun(&mut running, &dataset, table);
        running.kill().expect("to kill it, if it has not ended");
        let has_ended = running.wait().expect("a child").success();
        killed += usize::from(has_begun && !has_ended);
        if has_ended {
            before = shapes(&dataset);
        }
        assert_eq!(shapes(&dataset), before, "{table}");
    }
    assert!(killed > 4, "{killed}");
    // The next export removes what is left.
    output(export(&dataset, steps).arg("--force"));
    assert!(!dataset.join(".exports").exists());
    assert_eq!(shapes(&dataset).len(), 2);
}

#[test]
fn exports_at_the_same_time_do_not_mix() {
    let place = scratch("at the same time");
    let [steps, compiler] = recordings();
    let dataset = place.join("heap");
    let together = |commands: Vec<Command>| {
        let spawn = |mut command: Command| command.stderr(Stdio::null()).spawn().expect("heaptide");
        let all: Vec<Child> = commands.into_iter().map(spawn).collect();
        let wait = |mut child: Child| child.wait().expect("a child").code();
        let mut statuses: Vec<_> = all.into_iter().map(wait).collect();
        statuses.sort();
        statuses
    };
    let two = [steps, compiler].map(|recording| export(&dataset, recording));
    assert_eq!(together(two.into()), [Some(0), Some(0)]);
    let both = shapes(&dataset);
    assert_eq!(both.len(), 2);
    // The same run: one export adds it, the others fail.
    let again = place.join("again");
    let same = [(); 4].map(|()| export(&again, steps));
    assert_eq!(together(same.into()), [Some(0), Some(2), Some(2), Some(2)]);
    // Replacements follow one another.
    let forced = [(); 4].map(|()| {
        let mut command = export(&again, steps);
        command.arg("--force");
        command
    });
    assert_eq!(together(forced.into()), [Some(0); 4]);
    assert!(both.contains(&shapes(&again)[0]) && shapes(&again).len() == 1);
    assert_eq!(files(&again.join("sites")).len(), 2);
    assert!(!again.join(".exports").exists());
}
