//! Names of code that a JIT compiler made, from the files that it writes for profilers:
//! `perf-PID.map`, a line for each function, and `jit-PID.dump` (Linux,
//! tools/perf/Documentation/jitdump-specification.txt).
//!
//! Code replaces other code at an address. A dump has times, so the name is that of the code which
//! was there when the stack was recorded first; of a map it is the last one.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use super::wanted::ModuleKey;
use crate::files::input;
use crate::text;

/// The largest file that is read, in bytes: a dump has the code of every function.
const LIMIT: u64 = 512 << 20;

/// The process image whose code has these names.
pub(crate) struct Image<'a> {
    /// Its pid, as it calls itself.
    pub(crate) pid: u32,
    /// When it began, nanoseconds since 1970-01-01 UTC.
    pub(crate) start_realtime_ns: u64,
    /// When it was seen last.
    pub(crate) seen_realtime_ns: u64,
    /// Its profile.
    pub(crate) profile: &'a Path,
}

impl Image<'_> {
    /// Returns the module that stands for its code in stored names.
    pub(crate) fn module(&self) -> ModuleKey {
        module(self.pid, self.start_realtime_ns)
    }

    /// Reads what is known of its code; `None` if there is no file of it. A map is `/tmp` of one of
    /// `roots`; a dump may also be one of `mapped`, as JIT compilers map it for profilers.
    pub(crate) fn code(&self, roots: &[PathBuf], mapped: &[PathBuf]) -> Option<Code> {
        let dump = format!("jit-{}.dump", self.pid);
        let named = mapped.iter().filter(|path| path.ends_with(&dump)).cloned();
        let in_tmp = |name: String| roots.iter().map(move |root| root.join("tmp").join(&name));
        let dumps = named.chain(in_tmp(dump.clone())).chain([PathBuf::from(&dump)]);
        let dump = dumps
            .filter(|file| self.is_own(file))
            .find_map(|file| Code::from_dump(&input::read(&file, LIMIT).ok()?));
        let mut maps = in_tmp(format!("perf-{}.map", self.pid)).filter(|file| self.is_own(file));
        dump.or_else(|| {
            maps.find_map(|file| Some(Code::from_map(&input::read(&file, LIMIT).ok()?)))
        })
    }

    /// Returns whether a file is of the owner of the profile, and was written while the process
    /// ran: pids come round again, and anyone may write to `/tmp`.
    fn is_own(&self, file: &Path) -> bool {
        let (Ok(found), Ok(profile)) = (file.symlink_metadata(), fs::metadata(self.profile)) else {
            return false;
        };
        let moment = |ns| UNIX_EPOCH + Duration::from_nanos(ns);
        let first = moment(self.start_realtime_ns);
        let last = moment(self.seen_realtime_ns) + IDLE;
        let is_of_time =
            found.modified().is_ok_and(|time| time + CLOCK_TICK >= first && time <= last);
        found.is_file() && found.uid() == profile.uid() && is_of_time
    }
}

/// Returns the module that stands for the code of a process image in stored names.
pub(crate) fn module(pid: u32, start_realtime_ns: u64) -> ModuleKey {
    ModuleKey { path: format!("[jit {pid} {start_realtime_ns}]").into(), build_id: Vec::new() }
}

/// Times of files are those of the last tick of the clock.
const CLOCK_TICK: Duration = Duration::from_millis(20);
/// A process may compile so long after its last allocation.
const IDLE: Duration = Duration::from_secs(60);

/// Functions that a JIT compiler made, by address.
#[derive(Debug, Default)]
pub struct Code {
    /// Those that nothing replaced, by first address: the address behind the last, and the name.
    functions: BTreeMap<u64, (u64, String)>,
    /// Those that were replaced, in order of the file.
    replaced: Vec<Replaced>,
}

/// A function in whose place there is another one.
#[derive(Debug)]
struct Replaced {
    /// From the first address to the one behind the last.
    range: Range<u64>,
    /// When it was replaced, nanoseconds of the monotonic clock.
    until_ns: u64,
    name: String,
}

impl Code {
    /// Reads a dump, or else a map.
    ///
    /// ```
    /// use heaptide_analysis::symbols::Code;
    /// let code = Code::read(b"1000 10 first\n1010 20 second one\n");
    /// assert_eq!(code.name(0x1012), Some("second one"));
    /// ```
    pub fn read(bytes: &[u8]) -> Code {
        Code::from_dump(bytes).unwrap_or_else(|| Code::from_map(bytes))
    }

