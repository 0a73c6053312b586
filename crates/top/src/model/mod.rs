//! What is shown, without a screen: tables, numbers of rows, and what keys do.

pub(crate) mod app;
pub(crate) mod numbers;
pub(crate) mod page;
pub(crate) mod tables;
pub(crate) mod tree;
pub(crate) mod view;
