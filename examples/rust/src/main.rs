//! A worked example: events are read and tracks are found in them, and the recording knows which
//! part of that each block belongs to.
//!
//! ```text
//! cargo build --release -p heaptide-example
//! heaptide run -o tracks.heaptide -- target/release/heaptide-example
//! heaptide report --by scope tracks.heaptide
//! heaptide tree --scopes tracks.heaptide
//! ```
//!
//! In each of 20 events there are 500 hits, in one block of 12 000 bytes, and 50 tracks of ten
//! points: a list of 1200 bytes and 50 blocks of 160. The best track of each event is kept, which
//! is what the report shows as live in `event=…/tracks` at the end. Without the recorder the
//! program does the same, and prints no figures.

use heaptide::{Window, carried, label_dimensions, mark, measure, scope};
use std::thread;

/// What the detector saw at a place.
struct Hit {
    x: f64,
    y: f64,
    charge: f64,
}

/// Points of a track: where hits are near each other.
type Track = Vec<(f64, f64)>;

const EVENTS: u64 = 20;
const HITS: usize = 500;
const TRACKS: usize = 50;
const POINTS: usize = 10;
/// Rows and columns of the calibration: 100 x 100 numbers, 80 000 bytes.
const CALIBRATION: [usize; 2] = [100, 100];

fn calibrate() -> Vec<f64> {
    let _scope = scope!("calibration");
    let factors = vec![1.25; CALIBRATION[0] * CALIBRATION[1]];
    // Its block has a name of its own in the report.
    label_dimensions("factors", &factors, &CALIBRATION);
    factors
}

/// Numbers that look as if they were measured, the same in every run.
fn measured(seed: u64) -> f64 {
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    (mixed % 1000) as f64 / 10.0
}

fn read(event: u64, factors: &[f64]) -> Vec<Hit> {
    let _scope = scope!("read");
    let mut hits = Vec::with_capacity(HITS);
    hits.extend((0..HITS).map(|number| {
        let seed = event * HITS as u64 + number as u64;
        let charge = measured(seed + 2) * factors[number];
        Hit { x: measured(seed), y: measured(seed + 1), charge }
    }));
    hits
}

fn find_tracks(hits: &[Hit]) -> Vec<Track> {
    let _scope = scope!("tracks");
    let mut tracks = Vec::with_capacity(TRACKS);
    for start in 0..TRACKS {
        let mut track = Vec::with_capacity(POINTS);
        let along = hits.iter().skip(start).step_by(TRACKS);
        track.extend(along.take(POINTS).map(|hit| (hit.x, hit.y)));
        tracks.push(track);
    }
    tracks
}

/// The track whose first hit has the most charge.
fn best(mut tracks: Vec<Track>, hits: &[Hit]) -> Track {
    let charges = hits[..TRACKS].iter().map(|hit| hit.charge).enumerate();
    let best = charges.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(track, _)| track);
    tracks.swap_remove(best)
}

/// Four threads, each with a histogram of 8000 bytes: theirs is the scope they were started in.
fn histograms(kept: &[Track]) -> f64 {
    let _scope = scope!("histograms");
    thread::scope(|threads| {
        let fill = |part: usize| {
            move || {
                let mut bins = vec![0.0; 1000];
                for (x, y) in kept.iter().skip(part).step_by(4).flatten() {
                    bins[(x * 10.0) as usize % 1000] += y;
                }
                bins.iter().sum::<f64>()
            }
        };
        let started = [0, 1, 2, 3].map(|part| threads.spawn(carried(fill(part))));
        started.map(|thread| thread.join().unwrap_or(0.0)).iter().sum()
    })
}

fn main() {
    let factors = calibrate();
    let mut kept = Vec::with_capacity(EVENTS as usize);
    let mut first = None;
    let window = Window::begin("event loop");
    for event in 0..EVENTS {
        let _scope = scope!("event", event);
        let (track, figures) = measure(|| {
            let hits = read(event, &factors);
            best(find_tracks(&hits), &hits)
        });
        kept.push(track);
        first.get_or_insert(figures);
    }
    if let (Some(all), Some(first)) = (window.end(), first) {
        let (blocks, bytes) = (first.allocations, first.requested_bytes);
        println!("an event takes {blocks} blocks, {bytes} bytes");
        println!("{} blocks of the event loop are kept", all.live_blocks);
    }
    mark("events done");
    println!("sum of all histograms: {:.1}", histograms(&kept));
}
