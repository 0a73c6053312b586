//! Rules and chores of this repository.
fn main() {}
