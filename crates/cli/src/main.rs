//! The `heaptide` command.
fn main() {}