    /// Returns the functions, each with its first address and the one behind its last, in order.
    pub fn functions(&self) -> impl Iterator<Item = (u64, u64, &str)> {
        self.functions.iter().map(|(&start, &(end, ref name))| (start, end, &**name))
    }

    /// Returns the name of the function at an address.
    pub fn name(&self, address: u64) -> Option<&str> {
        let (_, (end, name)) = self.functions.range(..=address).next_back()?;
        (address < *end).then_some(name)
    }

    /// Returns the names that code at these addresses, which are in order, had before the last one:
    /// the address, when that code was replaced in nanoseconds of the monotonic clock, and the
    /// name. Of each address they are in order of time.
    pub fn earlier<'a>(
        &'a self,
        addresses: &'a [u64],
    ) -> impl Iterator<Item = (u64, u64, &'a str)> {
        self.replaced.iter().flat_map(|code| {
            let first = addresses.partition_point(|&address| address < code.range.start);
            let here = addresses[first..].iter().take_while(|&&address| address < code.range.end);
            here.map(|&address| (address, code.until_ns, &*code.name))
        })
    }

    /// Reads lines of first address and size in hexadecimal digits, and name. Others are left out.
    fn from_map(bytes: &[u8]) -> Code {
        let mut code = Code::default();
        for line in bytes.split(|&byte| byte == b'\n') {
            let line = text::from_bytes(line);
            let mut parts = line.splitn(3, ' ');
            let mut number = || {
                let digits = parts.next()?;
                u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok()
            };
            if let (Some(start), Some(size), Some(name)) = (number(), number(), parts.next()) {
                code.add(start, size, name.trim(), None);
            }
        }
        code
    }

    /// Reads a dump up to where it is damaged or not yet written; `None` if it is none.
    fn from_dump(bytes: &[u8]) -> Option<Code> {
        if read_u32(bytes, 0)? != MAGIC {
            return None;
        }
        let mut code = Code::default();
        let has_times = read_u64(bytes, FLAGS_AT).is_some_and(|flags| flags & OTHER_CLOCK == 0);
        let mut rest = bytes.get(read_u32(bytes, HEADER_SIZE_AT)? as usize..)?;
        while let Some(record) = read_u32(rest, 4).and_then(|size| rest.get(..size as usize)) {
            let time_ns = read_u64(record, TIME_AT);
            let Some(time_ns) = time_ns else { break };
            if code.add_record(record, has_times.then_some(time_ns)).is_none() {
                break;
            }
            rest = &rest[record.len()..];
        }
        Some(code)
    }

    /// Reads a record of a dump, with its time if that is known; `None` if it is too short.
    fn add_record(&mut self, record: &[u8], time_ns: Option<u64>) -> Option<()> {
        match read_u32(record, 0)? {
            LOAD => {
                let name = record.get(LOAD_NAME_AT..)?.split(|&byte| byte == 0).next()?;
                let (start, size) = (read_u64(record, 32)?, read_u64(record, 40)?);
                self.add(start, size, &text::from_bytes(name), time_ns);
            }
            MOVE => {
                let (from, to) = (read_u64(record, 32)?, read_u64(record, 40)?);
                let size = read_u64(record, 48)?;
                if let Some((end, name)) = self.functions.remove(&from) {
                    self.add(to, size, &name, time_ns);
                    self.replaced(from, end, name, time_ns);
                }
            }
            _ => {}
        }
        Some(())
    }

    /// Adds a function in place of those that it overlaps, at a time if that is known.
    fn add(&mut self, start: u64, size: u64, name: &str, time_ns: Option<u64>) {
        let Some(end) = start.checked_add(size).filter(|_| size > 0 && !name.is_empty()) else {
            return;
        };
        while let Some((&other, &(other_end, _))) = self.functions.range(..end).next_back() {
            if other_end <= start {
                break;
            }
            if let Some((other_end, name)) = self.functions.remove(&other) {
                self.replaced(other, other_end, name, time_ns);
            }
        }
        self.functions.insert(start, (end, name.to_owned()));
    }

    fn replaced(&mut self, start: u64, end: u64, name: String, time_ns: Option<u64>) {
        if let Some(until_ns) = time_ns {
            self.replaced.push(Replaced { range: start..end, until_ns, name });
        }
    }
}

