//! Limits for tests: what work may allocate at most.

use std::fmt::{self, Write};
use std::panic::Location;

use crate::control::{recording, write};
use crate::figures::Figures;
use crate::measure::measure;
use crate::scope::Scope;

/// The attribute of the scope that limited work runs in, by which its stacks are found.
const ATTRIBUTE: &str = "limit";
/// Bytes of a place at most.
const PLACE_MAX: usize = 512;
/// How many stacks are shown.
const STACKS: usize = 5;

/// What work may allocate on the calling thread at most; without a limit everything.
///
/// Limits are checked where the recorder is: in a test program that `heaptide run` or
/// `heaptide check` runs, or that [embeds](crate#programs-that-no-library-can-be-loaded-into) it.
/// Elsewhere the work runs as if there were none.
///
/// ```
/// use heaptide::Limits;
/// const FRUGAL: Limits = Limits::new().allocations(3).leaked_blocks(0);
/// let length = FRUGAL.check(|| format!("{}", 12).len());
/// assert_eq!(length, 2);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use = "limits are checked by `check`"]
pub struct Limits {
    allocations: Option<u64>,
    requested_bytes: Option<u64>,
    peak_bytes: Option<u64>,
    leaked_blocks: Option<u64>,
    leaked_bytes: Option<u64>,
}

impl Limits {
    /// No limit.
    pub const fn new() -> Limits {
        Limits {
            allocations: None,
            requested_bytes: None,
            peak_bytes: None,
            leaked_blocks: None,
            leaked_bytes: None,
        }
    }

    /// So many blocks are allocated at most, including by realloc.
    pub const fn allocations(self, most: u64) -> Limits {
        Limits { allocations: Some(most), ..self }
    }

    /// So many bytes are requested at most.
    pub const fn requested_bytes(self, most: u64) -> Limits {
        Limits { requested_bytes: Some(most), ..self }
    }

    /// So many bytes are live at once at most, beyond what was live before.
    pub const fn peak_bytes(self, most: u64) -> Limits {
        Limits { peak_bytes: Some(most), ..self }
    }

    /// So many blocks more are live afterwards than before at most.
    pub const fn leaked_blocks(self, most: u64) -> Limits {
        Limits { leaked_blocks: Some(most), ..self }
    }

    /// So many bytes more are live afterwards than before at most.
    pub const fn leaked_bytes(self, most: u64) -> Limits {
        Limits { leaked_bytes: Some(most), ..self }
    }

    /// Runs a closure.
    ///
    /// # Panics
    ///
    /// It exceeds a limit. The stacks that allocated most in it are written to standard error
    /// before.
    #[track_caller]
    pub fn check<R>(self, work: impl FnOnce() -> R) -> R {
        if !recording() {
            return work();
        }
        // Outer limits count what this allocates.
        let mut place = Place { text: [0; PLACE_MAX], length: 0 };
        let _ = write!(place, "{}", Location::caller()); // of a longer one the beginning
        let (result, figures) = {
            let _scope = Scope::enter(ATTRIBUTE, place.text());
            measure(work)
        };
        if let Some(exceeded) = self.exceeded(&figures) {
            write("stderr", &stacks(place.text()));
            panic!("{}: memory limit exceeded: {exceeded}", place.text());
        }
        result
    }

    /// The limits that are exceeded; none if none is.
    fn exceeded(&self, figures: &Figures) -> Option<String> {
        let change = |value: i64| u64::try_from(value).unwrap_or(0);
        let limits = [
            ("allocations", figures.allocations, self.allocations),
            ("requested bytes", figures.requested_bytes, self.requested_bytes),
            ("bytes at once", figures.peak_bytes, self.peak_bytes),
            ("blocks leaked", change(figures.live_blocks), self.leaked_blocks),
            ("bytes leaked", change(figures.live_bytes), self.leaked_bytes),
        ];
        let mut exceeded = String::new();
        for (name, value, most) in limits {
            if let Some(most) = most.filter(|most| value > *most) {
                let comma = if exceeded.is_empty() { "" } else { ", " };
                let _ = write!(exceeded, "{comma}{value} {name}, limit {most}");
            }
        }
        (!exceeded.is_empty()).then_some(exceeded)
    }
}

/// Runs a closure that may not allocate on this thread. Without the recorder it just runs.
///
/// ```
/// let numbers = [1, 2, 3];
/// assert_eq!(heaptide::assert_no_alloc(|| numbers.iter().sum::<i32>()), 6);
/// ```
///
/// # Panics
///
/// It allocates. The stacks that do are written to standard error before.
#[track_caller]
pub fn assert_no_alloc<R>(work: impl FnOnce() -> R) -> R {
    Limits::new().allocations(0).check(work)
}

/// A line of source, as text that is not allocated.
struct Place {
    text: [u8; PLACE_MAX],
    length: usize,
}

impl Place {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.text[..self.length]).unwrap_or_default()
    }
}

impl fmt::Write for Place {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let text = &text[..text.floor_char_boundary(PLACE_MAX - self.length)];
        self.text[self.length..][..text.len()].copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

/// The view of the stacks in the scope of a place.
fn stacks(place: &str) -> String {
    let escaped = place.chars().fold(String::new(), |mut escaped, c| {
        if !c.is_alphanumeric() && !"/_-:".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
        escaped
    });
    let focus = escaped.replace('\'', "'\\''");
    format!(
        "report --by stack --metric allocations --top {STACKS} --focus 'scope:^{ATTRIBUTE}={focus}$'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_more_than_a_limit_exceeds_it() {
        let figures = Figures {
            allocations: 3,
            requested_bytes: 300,
            live_blocks: -1,
            live_bytes: 100,
            peak_bytes: 200,
            ..Figures::default()
        };
        let exceeded = |limits: Limits| limits.exceeded(&figures);
        assert_eq!(exceeded(Limits::new()), None);
        assert_eq!(exceeded(Limits::new().allocations(3).leaked_blocks(0).peak_bytes(200)), None);
        let both = Limits::new().allocations(2).leaked_bytes(99).requested_bytes(300);
        let text = "3 allocations, limit 2, 100 bytes leaked, limit 99";
        assert_eq!(exceeded(both).as_deref(), Some(text));
    }

    #[test]
    fn places_are_expressions_that_match_themselves_only() {
        let view = stacks("src/it's (1).rs:7:9");
        assert!(view.ends_with("'scope:^limit=src/it\\'\\''s\\ \\(1\\)\\.rs:7:9$'"), "{view}");
    }
}
