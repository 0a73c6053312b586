//! A worked example: events are read and tracks are found in them, and the recording attributes
//! each block to a phase.
//!
//! ```text
//! cargo build --release -p heaptide-example
//! heaptide run -o tracks.heaptide -- target/release/heaptide-example
//! heaptide report --by scope tracks.heaptide
//! heaptide tree --scopes tracks.heaptide
//! ```
//!
//! Each of 20 events has 500 hits, in one block of 12 000 bytes, and 50 tracks of ten points: a
//! list of 1200 bytes and 50 blocks of 160 bytes. The best track of each event is kept; the report
//! shows these as live in `event=…/tracks`. Without the recorder the program does the same, and
//! prints no counters.

use heaptide::{Window, carried, label_dimensions, mark, measure, scope};
use std::thread;

/// A signal of the detector at a position.
struct Hit {
    x: f64,
    y: f64,
    charge: f64,
}

/// The points of a track: positions of hits near each other.
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
    // A label gives the block a name in the report.
    label_dimensions("factors", &factors, &CALIBRATION);
    factors
}

/// Generates pseudo-random measurements, the same in every run.
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

/// Returns the track whose first hit has the largest charge.
fn best(mut tracks: Vec<Track>, hits: &[Hit]) -> Track {
    let charges = hits[..TRACKS].iter().map(|hit| hit.charge).enumerate();
    let best = charges.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(track, _)| track);
    tracks.swap_remove(best)
}

/// Fills histograms of 8000 bytes on four threads, in the scope of the thread that started them.
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
