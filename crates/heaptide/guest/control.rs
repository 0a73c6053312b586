//! Control: allocations are not recorded while recording is off, and earlier ones stay recorded.

use crate::block;
use heaptide::{
    Threshold, flush, loaded, pause, pause_process, process_active, process_memory, recording,
    reset, start, thread_active, threshold, totals, turn_off, turn_on, write, write_to,
};
use std::fs::{self, File};
use std::thread;

/// Returns how many recorded allocations of the process the closure adds.
fn seen(work: impl FnOnce()) -> u64 {
    let before = totals().allocations;
    work();
    totals().allocations - before
}

pub fn run() {
    assert_eq!(thread_active() && process_active(), recording());
    assert!(loaded() || !recording());
    let each = u64::from(recording());
    assert_eq!(seen(|| drop(block(100))), each);
    paused(each);
    let early = block(100);
    turn_off();
    assert!(!process_active());
    let live = totals().live_blocks;
    assert_eq!(seen(|| drop(block(100))), 0);
    drop(early);
    assert_eq!(totals().live_blocks, live - each as i64);
    turn_on();
    assert_eq!(seen(|| drop(block(100))), each);
    threshold(Threshold::From(4096));
    drop(block(100));
    drop(block(5000));
    threshold(Threshold::All);
    flush();
    drop(block(1 << 20));
    written();
    assert_eq!(reset(), recording());
    assert!(totals().requested_bytes < 1 << 20);
    drop(block(12_345));
}

/// The program writes reports itself.
fn written() {
    assert_eq!(start(), recording());
    assert_eq!(process_memory().virtual_bytes > 0, recording());
    let directory = std::env::temp_dir().join(format!("heaptide-guest-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let [named, open] = ["named", "open"].map(|name| directory.join(name));
    assert_eq!(write(&named, "text --by thread"), recording());
    assert_eq!(named.exists(), recording());
    let file = File::create(&open).expect("a file");
    assert_eq!(write_to(&file, "folded --metric requested_bytes"), recording());
    let length = fs::metadata(&open).expect("the file").len();
    assert_eq!(length > 0, recording());
    assert!(!write(directory.join("no").join("report"), "text"));
    fs::remove_dir_all(directory).expect("the directory is removed");
}

fn paused(each: u64) {
    let inside = seen(|| {
        let _outer = pause();
        {
            let _inner = pause();
            drop(block(100));
        }
        assert!(!thread_active());
        drop(block(100));
    });
    assert_eq!(inside, 0);
    assert_eq!(thread_active(), recording());
    // Other threads are recorded while this one is paused.
    let other = {
        let _paused = pause();
        thread::spawn(|| seen(|| drop(block(100)))).join().unwrap()
    };
    assert_eq!(other, each);
    let _paused = pause_process();
    assert!(!process_active());
    assert_eq!(thread::spawn(|| seen(|| drop(block(100)))).join().unwrap(), 0);
}
