//! Monitors: user code that is called for each allocation.

use crate::control::pause;
use crate::interface;
use crate::registered::{Monitor, Registered};
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a monitor was not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotRegistered {
    /// The recorder is not in this process; see [`loaded`](crate::loaded).
    NotLoaded,
    /// The recorder does not record, or has no space for another monitor.
    Refused,
}

impl fmt::Display for NotRegistered {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            NotRegistered::NotLoaded => {
                "heaptide: the recorder is not loaded into this process; \
                 start the program with `heaptide run`"
            }
            NotRegistered::Refused => {
                "heaptide: the recorder takes no monitor: it records nothing, or has no room"
            }
        })
    }
}

impl std::error::Error for NotRegistered {}

/// Registers a monitor, which is called until the registration is dropped or the process exits, and
/// is then dropped.
///
/// # Errors
/// The recorder is not in this process, or rejects the monitor.
pub fn register(name: &str, monitor: Box<dyn Monitor>) -> Result<Registration, NotRegistered> {
    if !interface::loaded() {
        return Err(NotRegistered::NotLoaded);
    }
    match interface::monitor_register(kept_name(name), Registered { monitor }) {
        0 => Err(NotRegistered::Refused),
        id => Ok(Registration { id }),
    }
}

/// Truncates a name to the length that the recorder stores, zero-terminated. It is not on the heap,
/// because the monitor would be called when it is freed.
fn kept_name(name: &str) -> [u8; 32] {
    let mut kept = [0; 32];
    let text = name.bytes().take_while(|byte| *byte != 0);
    kept[..31].iter_mut().zip(text).for_each(|(to, from)| *to = from);
    kept
}

/// A registered monitor. Dropping this deregisters it, and returns when no thread is in it any
/// more.
#[must_use = "the monitor is deregistered when this is dropped"]
#[derive(Debug)]
pub struct Registration {
    id: u64,
}

impl Registration {
    /// Leaves the monitor registered until the process exits.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        interface::monitor_deregister(self.id);
    }
}

/// What is wrong with the options of a plug-in, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionsError(String);

impl OptionsError {
    /// Creates an error with this sentence.
    pub fn new(says: impl Into<String>) -> OptionsError {
        OptionsError(says.into())
    }
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OptionsError {}

/// Splits options of the form `name=value,name=value`.
///
/// ```
/// let options: Vec<_> = heaptide::options("interval=100,file=heap").collect();
/// assert_eq!(options, [("interval", "100"), ("file", "heap")]);
/// ```
pub fn options(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').unwrap_or((part, "")))
}

/// Parses a whole number with an optional suffix K, M or G (powers of 1024).
///
/// ```
/// assert_eq!(heaptide::option_number("4K"), Some(4096));
/// assert_eq!(heaptide::option_number("many"), None);
/// ```
pub fn option_number(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().ok().filter(|_| !digits.starts_with('+'))?;
    number.checked_mul(1 << shift)
}

/// The output of a monitor's final report: a copy of standard error, because many programs close
/// that when they exit, before monitors end.
///
/// ```
/// let report = heaptide::Report::new();
/// report.say("the monitor begins");
/// ```
#[derive(Debug)]
pub struct Report(Option<File>);

impl Default for Report {
    fn default() -> Self {
        Report::new()
    }
}

impl Report {
    /// Copies the current standard error. If there is none, output is discarded.
    pub fn new() -> Report {
        Report(interface::copy_of_stderr())
    }

    /// Writes the text and a newline with one call.
    pub fn say(&self, text: &str) {
        if let Some(mut file) = self.0.as_ref() {
            // An error cannot be reported anywhere.
            let _ = file.write_all(format!("{text}\n").as_bytes());
        }
    }
}

/// A plug-in's registration: [`plugin!`](crate::plugin!) starts it in the library's constructor and
/// ends it in the destructor, when the library is unloaded.
#[doc(hidden)]
#[derive(Default)]
pub struct Plugin {
    id: AtomicU64,
}

impl Plugin {
    /// Creates it with nothing registered.
    pub const fn new() -> Plugin {
        Plugin { id: AtomicU64::new(0) }
    }

    /// Registers the monitor that `create` returns for the options of the library that contains
    /// `own`. Its name is that of the crate in which this module is instantiated.
    #[expect(clippy::print_stderr, reason = "a monitor has no other place for its errors")]
    pub fn start<M: Monitor + 'static>(
        &self,
        own: fn(),
        module: &str,
        create: impl FnOnce(&str) -> Result<M, OptionsError>,
    ) {
        // Preloaded into a process without the recorder, or that is not recorded.
        if !interface::recording() {
            return;
        }
        let _paused = pause();
        let name = module.split("::").next().unwrap_or(module);
        let options = interface::monitor_options(own).unwrap_or_default();
        match create(&options) {
            Ok(monitor) => match register(name, Box::new(monitor)) {
                Ok(registration) => {
                    self.id.store(registration.id, Ordering::Release);
                    registration.keep();
                }
                Err(_) => eprintln!("{name}: not registered: no room for another monitor"),
            },
            Err(reason) => eprintln!("{name}: {reason}"),
        }
    }

    /// Deregisters the monitor, unless that happened when the process exited.
    pub fn end(&self) {
        match self.id.swap(0, Ordering::AcqRel) {
            0 => {}
            id => drop(interface::monitor_deregister(id)),
        }
    }
}
