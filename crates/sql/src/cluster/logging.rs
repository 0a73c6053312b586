//! Log messages of Ballista and of the engine, if requested.

use heaptide_command::message::message;
use log::{LevelFilter, Log, Metadata, Record};

/// Writes messages to standard error.
struct Messages;

impl Log for Messages {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let from = metadata.target();
        from.starts_with("ballista") || from.starts_with("datafusion")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = record.level().as_str().to_lowercase();
            message(format_args!("{level}: {}: {}", record.target(), record.args()));
        }
    }

    fn flush(&self) {}
}

/// Starts to write messages of this level and above.
pub fn start(level: LevelFilter) {
    // It fails only when called twice.
    let _ = log::set_logger(&Messages);
    log::set_max_level(level);
}
