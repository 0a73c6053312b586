//! The tables of one process image, built from its profile and the names of its addresses.

mod accounts;
pub(crate) mod annotation_tables;
pub(crate) mod calibrate;
pub(crate) mod ending;
pub(crate) mod figures;
mod mapped;
mod mapping_class;
pub(crate) mod process;
pub(crate) mod raw_site;
mod reconcile;
pub(crate) mod sampled;
pub(crate) mod site_counters;
pub(crate) mod site_table;
pub(crate) mod trace;
pub(crate) mod unrecorded;
pub(crate) mod weighted;
