//! What the environment asks for. Read from `/proc/self/environ`: libc's `environ` may not be set
//! yet.

use crate::rank::Place;
use crate::sys::{self, Path};
use heaptide_format::Mode;

/// The longest path a profile may have.
pub const PATH_MAX: usize = 4096;
/// The environment is searched up to this length, in bytes.
const ENVIRONMENT_MAX: usize = 2 << 20;

/// The recorder's options; each is the environment variable of its comment.
pub struct Options {
    /// `HEAPTIDE_OUTPUT`: the recording directory; empty for `heaptide-PROGRAM-PID.heaptide` here.
    pub output: Text<PATH_MAX>,
    /// `HEAPTIDE_MODE`: `stacks`, `scopes` or `counters`.
    pub mode: Mode,
    /// `HEAPTIDE_REUSE=off`: unwind every stack anew.
    pub reuse: bool,
    /// `HEAPTIDE_START=off`: recording begins turned off.
    pub start_off: bool,
    /// `HEAPTIDE_THRESHOLD=BYTES`: stacks only for requests from so many bytes on; with `<` in
    /// front, only for those below.
    pub threshold: Option<(u64, bool)>,
    /// `HEAPTIDE_MODE=trace`: mode stacks, and every event.
    pub trace: bool,
    /// `HEAPTIDE_FREE_STACKS=on`: events of frees have their stack.
    pub free_stacks: bool,
    /// `HEAPTIDE_MAX_SIZE=BYTES`: what the traces of the recording may take; 0 for no bound.
    pub max_size: u64,
    /// `HEAPTIDE_BY_SIZE=on`: sites are told apart by the size requested.
    pub by_size: bool,
    /// `HEAPTIDE_SNAPSHOT_EVERY=SECONDS`: in nanoseconds, 0 for never.
    pub snapshot_every_ns: u64,
    /// `HEAPTIDE_SNAPSHOT_SIGNAL=NUMBER`: a snapshot when it arrives; 0 for none.
    pub snapshot_signal: u32,
    /// Where in a parallel job this is.
    pub place: Place,
}

impl Options {
    /// None if this process is not to be recorded (`HEAPTIDE_FOLLOW` names another, or
    /// `HEAPTIDE_MODE=off`).
    pub fn read() -> Option<Options> {
        with_environment(parse)?
    }
}

/// Calls `use_it` with the environment that the process was started with; none if there is no
/// memory.
pub fn with_environment<R>(use_it: impl FnOnce(&[u8]) -> R) -> Option<R> {
    let memory = sys::map_private(ENVIRONMENT_MAX);
    if memory.is_null() {
        return None;
    }
    // SAFETY: fresh zeroed memory of this length, released below and not used after.
    let buffer = unsafe { core::slice::from_raw_parts_mut(memory, ENVIRONMENT_MAX) };
    let environment = Path::new(b"/proc/self/environ\0").map(|path| sys::read_file(path, buffer));
    let result = match environment {
        Some(Ok(environment)) => use_it(environment),
        _ => use_it(b""),
    };
    // SAFETY: the result borrows nothing of it.
    unsafe { sys::unmap(memory, ENVIRONMENT_MAX) };
    Some(result)
}

fn parse(environment: &[u8]) -> Option<Options> {
    let mut options = Options {
        output: Text::new(),
        mode: Mode::Stacks,
        reuse: true,
        start_off: false,
        threshold: None,
        trace: false,
        free_stacks: false,
        max_size: 0,
        by_size: false,
        snapshot_every_ns: 0,
        snapshot_signal: 0,
        place: Place::new(),
    };
    for entry in environment.split(|&b| b == 0) {
        let Some(equals) = entry.iter().position(|&b| b == b'=') else {
            continue;
        };
        let (name, value) = (&entry[..equals], &entry[equals + 1..]);
        options.place.note(name, value);
        let Some(name) = name.strip_prefix(b"HEAPTIDE_") else {
            continue;
        };
        match (name, value) {
            (b"OUTPUT", value) => options.output.push(value),
            (b"MODE", b"counters") => options.mode = Mode::Counters,
            (b"MODE", b"scopes") => options.mode = Mode::Scopes,
            (b"MODE", b"trace") => options.trace = true,
            (b"MODE", b"off") => return None,
            (b"FREE_STACKS", b"on") => options.free_stacks = true,
            (b"MAX_SIZE", bytes) => options.max_size = number(bytes).unwrap_or(0),
            (b"REUSE", b"off") => options.reuse = false,
            (b"START", b"off") => options.start_off = true,
            (b"THRESHOLD", [b'<', bytes @ ..]) => {
                options.threshold = number(bytes).map(|bytes| (bytes, true));
            }
            (b"THRESHOLD", bytes) => options.threshold = number(bytes).map(|bytes| (bytes, false)),
            (b"BY_SIZE", b"on") => options.by_size = true,
            (b"SNAPSHOT_EVERY", seconds) => options.snapshot_every_ns = nanoseconds(seconds),
            (b"SNAPSHOT_SIGNAL", signal) => {
                options.snapshot_signal = number(signal).unwrap_or(0) as u32;
            }
            (b"FOLLOW", pid) if number(pid) != Some(sys::getpid() as u64) => return None,
            _ => {}
        }
    }
    Some(options)
}

/// Decimal seconds, with a fraction or without; 0 if it is no number.
fn nanoseconds(seconds: &[u8]) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    let point = seconds.iter().position(|&b| b == b'.').unwrap_or(seconds.len());
    let whole = number(&seconds[..point]).unwrap_or(0);
    let digits = seconds.get(point + 1..).unwrap_or(b"");
    let places = digits.len().min(9);
    let part = number(&digits[..places]).unwrap_or(0) * 10u64.pow(9 - places as u32);
    whole.saturating_mul(SECOND).saturating_add(part)
}

/// A decimal number; none if it is none or too large.
pub fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |n, &b| match b {
        b'0'..=b'9' => n.checked_mul(10)?.checked_add((b - b'0') as u64),
        _ => None,
    })
}

/// Bytes in a fixed buffer that always ends with a zero; what does not fit is noted, not stored.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
    cut: bool,
}

impl<const N: usize> Text<N> {
    pub const fn new() -> Text<N> {
        Text { bytes: [0; N], length: 0, cut: false }
    }

    pub fn push(&mut self, more: &[u8]) {
        let room = N - 1 - self.length;
        let n = more.len().min(room);
        self.bytes[self.length..self.length + n].copy_from_slice(&more[..n]);
        self.length += n;
        self.cut |= n < more.len();
    }

    pub fn push_number(&mut self, mut n: u64) {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                break;
            }
        }
        self.push(&digits[at..]);
    }

    pub fn truncate(&mut self, length: usize) {
        self.bytes[length..].fill(0);
        self.length = length;
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// As a path; none if something did not fit.
    pub fn path(&self) -> Option<Path<'_>> {
        if self.cut { None } else { Path::new(&self.bytes) }
    }
}
