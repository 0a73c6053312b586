//! The recorder around the system's allocator.

use std::alloc::System;

#[global_allocator]
static ALLOCATOR: heaptide::Recorder<System> = heaptide::Recorder::new(System);

fn main() {
    guest::main();
}
