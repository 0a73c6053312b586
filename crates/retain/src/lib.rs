//! Finds which live blocks of a running program are lost, and what keeps the others.
//!
//! The memory of the program at one moment ([`heaptide_attach::picture`]) is searched for words
//! that can be pointers, as by a conservative garbage collector. The result is a graph of blocks
//! and roots: variables, stacks, registers, other memory. Everything else works on that graph:
//! which blocks can be reached and how (`reach`), and how much would be free without a root or a
//! block (`dominators`).
//!
//! The method is that of LeakSanitizer and of heap analysers for languages with a garbage
//! collector. A word that only looks like a pointer keeps a block; a pointer that is stored in
//! another form does not.

mod blocks;
mod declared;
mod dominators;
mod dynamic_tls;
mod graph;
mod modules;
mod objects;
mod reach;
mod retained;
mod roots;
mod scan;
mod tiers;
mod window;

pub use blocks::Facts;
pub use retained::{Recorded, retained};
