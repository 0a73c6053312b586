//! Limits for tests: how much some work may allocate.

use std::fmt::{self, Write};
use std::panic::Location;

use crate::control::{recording, write};
use crate::figures::Figures;
use crate::measure::measure;
use crate::scope::Scope;

/// The attribute of the scope around limited work, which identifies its stacks.
const ATTRIBUTE: &str = "limit";
/// The longest place, in bytes.
const PLACE_MAX: usize = 512;
/// Number of stacks to show.
const STACKS: usize = 5;

/// Limits on what work may allocate on the calling thread; by default there are none.
///
/// Limits are checked only with the recorder: in a test program that runs under `heaptide run` or
/// `heaptide check`, or that [embeds](crate#programs-that-no-library-can-be-loaded-into) it.
/// Without it the work runs unchecked.
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
    /// No limits.
    pub const fn new() -> Limits {
        Limits {
            allocations: None,
            requested_bytes: None,
            peak_bytes: None,
            leaked_blocks: None,
            leaked_bytes: None,
        }
    }

    /// Limits the number of allocated blocks, including those of realloc.
    pub const fn allocations(self, most: u64) -> Limits {
        Limits { allocations: Some(most), ..self }
    }

    /// Limits the sum of requested bytes.
    pub const fn requested_bytes(self, most: u64) -> Limits {
        Limits { requested_bytes: Some(most), ..self }
    }

    /// Limits the rise of live bytes over their number at the start.
    pub const fn peak_bytes(self, most: u64) -> Limits {
        Limits { peak_bytes: Some(most), ..self }
    }

    /// Limits the growth of the number of live blocks.
    pub const fn leaked_blocks(self, most: u64) -> Limits {
        Limits { leaked_blocks: Some(most), ..self }
    }

    /// Limits the growth of live bytes.
    pub const fn leaked_bytes(self, most: u64) -> Limits {
        Limits { leaked_bytes: Some(most), ..self }
    }

    /// Runs a closure.
    ///
    /// # Panics
    ///
    /// Panics if the closure exceeds a limit, after writing the stacks that allocated most in it to
    /// standard error.
    #[track_caller]
    pub fn check<R>(self, work: impl FnOnce() -> R) -> R {
        if !recording() {
            return work();
        }
        // Outer limits count allocations made here, so there must be none.
        let mut place = Place { text: [0; PLACE_MAX], length: 0 };
        let _ = write!(place, "{}", Location::caller()); // a long place is truncated
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

    /// Describes the limits that are exceeded; `None` if all are kept.
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

/// Runs a closure that must not allocate on this thread. Without the recorder it runs unchecked.
///
/// ```
/// let numbers = [1, 2, 3];
/// assert_eq!(heaptide::assert_no_alloc(|| numbers.iter().sum::<i32>()), 6);
/// ```
///
/// # Panics
///
/// Panics if the closure allocates, after writing the stacks that do to standard error.
#[track_caller]
pub fn assert_no_alloc<R>(work: impl FnOnce() -> R) -> R {
    Limits::new().allocations(0).check(work)
}

/// A source location, as text on the stack.
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

/// Returns the view that shows the stacks in the scope of a place.
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
    fn larger_values_exceed_a_limit() {
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
    fn places_become_expressions_that_match_only_themselves() {
        let view = stacks("src/it's (1).rs:7:9");
        assert!(view.ends_with("'scope:^limit=src/it\\'\\''s\\ \\(1\\)\\.rs:7:9$'"), "{view}");
    }
}
