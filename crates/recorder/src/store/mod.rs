//! The profile in memory and on disk: the mapped file, its records, and the tables that find them.

pub mod accounts;
pub mod budgets;
pub mod control_words;
pub mod directory;
pub mod file;
pub mod ids;
pub mod index;
pub mod limit;
pub mod mapping_records;
pub mod mapping_table;
pub mod modules;
pub mod names;
pub mod place;
pub mod profile;
pub mod python_lines;
pub mod rules;
pub mod sample_weight;
pub mod sampled_blocks;
pub mod sampled_sites;
pub mod samples;
pub mod scopes;
pub mod shadow;
pub mod shapes;
pub mod shared;
pub mod sites;
pub mod spans;
