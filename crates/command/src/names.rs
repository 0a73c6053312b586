//! Names of functions are looked up in processes of their own, because debug information is
//! untrusted: these run this command again.

use std::ffi::OsString;
use std::path::Path;

use heaptide_analysis::symbols::{answer_apart, look_up_apart};

/// Where the kernel has the file of this command, also if it was removed or replaced.
const THIS_COMMAND: &str = "/proc/self/exe";

/// Looks up names for the process that started this one, and returns the exit status. If this is
/// not such a process, makes it look up names in other processes.
pub(crate) fn answer(arguments: &[OsString]) -> Option<u8> {
    let status = answer_apart(arguments);
    if status.is_none() && Path::new(THIS_COMMAND).exists() {
        look_up_apart(THIS_COMMAND.into());
    }
    status
}
