//! The common parts of the HTTP servers of `heaptide view` and `heaptide serve`: a bounded number
//! of connections with bounded times, the check of where a request comes from, tokens, requests
//! that are refused, and answers that are made once for all who ask.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)] // a failed write would end the command

pub mod access;
pub mod cache;
pub mod connections;
mod refusal;

pub use refusal::{PLAIN, Refusal};
