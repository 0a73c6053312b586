//! The SQL engine's program, run as users run it: through `heaptide`, over recordings made here.

mod answers;
mod harness;
mod judge;
mod ranks;
mod readers;
