//! Commands that read recordings: reports, queries, exports, checks, and messages about bad
//! input.

#![allow(clippy::print_stderr)] // output of tests

mod advise;
mod advise_table;
mod answers;
mod check;
mod command;
mod damaged;
mod diff;
mod filters;
mod first_answers;
mod folded;
mod hostile;
mod inputs;
mod lines;
mod manners;
mod manual;
mod merging;
mod odd_names;
mod output;
mod owners;
mod pictures;
mod queries;
mod ranks;
mod schema;
mod screen;
mod subject;
mod test_limits;
mod unwritable;
mod views;

use heaptide_harness::{expectations, harness, programs, questions, recording};
