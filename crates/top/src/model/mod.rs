//! The state of the screen without the terminal: tables, numbers of rows, and the effects of keys.

pub(crate) mod app;
pub(crate) mod numbers;
pub(crate) mod page;
pub(crate) mod tables;
pub(crate) mod tree;
pub(crate) mod view;
