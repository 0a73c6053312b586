//! A process that cleans up after a command that is killed while it writes a recording.

use std::io;
use std::path::Path;
use std::time::Duration;

use nix::unistd::read;

use crate::helper::Helper;
use crate::place::clear_up;

/// Attempts of the guardian to clean up, and the pause after each.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// Starts a process that cleans up at a recording's path when this process ends.
///
/// Errors: those of [`Helper::start`].
pub fn guard(place: &Path) -> io::Result<Helper> {
    Helper::start(c"merge-guardian", &[], |end| {
        let _ = read(end, &mut [0]); // returns when all write ends are closed
        // The pipe may be closed shortly before the lock is released.
        for _ in 0..TRIES {
            if clear_up(place) {
                return 0;
            }
            std::thread::sleep(PAUSE);
        }
        1
    })
}
