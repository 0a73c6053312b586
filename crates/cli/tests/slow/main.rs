//! Tests that take long: real programs, the book, every command on large recordings, kills.

#![allow(clippy::print_stderr)] // output of tests

mod book;
mod churn;
mod everything;
mod handlers;
mod kill;
mod known_totals;
mod real;

use heaptide_harness::{expectations, harness, programs, questions, recording};
