//! The mappings of the process and their resident memory, in `/proc/self/smaps`.

use crate::sys::kernel::{self, Path};
use crate::sys::maps::{self, Mapping};
use crate::sys::range::Range;
use crate::sys::text::{Text, end_of_line};

/// Maximum number of bytes of a name that are kept.
const NAME_MAX: usize = 1024;
/// Bytes that are read at once. The kernel returns a page at a time.
const PIECE: usize = 8 << 10;

/// A mapping and its numbers, in KiB.
pub struct Resident {
    pub range: Range,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
    pub shared: bool,
    pub resident: u32,
    pub private_dirty: u32,
    pub swap: u32,
    /// Whether it is excluded from core dumps and huge pages.
    pub set_apart: bool,
    name: Text<NAME_MAX>,
}

impl Resident {
    fn new(mapping: &Mapping<'_>) -> Resident {
        let mut name = Text::new();
        name.push(mapping.path);
        Resident {
            range: mapping.range,
            readable: mapping.readable,
            writable: mapping.writable,
            executable: mapping.executable,
            shared: mapping.shared,
            resident: 0,
            private_dirty: 0,
            swap: 0,
            set_apart: false,
            name,
        }
    }

    /// Returns the file, or the kernel's name; empty if it has none.
    pub fn name(&self) -> &[u8] {
        self.name.bytes()
    }

    /// Stores the value in a line below the first one, which begins with its key in upper case; the
    /// first line begins with an address in lower case.
    fn take(&mut self, line: &[u8]) {
        let value = |key: &[u8]| line.strip_prefix(key).map(<[u8]>::trim_ascii_start);
        match line {
            [b'R', b's', ..] => self.resident = value(b"Rss:").map_or(self.resident, kib),
            [b'P', b'r', ..] => {
                self.private_dirty = value(b"Private_Dirty:").map_or(self.private_dirty, kib);
            }
            [b'S', b'w', ..] => self.swap = value(b"Swap:").map_or(self.swap, kib),
            [b'V', ..] => {
                let flags = value(b"VmFlags:").unwrap_or_default();
                let has = |flag: &[u8]| flags.split(|&b| b == b' ').any(|word| word == flag);
                self.set_apart = has(b"dd") && has(b"nh");
            }
            _ => {}
        }
    }
}

/// Visits all mappings in order of address. Returns false if they cannot be read. Needs some 12 KiB
/// of stack.
pub fn each(mut visit: impl FnMut(&Resident)) -> bool {
    let Some(Ok(fd)) = Path::new(b"/proc/self/smaps\0").map(|p| kernel::open(p, kernel::O_RDONLY))
    else {
        return false;
    };
    let mut buffer = [0u8; PIECE];
    let mut mapping = None;
    let mut filled = 0;
    let mut any = false;
    while let Ok(n @ 1..) = kernel::read(fd, &mut buffer[filled..]) {
        filled += n;
        any = true;
        let mut used = 0;
        while let Some(length) = end_of_line(&buffer[used..filled]) {
            line(&buffer[used..used + length], &mut mapping, &mut visit);
            used += length + 1;
        }
        // A line longer than the buffer is dropped; its rest is a line that means nothing.
        if used == 0 && filled == buffer.len() {
            used = filled;
        }
        buffer.copy_within(used..filled, 0);
        filled -= used;
    }
    kernel::close(fd);
    if let Some(last) = &mapping {
        visit(last);
    }
    any
}

/// Handles a line: the first of a mapping, or one with a number of it.
fn line(line: &[u8], mapping: &mut Option<Resident>, visit: &mut impl FnMut(&Resident)) {
    if line.first().is_some_and(u8::is_ascii_uppercase) {
        if let Some(mapping) = mapping {
            mapping.take(line);
        }
    } else if let Some(next) = maps::parse_line(line)
        && let Some(done) = mapping.replace(Resident::new(&next))
    {
        visit(&done);
    }
}

/// Parses a number of KiB; `u32::MAX` if it is too large.
pub fn kib(value: &[u8]) -> u32 {
    let digits = value.iter().take_while(|b| b.is_ascii_digit());
    digits.fold(0u32, |n, &b| n.saturating_mul(10).saturating_add((b - b'0') as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn parsed(text: &str) -> Vec<(Range, [u32; 3], bool, Vec<u8>)> {
        let mut found = Vec::new();
        let mut visit = |m: &Resident| {
            found.push((
                m.range,
                [m.resident, m.private_dirty, m.swap],
                m.set_apart,
                m.name().to_vec(),
            ))
        };
        let mut mapping = None;
        text.lines().for_each(|l| line(l.as_bytes(), &mut mapping, &mut visit));
        if let Some(last) = &mapping {
            visit(last);
        }
        found
    }

    #[test]
    fn mappings_with_their_numbers() {
        let text = "\
00400000-00500000 r-xp 00000000 fe:01 12                 /bin/a: b
Size:               1024 kB
Rss:                 100 kB
Private_Dirty:         8 kB
Swap:                  4 kB
VmFlags: rd ex mr mw me
7f0000000000-7f0000002000 rw-p 00000000 00:00 0
Rss:                   8 kB
VmFlags: rd wr mr nh dd
";
        let range = |low, high| Range { low, high };
        assert_eq!(
            parsed(text),
            [
                (range(0x40_0000, 0x50_0000), [100, 8, 4], false, b"/bin/a: b".to_vec()),
                (range(0x7f00_0000_0000, 0x7f00_0000_2000), [8, 0, 0], true, Vec::new()),
            ]
        );
        assert_eq!(parsed("Rss: 1 kB\nnonsense\n"), []);
        assert_eq!(kib(b"99999999999 kB"), u32::MAX);
    }

    #[test]
    #[cfg_attr(miri, ignore = "there is no /proc")]
    fn the_code_of_this_test_is_resident() {
        let here = parsed as fn(&str) -> _ as usize as u64;
        let mut found = None;
        assert!(each(|m| {
            if m.range.holds(here) {
                found = Some((m.executable, m.resident > 0, m.name().is_empty()));
            }
        }));
        assert_eq!(found, Some((true, true, false)));
    }
}
