//! The workloads of the programs with an embedded recorder. The known numbers are in
//! `crates/cli/tests/record/embedded.rs`; the programs themselves check results of the interface.

use heaptide::{Context, Monitor, in_context, label, measure, recording, register, resolve, scope};
use std::alloc::{Layout, alloc};
use std::hint::black_box;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

// SAFETY: declared like in the C library.
unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
}

/// Runs the workload that the first argument names.
pub fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("work") => work(),
        Some("tell") => tell(),
        Some("threads") => threads(),
        Some("fork") => forks(),
        Some("wait") => wait(),
        Some("pairs") => pairs(),
        other => panic!("{other:?} is not known"),
    }
}

fn block(bytes: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(bytes))
}

#[inline(never)]
fn keep_ten() {
    for _ in 0..10 {
        std::mem::forget(block(1000));
    }
    black_box(());
}

#[inline(never)]
fn drop_five() {
    for n in 1..=5 {
        drop(block(n));
    }
    black_box(());
}

#[inline(never)]
fn cleared() {
    drop(black_box(vec![0u64; 25]));
    black_box(());
}

/// 100 bytes become 1000 and 10 000.
#[inline(never)]
fn grow() {
    let mut text = block(100);
    text.extend([1; 100]);
    for bytes in [1000, 10_000] {
        text.reserve_exact(bytes - text.len());
        assert_eq!((text.capacity(), &text[..100]), (bytes, &[1; 100][..]));
    }
}

#[inline(never)]
fn aligned() {
    let layout = Layout::from_size_align(3, 4096).expect("a layout");
    // SAFETY: the size of the layout is not 0.
    let block = black_box(unsafe { alloc(layout) });
    assert_eq!(block as usize % 4096, 0);
}

#[inline(never)]
fn fails() {
    let mut list = Vec::<u8>::new();
    assert!(black_box(&mut list).try_reserve_exact(isize::MAX as usize - 1).is_err());
}

/// Small blocks, as close as the allocator places them.
#[inline(never)]
fn crowd() {
    let blocks: [Box<u8>; 100] = std::array::from_fn(|n| black_box(Box::new(n as u8)));
    assert!(blocks.iter().enumerate().all(|(n, block)| **block == n as u8));
}

fn work() {
    keep_ten();
    drop_five();
    cleared();
    grow();
    aligned();
    fails();
    crowd();
    println!("done");
}

/// Returns requested bytes, and frees.
struct Counter {
    allocated: AtomicUsize,
    freed: AtomicUsize,
}

struct Counting(Arc<Counter>);

impl Monitor for Counting {
    fn allocated(&self, _: *mut u8, requested: usize, _: usize) {
        self.0.allocated.fetch_add(requested, Relaxed);
        // Causes no call of the monitor.
        drop(block(10_000));
    }

    fn freed(&self, _: *mut u8, _: usize) {
        self.0.freed.fetch_add(1, Relaxed);
    }
}

/// Scopes, labels, measurements and monitors.
fn tell() {
    // The peak, which still rises after bytes have moved from one site to another.
    let big = block(100_000);
    label("big", &big);
    drop(black_box([block(10), big]));
    let kept = {
        let _scope = scope!("load");
        (0..7).map(|_| block(300)).collect::<Vec<_>>()
    };
    {
        let _scope = scope!("use");
        drop(kept);
    }
    let table = black_box(vec![0u64; 500]);
    // In counters mode there are no labels.
    let labelled = label("table", &table);
    let found = resolve(&raw const table[499]);
    assert_eq!(found.is_some(), labelled);
    if let Some(found) = found {
        assert!(found.bytes >= 4000 && found.index == 499);
    }
    std::mem::forget(table);
    let (_, figures) = measure(|| drop(block(123)));
    if recording() {
        assert_eq!((figures.allocations, figures.frees, figures.largest_bytes), (1, 1, 123));
    }
    let counter = Arc::new(Counter { allocated: AtomicUsize::new(0), freed: AtomicUsize::new(0) });
    let registration = register("counting", Box::new(Counting(counter.clone())));
    assert_eq!(registration.is_ok(), recording());
    std::mem::forget(block(5));
    drop(block(70));
    drop(registration);
    drop(block(900));
    let counted = (counter.allocated.load(Relaxed), counter.freed.load(Relaxed));
    assert_eq!(counted, if recording() { (75, 1) } else { (0, 0) });
    println!("{}", if recording() { "recorded" } else { "not recorded" });
}

#[inline(never)]
fn in_thread(n: usize) {
    let _scope = scope!("worker", n as i64);
    for _ in 0..50 {
        drop(block(64));
    }
    std::mem::forget(block(2000 + n));
}

fn threads() {
    let context = {
        let _scope = scope!("pool");
        Context::current()
    };
    let start = |n| {
        let work = move || in_context(context, || in_thread(n));
        thread::Builder::new().name(format!("worker-{n}")).spawn(work).expect("a thread")
    };
    let all: Vec<_> = (0..8).map(start).collect();
    all.into_iter().for_each(|thread| thread.join().expect("it ends"));
    println!("done");
}

#[inline(never)]
fn in_child() {
    for _ in 0..3 {
        std::mem::forget(block(777));
    }
    black_box(());
}

/// The child has a separate recording, which includes its frees of inherited blocks.
fn forks() {
    let inherited = block(5000);
    // SAFETY: there is only this thread.
    match unsafe { fork() } {
        0 => {
            in_child();
            drop(inherited);
        }
        child => {
            let mut status = -1;
            // SAFETY: it is a child of this process, and `status` is valid.
            let ended = unsafe { waitpid(child, &mut status, 0) };
            assert_eq!((ended, status), (child, 0));
            std::mem::forget(inherited);
            println!("done");
        }
    }
}

/// Keeps some blocks, reports that, and continues until it is killed.
fn wait() {
    for _ in 0..10 {
        keep_ten();
    }
    println!("ready");
    let mut end = [0];
    let _ = std::io::stdin().read(&mut end);
}

/// Makes many pairs of malloc and free and prints the time per pair, to examine the recorder's
/// cost.
fn pairs() {
    const PAIRS: u32 = 10_000_000;
    let start = std::time::Instant::now();
    for _ in 0..PAIRS {
        drop(block(64));
    }
    println!("{:.1} ns a pair", start.elapsed().as_nanos() as f64 / f64::from(PAIRS));
}
