//! Types and owners in a Rust program: memory that its functions hold through library containers.
//
// expect function:owners::Store::insert live_blocks=402
use std::collections::HashMap;
use std::fmt::Write;
use std::hint::black_box;
use std::mem::forget;

pub struct Session {
    pub data: [u8; 1000],
}

#[derive(Default)]
pub struct Store {
    sessions: HashMap<u64, Box<Session>>,
    log: Vec<String>,
}

impl Store {
    #[inline(never)]
    pub fn insert(&mut self, id: u64) {
        self.sessions.insert(id, Box::new(Session { data: black_box([1; 1000]) }));
        let mut line = String::new();
        write!(line, "{:?} of {id:?}", "session").unwrap();
        self.log.push(line);
    }
}

fn main() {
    let mut store = Store::default();
    for id in 0..200 {
        store.insert(id);
    }
    forget(black_box(store));
}
