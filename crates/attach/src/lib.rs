//! Attaches to a running program: loads the recorder into it and starts a recording, and detaches
//! again. Uses ptrace, without a debugger.
//!
//! A thread at a safe point calls `dlopen`. Then all threads are stopped, and the library prepares
//! a recording in one of them ([`heaptide_format::attachment`]). This command patches the code of
//! allocators while no thread runs, and sets one word to start the recording. Before each call, the
//! stack gets the frame of a returning signal handler that restores the thread, so that the program
//! continues to run even if this command is killed at any point.

mod call;
mod clock;
mod error;
mod frames;
#[cfg_attr(not(target_arch = "x86_64"), path = "insert/unsupported.rs")]
pub mod insert;
mod machine;
mod memory;
mod modules;
mod pages;
pub mod picture;
mod process;
mod ptrace;
mod seccomp;
mod session;
mod threads;
mod view;

pub use error::Error;
pub use memory::{Mapping, file_of};
pub use session::{Detached, Pause, Request, attach, detach};
pub use threads::{number_inside, thread_of};
