//! The mappings of the process in `/proc/self/maps`.

use crate::sys::confined;
use crate::sys::kernel::{self, Fd, Path};
use crate::sys::range::Range;
use crate::sys::text::{Text, end_of_line};

/// A line of maps.
pub struct Mapping<'a> {
    pub range: Range,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
    pub shared: bool,
    pub offset: u64,
    pub inode: u64,
    pub path: &'a [u8],
}

/// Returns the range of the readable mapping that contains an address.
pub fn mapping_of(address: u64, buffer: &mut [u8]) -> Option<Range> {
    if !confined::may_call() {
        return None;
    }
    let mut found = None;
    each_mapping(buffer, |m| {
        if m.range.holds(address) && m.readable {
            found = Some(m.range);
        }
        m.range.low <= address
    });
    found
}

/// Reads maps line by line through `buffer`, until `visit` returns false. Lines longer than the
/// buffer are skipped.
pub fn each_mapping(buffer: &mut [u8], mut visit: impl FnMut(Mapping<'_>) -> bool) {
    let Some(Ok(fd)) = Path::new(b"/proc/self/maps\0").map(|p| kernel::open(p, kernel::O_RDONLY))
    else {
        return;
    };
    let mut filled = 0;
    while let n @ 1.. = read_more(fd, &mut buffer[filled..]) {
        filled += n;
        let mut used = 0;
        while let Some(length) = end_of_line(&buffer[used..filled]) {
            let line = &mut buffer[used..=used + length];
            used += length + 1;
            let length = unescape(line);
            if !parse_line(&line[..length]).is_none_or(&mut visit) {
                kernel::close(fd);
                return;
            }
        }
        if used == 0 && filled == buffer.len() {
            used = filled;
        }
        buffer.copy_within(used..filled, 0);
        filled -= used;
    }
    kernel::close(fd);
}

/// Replaces `\012` in a file's name, which stands for a newline in maps, by a newline, unless the
/// name contains that text itself. `line` is a line of maps with its end, which is overwritten.
/// Returns its new length without the end. Has no code for panics, which takes space on the deepest
/// stack of the recorder.
fn unescape(line: &mut [u8]) -> usize {
    const NEWLINE: &[u8] = b"\\012";
    const EXISTS: usize = 0;
    const SHORTER: usize = NEWLINE.len() - 1;
    let mut length = line.len().saturating_sub(1);
    if let Some(end) = line.last_mut() {
        *end = 0;
    }
    let escape = |line: &[u8]| line.windows(NEWLINE.len()).position(|w| w == NEWLINE);
    let mut from = 0;
    while let Some(at) = line.get(from..length).and_then(escape).map(|at| from + at) {
        let start = line.iter().position(|&b| b == b'/');
        let name = start.and_then(|start| line.get(start..)).and_then(Path::new);
        if name.is_some_and(|name| kernel::may_access(name, EXISTS)) {
            break;
        }
        if let Some(first) = line.get_mut(at) {
            *first = b'\n';
        }
        for index in at + NEWLINE.len()..=length {
            let byte = line.get(index).copied().unwrap_or(0);
            if let Some(to) = line.get_mut(index - SHORTER) {
                *to = byte;
            }
        }
        length -= SHORTER;
        from = at + 1;
    }
    length
}

fn read_more(fd: Fd, room: &mut [u8]) -> usize {
    kernel::read(fd, room).unwrap_or(0)
}

/// Returns a path without what the kernel appends to that of a file that was replaced or removed. A
/// file of the same name with the same build ID has the same names.
pub fn kept_path(path: &[u8]) -> &[u8] {
    path.strip_suffix(b" (deleted)").unwrap_or(path)
}

/// Parses a line of maps, without its end.
pub fn parse_line(line: &[u8]) -> Option<Mapping<'_>> {
    let mut fields = line.splitn(6, |&b| b == b' ');
    let (addresses, permissions) = (fields.next()?, fields.next()?);
    let offset = hexadecimal(fields.next()?)?;
    let _device = fields.next()?;
    let inode = fields.next()?.iter().fold(0u64, |n, &b| n * 10 + (b & 15) as u64);
    let path = fields.next().unwrap_or(b"").trim_ascii_start();
    let dash = addresses.iter().position(|&b| b == b'-')?;
    let low = hexadecimal(&addresses[..dash])?;
    let high = hexadecimal(&addresses[dash + 1..])?;
    Some(Mapping {
        range: Range { low, high },
        readable: permissions.first() == Some(&b'r'),
        writable: permissions.get(1) == Some(&b'w'),
        executable: permissions.get(2) == Some(&b'x'),
        shared: permissions.get(3) == Some(&b's'),
        offset,
        inode,
        path,
    })
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |n, &b| {
        let digit = (b as char).to_digit(16)?;
        Some(n << 4 | digit as u64)
    })
}

/// Appends the path of the file that this code was loaded from.
pub fn own_file<const N: usize>(path: &mut Text<N>) {
    // In the constants of that file.
    static HERE: u8 = 1;
    let mut buffer = [0u8; 16 << 10];
    let own = &raw const HERE as u64;
    each_mapping(&mut buffer, |mapping| {
        let is_own = mapping.range.holds(own);
        if is_own && mapping.path.first() == Some(&b'/') {
            path.push(mapping.path);
        }
        !is_own
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let line = b"7f00001000-7f00003000 r-xp 00002000 fe:01 1234   /lib/a file (deleted)";
        let mapping = parse_line(line).expect("a mapping");
        assert_eq!(mapping.range, Range { low: 0x7f_0000_1000, high: 0x7f_0000_3000 });
        assert!(mapping.readable && mapping.executable && !mapping.writable && !mapping.shared);
        let shared = parse_line(b"1000-2000 rw-s 00000000 00:01 7 /memfd:x").expect("a mapping");
        assert!(shared.readable && shared.writable && shared.shared);
        assert_eq!((mapping.offset, mapping.inode), (0x2000, 1234));
        assert_eq!(mapping.path, b"/lib/a file (deleted)");
        assert_eq!(kept_path(mapping.path), b"/lib/a file");
        let anonymous = parse_line(b"00400000-00401000 ---p 00000000 00:00 0").expect("a mapping");
        assert!(!anonymous.readable && !anonymous.executable && anonymous.path.is_empty());
        for broken in [&b""[..], b"7f00 r--p 0 0:0 0", b"x-y r--p 0 0:0 0", b"1-2 r--p"] {
            assert!(parse_line(broken).is_none());
        }
    }

    #[test]
    fn a_line_break_in_a_name() {
        let unescaped = |line: &[u8]| {
            let mut line = line.to_vec();
            let length = unescape(&mut line);
            line.truncate(length);
            line
        };
        assert_eq!(unescaped(b"1-2 /no/such\\012file\n"), b"1-2 /no/such\nfile");
        assert_eq!(unescaped(b"1-2 /no/such\n"), b"1-2 /no/such");
    }

    #[test]
    #[cfg_attr(miri, ignore = "there is no /proc")]
    fn this_test_is_in_a_mapping_that_can_be_executed() {
        let here = lines_of_maps as fn() as usize as u64;
        let mut found = None;
        each_mapping(&mut [0; 4096], |m| {
            if m.range.holds(here) {
                found = Some((m.readable, m.executable));
            }
            true
        });
        assert_eq!(found, Some((true, true)));
    }
}
