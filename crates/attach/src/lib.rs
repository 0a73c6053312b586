//! Attaches to a program that runs: has it load the recorder and begin a recording, and ends that
//! again. With ptrace, without a debugger.
//!
//! A thread at a safe point calls `dlopen`. Then all threads are stopped, and one of them has the
//! library prepare a recording ([`heaptide_format::attachment`]). Code of allocators is changed
//! from here while no thread runs, and one word lets the recording begin. The way back of each call
//! is on a stack before the call is made, as the frame of a signal handler that returns: a command
//! that is killed at any moment leaves a program that runs.

mod call;
mod error;
mod frames;
mod machine;
mod memory;
mod modules;
mod process;
mod ptrace;
mod session;
mod threads;
mod view;

pub use error::Error;
pub use session::{Detached, Pause, Request, attach, detach};