/// `JiTD`, as a little-endian machine writes it.
const MAGIC: u32 = 0x4a69_5444;
const HEADER_SIZE_AT: usize = 8;
const FLAGS_AT: usize = 32;
/// In the flags: times are of the time stamp counter.
const OTHER_CLOCK: u64 = 1;
/// Every record begins with its kind, its size and its time.
const TIME_AT: usize = 8;
/// Code was made: pid, tid, address of the mapping, address, size and number of the code, name.
const LOAD: u32 = 0;
const LOAD_NAME_AT: usize = 56;
/// Code was moved: pid, tid, address of the mapping, old and new address, size, number.
const MOVE: u32 = 1;

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_name_of_an_address_is_taken() {
        let map = "1000 10 first\n0x1010 20 second one\nrubbish\n1008 10 third\n2000 0 empty\n";
        let code = Code::from_map(map.as_bytes());
        let names: Vec<_> = [0xfff, 0x1000, 0x1008, 0x1017, 0x1018, 0x2000]
            .into_iter()
            .map(|address| code.name(address).unwrap_or("-"))
            .collect();
        assert_eq!(names, ["-", "-", "third", "third", "-", "-"]);
        let code = Code::from_map(b"1000 10 first\n1010 20 second one");
        assert_eq!((code.name(0x100f), code.name(0x102f)), (Some("first"), Some("second one")));
    }

    fn record(kind: u32, time_ns: u64, words: &[u64], name: &[u8]) -> Vec<u8> {
        let size = (24 + 8 * words.len() + name.len()) as u32;
        let mut bytes = [kind.to_le_bytes(), size.to_le_bytes()].concat();
        bytes.extend(time_ns.to_le_bytes());
        bytes.extend([0; 8]); // pid and tid
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.extend(name);
        bytes
    }

    fn dump(records: &[Vec<u8>]) -> Vec<u8> {
        let mut dump = [MAGIC.to_le_bytes(), 1u32.to_le_bytes(), 40u32.to_le_bytes()].concat();
        dump.resize(40, 0);
        dump.extend(records.concat());
        dump
    }

    #[test]
    fn dumps_have_the_names_of_all_times() {
        let mut dump = dump(&[
            record(LOAD, 10, &[0, 0x1000, 0x10, 1], b"first\0"),
            record(LOAD, 20, &[0, 0x1000, 0x10, 2], b"second\0"),
            record(MOVE, 30, &[0, 0x1000, 0x2000, 0x10, 2], b""),
            record(LOAD, 40, &[0, 0x1008, 0x10, 3], b"third\0"),
        ]);
        let code = Code::from_dump(&dump).expect("a dump");
        let earlier: Vec<_> = code.earlier(&[0x1000, 0x1008, 0x1010, 0x2000]).collect();
        let expected = [
            (0x1000, 20, "first"),
            (0x1008, 20, "first"),
            (0x1000, 30, "second"),
            (0x1008, 30, "second"),
        ];
        assert_eq!(earlier, expected);
        assert_eq!((code.name(0x1008), code.name(0x2008)), (Some("third"), Some("second")));
        dump[FLAGS_AT] = 1;
        let code = Code::from_dump(&dump).expect("a dump");
        assert_eq!(code.earlier(&[0x1000]).count(), 0, "of another clock");
    }

    #[test]
    fn dumps_are_read_up_to_where_they_are_damaged() {
        let dump = dump(&[
            record(LOAD, 0, &[0, 0x1000, 0x10, 1], b"first\0code"),
            record(LOAD, 0, &[0, 0x3000, 0x10, 2], b"second\0code"),
            record(MOVE, 0, &[0, 0x1000, 0x2000, 0x10, 1], b""),
            record(7, 0, &[], b"of another version"),
        ]);
        let whole = Code::from_dump(&dump).expect("a dump");
        let names = [0x1000, 0x2008, 0x3000].map(|address| whole.name(address));
        assert_eq!(names, [None, Some("first"), Some("second")]);
        for end in 0..dump.len() {
            let cut = Code::from_dump(&dump[..end]).unwrap_or_default();
            assert!(cut.functions.len() <= 2);
        }
        assert!(Code::from_dump(b"perf-12.map").is_none());
    }
}
