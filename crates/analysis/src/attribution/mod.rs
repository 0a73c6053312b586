//! Who allocated it: one answer for every view.
//!
//! `functions.txt` says what well-known functions are, [`known`] reads it; `behaviour.rs` finds
//! wrappers that no list has. [`Owners`] has the owner of each stack, [`Types`] what it allocates,
//! [`is_own`] the program's own code.

mod behaviour;
mod functions;
mod known;
pub mod names;
mod own_code;
mod owners;
mod stable_names;
mod types;

pub use functions::{FunctionId, Functions, is_of_libc};
pub use known::{Role, known};
pub use own_code::is_own;
pub use owners::{Owners, owners_in_tree};
pub use stable_names::{file_in_every_build, name_in_every_build};
pub use types::{TypeId, Types, type_in};
