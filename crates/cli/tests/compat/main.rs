//! Files, functions and programs of other tools, and documents.

#![allow(clippy::print_stderr)] // output of tests

mod compat_alloc_monitor;
mod compat_caliper;
mod compat_malloc;
mod documents;
mod foreign;
mod library;

use heaptide_harness::{expectations, harness, programs, recording};
