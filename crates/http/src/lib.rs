//! Common parts of the HTTP servers of `heaptide view` and `heaptide serve`: connections with
//! limits, checks of the origin of requests, tokens, rejected requests, and cached responses that
//! concurrent requests share.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)] // `println!` panics if writing fails

pub mod access;
pub mod cache;
mod clients;
pub mod connections;
mod refusal;
mod stream;

pub use refusal::{PLAIN, Refusal};
