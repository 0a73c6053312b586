//! Labels and pools: addresses resolve to elements, including the first and last byte and the bytes
//! past them.

use crate::block;
use heaptide::{
    Kind, Pool, label, label_dimensions, label_guard, label_memory, recording, resolve, unlabel,
};
use std::hint::black_box;

/// Number of 8-byte elements for which the allocator adds no slack.
const EXACT: usize = 125;

pub fn run() {
    let first = black_box(vec![0u64; EXACT]);
    let second = black_box(vec![0u64; EXACT]);
    assert_eq!(label("first", &first), recording());
    assert_eq!(label("second", &second), recording());
    if recording() {
        elements(&first, &second);
        relabelled(&second);
        guarded();
        other_memory();
        freed();
    } else {
        assert_eq!(resolve(&first[0]), None);
        assert!(!label_memory("nothing", first.as_ptr().cast(), 8, 8));
    }
    // Four and six dimensions; this labelled data is never freed.
    let matrix = vec![0f32; 2 * 3 * 4 * 5];
    label_dimensions("matrix", &matrix, &[2, 3, 4, 5]);
    let cube = vec![0u8; 64];
    label_dimensions("cube", &cube, &[2, 2, 2, 2, 2, 2]);
    if recording() {
        assert_eq!(resolve(&matrix[119]).unwrap().dimensions(), [2, 3, 4, 5]);
        assert_eq!(resolve(&cube[63]).unwrap().dimensions(), [2, 2, 2, 8]);
    }
    std::mem::forget((first, second, matrix, cube));
}

fn elements(first: &[u64], second: &[u64]) {
    for index in [0, 1, EXACT - 1] {
        let found = resolve(&first[index]).unwrap();
        assert_eq!(found.label().unwrap(), "first");
        assert_eq!((found.index, found.element_bytes), (index, 8));
        assert_eq!((found.start, found.bytes), (first.as_ptr().addr(), EXACT * 8));
        assert_eq!((found.dimensions(), found.kind), (&[EXACT][..], Kind::Heap));
        // The last byte of the element.
        let last = (&raw const first[index]).cast::<u8>().wrapping_add(7);
        assert_eq!(resolve(last).unwrap().index, index);
    }
    let (one, two) = (resolve(&first[0]).unwrap(), resolve(&second[0]).unwrap());
    assert!(one.uid != two.uid && one.uid > 0 && two.uid > 0);
    // The allocator's chunk header of the next block follows the end.
    assert_eq!(resolve(first.as_ptr_range().end), None);
}

fn relabelled(data: &[u64]) {
    let uid = resolve(data.as_ptr()).unwrap().uid;
    assert!(label("renamed", data));
    let found = resolve(data.as_ptr()).unwrap();
    assert_eq!(found.label().unwrap(), "renamed");
    assert_ne!(found.uid, uid);
    assert!(unlabel(data.as_ptr()));
    let found = resolve(data.as_ptr()).unwrap();
    assert_eq!((found.label(), found.uid, found.element_bytes), (None, 0, 0));
    assert!(!unlabel(data.as_ptr()));
    assert!(label("second", data));
}

fn guarded() {
    let text = String::from("some text that is on the heap");
    {
        let _label = label_guard("text", &text);
        assert_eq!(resolve(text.as_ptr()).unwrap().label().unwrap(), "text");
    }
    assert_eq!(resolve(text.as_ptr()).unwrap().label(), None);
}

/// Statics and parts of blocks can have labels of their own.
fn other_memory() {
    static TABLE: [u32; 256] = [1; 256];
    assert!(label("table", &TABLE));
    let found = resolve(&TABLE[255]).unwrap();
    assert_eq!((found.label().as_deref(), found.index), (Some("table"), 255));
    assert_eq!((found.bytes, found.kind), (1024, Kind::Other));
    assert!(unlabel(TABLE.as_ptr()));
    assert_eq!(resolve(&TABLE[255]), None);
}

fn freed() {
    let gone = block(900);
    let address = gone.as_ptr();
    assert!(label("gone", &gone));
    drop(gone);
    assert_eq!(resolve(address), None);
    // Empty data has no address.
    assert!(!label("empty", &Vec::<u64>::new()));
    assert!(!label("units", &vec![(); 10]));
}

pub fn pools() {
    let arena = block(1 << 16);
    let pool = Pool::new("arena");
    let start = arena.as_ptr();
    assert_eq!(pool.add(start, 1 << 16), recording());
    let places: Vec<*const u8> = (0..4).map(|i| start.wrapping_add(i * 4096)).collect();
    for place in &places {
        assert_eq!(pool.allocated(*place, 1000, 1024), recording());
    }
    if recording() {
        let found = resolve(places[1].wrapping_add(1023)).unwrap();
        assert_eq!((found.start, found.bytes), (places[1].addr(), 1024));
        assert_eq!(found.kind, Kind::Pool);
        let idle = resolve(places[1].wrapping_add(2000)).unwrap();
        assert_eq!((idle.start, idle.kind), (start.addr(), Kind::Chunk));
        assert!(pool.freed(places[0]));
        assert!(!pool.freed(places[0]));
        assert!(pool.reallocated(places[1], places[1], 2000, 2048));
        assert_eq!(resolve(places[1].wrapping_add(2047)).unwrap().bytes, 2048);
    }
    std::mem::forget(arena);
}
