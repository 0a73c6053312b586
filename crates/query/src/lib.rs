//! CalQL: queries over the tables of recordings and over Caliper's files.
//!
//! ```text
//! recordings ──tables──▶ Stream ──LET, WHERE, GROUP BY, HAVING, ORDER BY──▶ Table ──format──▶ text
//! .cali files ──cali───▶ of batches
//! ```

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)] // a failed write would panic

mod aggregate;
pub mod cali;
mod conditions;
mod derive;
mod error;
mod filter;
#[cfg(test)]
mod fixtures;
pub mod format;
mod groups;
pub mod hints;
mod lexer;
pub mod names;
mod order;
mod parser;
mod parser_state;
pub mod query;
mod run;
pub mod services;
pub mod stream;
mod sums;
mod supply;
pub mod table;
pub mod tables;
pub mod value;

pub use error::QueryError;
pub use lexer::Word;
pub use parser::{parse, parse_format};
pub use run::run;
