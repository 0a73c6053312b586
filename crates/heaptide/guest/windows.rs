//! Windows, measurements, marks and snapshots, with counters known to the byte.

use crate::{block, blocks};
use heaptide::{Figures, Window, mark, measure, recording, snapshot};
use std::thread;

pub fn run() {
    measured();
    windows();
    mark("before");
    let kept = blocks(3, 10_000);
    let number = snapshot("with three");
    assert_eq!(number, recording().then_some(1));
    drop(kept);
    mark("after");
    assert_eq!(snapshot("without"), recording().then_some(2));
}

fn measured() {
    let (kept, figures) = measure(|| {
        drop(block(5000));
        block(1000)
    });
    // Usable sizes of glibc: a chunk header takes 8 bytes, and blocks are multiples of 16 bytes
    // apart.
    let expected = Figures {
        allocations: 2,
        frees: 1,
        requested_bytes: 6000,
        usable_bytes: 5000 + 1000,
        freed_bytes: 5000,
        live_blocks: 1,
        live_bytes: 1000,
        peak_bytes: 5000,
        largest_bytes: 5000,
        ..Figures::default()
    };
    assert_eq!(round(figures), if recording() { expected } else { Figures::default() });
    nested(kept);
    let (result, _) = measure(|| thread::spawn(|| drop(block(77_000))).join());
    result.unwrap();
}

/// Rounds usable bytes down to the requested bytes; here the slack is at most 8 bytes.
fn round(figures: Figures) -> Figures {
    Figures {
        usable_bytes: figures.usable_bytes / 1000 * 1000,
        freed_bytes: figures.freed_bytes / 1000 * 1000,
        live_bytes: figures.live_bytes / 1000 * 1000,
        peak_bytes: figures.peak_bytes / 1000 * 1000,
        ..figures
    }
}

fn nested(before: Vec<u8>) {
    let ((inner, outer_only), outer) = measure(|| {
        let ((), inner) = measure(|| drop(before));
        (inner, block(400))
    });
    drop(outer_only);
    if recording() {
        assert_eq!((inner.allocations, inner.frees, inner.live_blocks), (0, 1, -1));
        assert_eq!(inner.peak_bytes, 0);
        assert_eq!((outer.allocations, outer.frees, outer.live_blocks), (1, 1, 0));
        assert_eq!(outer.largest_bytes, 400);
    }
}

fn windows() {
    let outer = Window::begin("outer");
    let kept = block(1 << 20);
    let inner = Window::begin("inner");
    thread::spawn(|| drop(block(2 << 20))).join().unwrap();
    let so_far = inner.figures();
    drop(kept);
    // The windows overlap: the outer one ends first.
    let (outer, inner) = (outer.end(), inner.end());
    let (Some(outer), Some(inner), Some(so_far)) = (outer, inner, so_far) else {
        return assert!(!recording());
    };
    const MIB: i64 = 1 << 20;
    // Starting a thread allocates far less than a MiB in addition.
    assert_eq!(outer.requested_bytes as i64 / MIB, 3);
    assert_eq!(inner.requested_bytes as i64 / MIB, 2);
    assert!((inner.live_bytes + MIB).abs() < MIB / 2);
    assert!(outer.live_bytes.abs() < MIB / 2);
    assert_eq!(so_far.live_bytes.abs() / MIB, 0);
    assert!(outer.peak_bytes as i64 / MIB == 3 && inner.peak_bytes as i64 / MIB == 3);
}
