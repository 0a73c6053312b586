//! Live screens: the page in a browser, `view`, `serve` and `top`.

#![allow(clippy::print_stderr)] // output of tests

mod browser;
mod page;
mod serve;
mod serve_examples;
mod serve_otlp;
mod top;
mod view;

use heaptide_harness::{harness, http_client, programs, steps};
