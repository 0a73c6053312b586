//! Monitors are called exactly once per operation, even if they allocate themselves.

use crate::block;
use heaptide::{Monitor, NotRegistered, Registration, loaded, recording, register};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

/// The calls, in order.
type Log = Arc<Mutex<Vec<&'static str>>>;

struct Logger {
    log: Log,
    /// Whether it allocates in each call.
    busy: bool,
}

impl Logger {
    fn note(&self, what: &'static str) {
        if self.busy {
            drop(block(300));
            drop(format!("{what} {}", block(10).capacity()));
        }
        self.log.lock().unwrap().push(what);
    }
}

impl Monitor for Logger {
    fn allocated(&self, block: *mut u8, requested: usize, usable: usize) {
        assert!(!block.is_null() && usable >= requested);
        self.note("allocated");
    }

    fn freed(&self, _block: *mut u8, _usable: usize) {
        self.note("freed");
    }
}

impl Drop for Logger {
    fn drop(&mut self) {
        self.note("destroyed");
    }
}

pub fn run() {
    if !recording() {
        let none = Logger { log: Log::default(), busy: false };
        let refused = register("none", Box::new(none)).unwrap_err();
        assert_eq!(refused == NotRegistered::NotLoaded, !loaded());
        assert!(refused.to_string().starts_with("heaptide: "));
        return;
    }
    for busy in [false, true] {
        let log = Log::new(Mutex::new(Vec::with_capacity(100)));
        let monitor = Box::new(Logger { log: log.clone(), busy });
        monitor.note("created");
        let registration = register("logger", monitor).unwrap();
        let kept = block(100);
        drop(kept);
        drop(registration);
        drop(block(100));
        assert_eq!(*log.lock().unwrap(), ["created", "allocated", "freed", "destroyed"]);
    }
    two_at_once();
    many_threads();
}

struct Counter {
    allocated: Arc<AtomicUsize>,
    freed: Arc<AtomicUsize>,
}

impl Monitor for Counter {
    fn allocated(&self, _block: *mut u8, requested: usize, _usable: usize) {
        if requested == 7777 {
            self.allocated.fetch_add(1, SeqCst);
        }
    }

    fn freed(&self, _block: *mut u8, usable: usize) {
        if usable / 16 == 7777 / 16 {
            self.freed.fetch_add(1, SeqCst);
        }
    }
}

fn counter() -> (Registration, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let (allocated, freed) = (Arc::default(), Arc::default());
    let counter = Counter { allocated: Arc::clone(&allocated), freed: Arc::clone(&freed) };
    (register("counter", Box::new(counter)).unwrap(), allocated, freed)
}

fn two_at_once() {
    let (first, counted, _) = counter();
    let (second, counted_too, _) = counter();
    drop(block(7777));
    drop(first);
    drop(block(7777));
    drop(second);
    drop(block(7777));
    assert_eq!((counted.load(SeqCst), counted_too.load(SeqCst)), (1, 2));
}

/// Monitors are registered and dropped while other threads allocate; one that stays gets every
/// call.
fn many_threads() {
    let (registration, allocated, freed) = counter();
    let work = || (0..1000).for_each(|_| drop(block(7777)));
    let threads: Vec<_> = (0..4).map(|_| thread::spawn(work)).collect();
    for _ in 0..200 {
        let (short, ..) = counter();
        drop(short);
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    drop(registration);
    assert_eq!((allocated.load(SeqCst), freed.load(SeqCst)), (4000, 4000));
}

/// A monitor that deregisters itself in its own call is dropped once, after that call.
pub fn deregistered_by_itself() {
    struct Once {
        own: Arc<Mutex<Option<Registration>>>,
        log: Log,
    }
    impl Monitor for Once {
        fn allocated(&self, _block: *mut u8, _requested: usize, _usable: usize) {
            drop(self.own.lock().unwrap().take());
            self.log.lock().unwrap().push("allocated");
        }
    }
    impl Drop for Once {
        fn drop(&mut self) {
            self.log.lock().unwrap().push("destroyed");
        }
    }
    if !recording() {
        return;
    }
    let (own, log) = (Arc::new(Mutex::new(None)), Log::new(Mutex::new(Vec::with_capacity(9))));
    let monitor = Box::new(Once { own: own.clone(), log: log.clone() });
    let registration = register("once", monitor).unwrap();
    *own.lock().unwrap() = Some(registration);
    drop(block(100));
    drop(block(100));
    assert_eq!(*log.lock().unwrap(), ["allocated", "destroyed"]);
}
