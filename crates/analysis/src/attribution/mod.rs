//! Attribution of allocations to functions, the same for every view.
//!
//! `functions.txt` lists the roles of well-known functions, and [`known`] returns them;
//! `behaviour.rs` finds wrappers that are not listed. [`Owners`] has the owner of each stack,
//! [`Types`] the allocated types, [`is_own`] detects the program's own code.

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
