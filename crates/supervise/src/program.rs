//! The program's file: finds it like execvp, and determines whether it can be recorded.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::prctl::get_no_new_privs;
use nix::unistd::{AccessFlags, eaccess, getgid, getuid};

use crate::elf::{Elf, STATIC_SANITIZER, own_machine};
use crate::exec;

/// The search path without `PATH`, as in execvp.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// The most nested script interpreters, as in the kernel.
const SCRIPTS_MAX: usize = 5;
/// Bytes of a script's first line that the kernel reads.
const LINE_BYTES_MAX: u64 = 256;

/// Finds the file of a program. A name without a slash is looked up in `path`, the value of PATH.
///
/// Errors: one line that contains the name.
pub fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, String> {
    let file = Path::new(name);
    if name.as_bytes().contains(&b'/') {
        return match file.metadata() {
            Ok(found) if found.is_dir() => {
                Err(format!("{}: is a directory, expected a program", file.display()))
            }
            Ok(_) => Ok(file.to_owned()),
            Err(error) => Err(format!("{}: {error}; expected a program to run", file.display())),
        };
    }
    let can_run = |file: &PathBuf| file.is_file() && eaccess(file, AccessFlags::X_OK).is_ok();
    let places = std::env::split_paths(path.unwrap_or(OsStr::new(DEFAULT_PATH)));
    let found = places.map(|place| place.join(name)).find(|file| !name.is_empty() && can_run(file));
    found.ok_or_else(|| format!("{}: not found in PATH; expected a program to run", file.display()))
}

/// Why a program, or a part of its memory, cannot be recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Obstacle {
    /// The file that is executed; for a script, its interpreter.
    pub file: PathBuf,
    /// The reason.
    pub reason: Reason,
}

/// A reason why recording is impossible or incomplete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It cannot load libraries.
    Static,
    /// It cannot load libraries, and could not be given one at its start, for this reason.
    NotInserted(String),
    /// It cannot load libraries, and uses Go's allocator.
    StaticGo,
    /// It is for this machine, which differs from the recorder's.
    Machine(String),
    /// It was built with this sanitizer, whose allocator must not be interposed.
    Sanitizer(Sanitizer),
    /// It gets privileges that its user does not have.
    Privileged(Privilege),
    /// It uses Go's own allocator. Only allocations of its C code are recorded.
    Go,
    /// It contains this allocator, whose functions have no symbols. Only other allocations are
    /// recorded.
    Unnamed(&'static str),
}

/// A sanitizer that replaces the allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sanitizer {
    name: &'static str,
    flag: &'static str,
}

impl Sanitizer {
    const fn new(name: &'static str, flag: &'static str) -> Sanitizer {
        Sanitizer { name, flag }
    }
}

/// Sanitizers, with a function that every program built with it has or needs, and the prefixes of
/// its libraries. UBSan is not included, because it does not replace the allocator.
const SANITIZERS: [(Sanitizer, &str, [&str; 2]); 5] = [
    (
        Sanitizer::new("AddressSanitizer", "-fsanitize=address"),
        "__asan_init",
        ["libasan.so", "libclang_rt.asan"],
    ),
    (
        Sanitizer::new("ThreadSanitizer", "-fsanitize=thread"),
        "__tsan_init",
        ["libtsan.so", "libclang_rt.tsan"],
    ),
    (
        Sanitizer::new("MemorySanitizer", "-fsanitize=memory"),
        "__msan_init",
        ["libmsan.so", "libclang_rt.msan"],
    ),
    (
        Sanitizer::new("LeakSanitizer", "-fsanitize=leak"),
        "__lsan_init",
        ["liblsan.so", "libclang_rt.lsan"],
    ),
    (
        Sanitizer::new("HWAddressSanitizer", "-fsanitize=hwaddress"),
        "__hwasan_init",
        ["libhwasan.so", "libclang_rt.hwasan"],
    ),
];
/// A sanitizer whose name is unknown, because the symbols of the program were stripped.
const UNKNOWN_SANITIZER: Sanitizer = Sanitizer::new("a sanitizer", "-fsanitize");

/// The source of privileges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Privilege {
    /// The set-user-id bit.
    User,
    /// The set-group-id bit.
    Group,
    /// File capabilities.
    Capabilities,
}

impl Obstacle {
    /// Returns the reason why a program cannot be recorded, given its file and the libraries that
    /// are already preloaded; `None` if there is no known reason, or if the program embeds the
    /// recorder.
    pub fn from_program(program: &Path, preloaded: Option<&OsStr>) -> Option<Obstacle> {
        let file = executed(program)?;
        let elf = Elf::read(&file).ok()??;
        let reason = if let Some(sanitizer) = sanitizer_of(&elf, preloaded) {
            Reason::Sanitizer(sanitizer)
        } else if !elf.is_of_this_machine() {
            Reason::Machine(elf.machine())
        } else if let Some(privilege) = privilege_of(&file) {
            Reason::Privileged(privilege)
        } else {
            reason_inside(&elf)?
        };
        Some(Obstacle { file, reason })
    }

    /// Returns whether the program is recorded except for a part of its memory.
    pub fn is_partial(&self) -> bool {
        matches!(self.reason, Reason::Go | Reason::Unnamed(_))
    }

    /// Returns whether it is a static program, which a command may give the recorder at its start.
    pub fn is_static(&self) -> bool {
        self.reason == Reason::Static
    }

    /// Returns the same obstacle, if a static program could not be given the recorder.
    pub fn not_inserted(self, why: impl fmt::Display) -> Obstacle {
        Obstacle { reason: Reason::NotInserted(why.to_string()), ..self }
    }

    /// Returns the message to print before the program starts.
    pub fn announcement(&self) -> String {
        let what = if self.is_partial() { "recorded in part" } else { "not recorded" };
        format!("{what}: {self}")
    }

    /// Returns whether the program would break, or its loader report an error, with a preloaded
    /// recorder.
    pub fn forbids_preloading(&self) -> bool {
        matches!(self.reason, Reason::Sanitizer(_) | Reason::Machine(_))
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.file.display())?;
        match &self.reason {
            Reason::Static => {
                write!(
                    f,
                    "is statically linked and does not have the recorder embedded; link it \
                     dynamically or embed the recorder"
                )
            }
            Reason::NotInserted(why) => write!(f, "is statically linked, and {why}"),
            Reason::StaticGo => write!(
                f,
                "is a Go program, statically linked: the recorder cannot be loaded, and would not \
                 see Go's own allocator; use runtime/pprof, or GODEBUG=gctrace=1 for totals"
            ),
            Reason::Go => write!(
                f,
                "is a Go program: allocations of its C code are recorded, those of Go's own \
                 allocator are not; use runtime/pprof for them"
            ),
            Reason::Unnamed(allocator) => write!(
                f,
                "contains {allocator}, whose functions cannot be found without a symbol table: \
                 what it allocates is not recorded; keep the symbol table with `strip \
                 --strip-debug` (in Cargo.toml `strip = \"debuginfo\"`)"
            ),
            Reason::Machine(machine) => {
                write!(f, "is a {machine} program; the recorder supports {} only", own_machine())
            }
            Reason::Sanitizer(Sanitizer { name, flag }) => write!(
                f,
                "is built with {name}, which replaces the allocator; build it without \
                 {flag} to record it"
            ),
            Reason::Privileged(privilege) => {
                let what = match privilege {
                    Privilege::User => "is set-user-id",
                    Privilege::Group => "is set-group-id",
                    Privilege::Capabilities => "has file capabilities",
                };
                write!(f, "{what}; the loader ignores LD_PRELOAD for privileged programs")
            }
        }
    }
}

/// Returns the reason found in the file itself.
fn reason_inside(elf: &Elf) -> Option<Reason> {
    let contents = elf.contents();
    match (elf.is_static_program(), contents.is_go) {
        (true, _) if contents.has_recorder => None,
        (true, true) => Some(Reason::StaticGo),
        (true, false) => Some(Reason::Static),
        (false, true) => Some(Reason::Go),
        (false, false) => contents.unnamed_allocator.map(Reason::Unnamed),
    }
}

/// Returns the ELF file that the kernel executes: for a script that of its interpreter, for other
/// files the shell. `None` if it cannot be determined.
fn executed(program: &Path) -> Option<PathBuf> {
    let mut file = program.to_owned();
    for _ in 0..SCRIPTS_MAX {
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        let line = first_bytes(&file)?;
        if line.starts_with(b"\x7fELF") {
            return Some(file);
        }
        let shell = || PathBuf::from(OsStr::from_bytes(exec::SHELL.to_bytes()));
        file = interpreter_in(&line).unwrap_or_else(shell);
    }
    None
}

fn first_bytes(file: &Path) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    File::open(file).ok()?.take(LINE_BYTES_MAX).read_to_end(&mut line).ok()?;
    Some(line)
}

/// Returns the interpreter that the first line of a script names.
fn interpreter_in(line: &[u8]) -> Option<PathBuf> {
    let line = line.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?.trim_ascii();
    let name = line.split(u8::is_ascii_whitespace).next().filter(|name| !name.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

/// Returns the interpreter of a script if that does not exist. The kernel reports then that the
/// script does not exist.
pub fn missing_interpreter(script: &Path) -> Option<PathBuf> {
    interpreter_in(&first_bytes(script)?).filter(|interpreter| !interpreter.exists())
}

/// Returns the sanitizer that the program is built with, or that is preloaded for its libraries.
fn sanitizer_of(elf: &Elf, preloaded: Option<&OsStr>) -> Option<Sanitizer> {
    let preloaded = preloaded.map(OsStr::as_bytes).unwrap_or_default();
    let words = preloaded.split(|byte| b": ".contains(byte));
    let files = words.filter_map(|word| word.rsplit(|&byte| byte == b'/').next());
    let names = || elf.names().chain(files.clone());
    let has = |name: &str| names().any(|other| other == name.as_bytes());
    let needs = |library: &str| names().any(|other| other.starts_with(library.as_bytes()));
    let known = SANITIZERS.into_iter().find(|(_, function, libraries)| {
        has(function) || libraries.iter().any(|library| needs(library))
    });
    // UBSan's runtime has no allocator functions.
    let is_unknown = elf.names().any(|name| name == STATIC_SANITIZER) && has("malloc_usable_size");
    known.map(|(sanitizer, ..)| sanitizer).or(is_unknown.then_some(UNKNOWN_SANITIZER))
}

/// Returns the source of privileges that a file grants beyond those of its user. Then the loader
/// ignores libraries that the user names.
fn privilege_of(file: &Path) -> Option<Privilege> {
    let metadata = fs::metadata(file).ok()?;
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let has = |metadata: &Metadata, bits: u32| metadata.mode() & bits == bits;
    if get_no_new_privs() == Ok(true) {
        None
    } else if has(&metadata, libc::S_ISUID) && metadata.uid() != user {
        Some(Privilege::User)
    } else if has(&metadata, libc::S_ISGID | libc::S_IXGRP) && metadata.gid() != group {
        Some(Privilege::Group)
    } else if user != 0 && exec::has_attribute(file, c"security.capability") {
        Some(Privilege::Capabilities)
    } else {
        None
    }
}

/// Checks whether the loader can load a library.
///
/// Errors: the file is missing or no shared object for this machine.
pub fn check_library(path: &Path) -> Result<Elf, String> {
    let not_one = || "not a 64-bit ELF shared object; build it with -shared -fPIC".to_owned();
    let metadata = fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "no such file; expected the path of a library".to_owned(),
        _ => error.to_string(),
    })?;
    if !metadata.is_file() {
        return Err(not_one());
    }
    match Elf::read(path).map_err(|error| error.to_string())? {
        Some(elf) if elf.is_library() => Ok(elf),
        Some(elf) if elf.is_program() && elf.is_of_this_machine() => {
            Err("an executable, expected a shared object; build it with -shared".to_owned())
        }
        _ => Err(not_one()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;
    use crate::fixtures::{build, can_build};
    use heaptide_fixtures::Scratch;

    fn reason(program: &Path) -> Option<Reason> {
        Obstacle::from_program(program, None).map(|obstacle| obstacle.reason)
    }

    fn sanitizer(program: &Path) -> Option<&'static str> {
        match reason(program) {
            Some(Reason::Sanitizer(sanitizer)) => Some(sanitizer.flag),
            _ => None,
        }
    }

    fn script(place: &Path, name: &str, text: &str) -> PathBuf {
        let path = place.join(name);
        fs::write(&path, text).expect("a script");
        path
    }

    #[test]
    fn programs_are_found_like_by_execvp() {
        let place = Scratch::new("find");
        let (first, second) = (place.join("first"), place.join("second"));
        for directory in [&first, &second] {
            fs::create_dir(directory).expect("a directory");
        }
        fs::create_dir(first.join("tool")).expect("a directory of that name");
        fs::write(first.join("data"), "x").expect("a file that nobody may run");
        for name in ["tool", "data"] {
            symlink("/bin/true", second.join(name)).expect("a program");
        }
        let path = std::env::join_paths([&first, &second]).expect("a PATH");
        let found = |name: &str| find(OsStr::new(name), Some(&path));
        assert_eq!(found("tool"), Ok(second.join("tool")));
        assert_eq!(found("data"), Ok(second.join("data")));
        assert!(found("other").is_err_and(|e| e.contains("other: not found in PATH")));
        assert!(found("").is_err());
        assert_eq!(found("/no/such"), find(OsStr::new("/no/such"), None));
        assert!(found("/").is_err_and(|e| e.contains("is a directory")));
        assert!(find(OsStr::new("sh"), None).is_ok_and(|file| file.ends_with("bin/sh")));
    }

    #[test]
    fn an_ordinary_program_can_be_recorded() {
        let place = Scratch::new("ordinary");
        let program = build(&place, "program", &[]);
        assert_eq!(Obstacle::from_program(&program, None), None);
        let own = format!("#! {} -x\n", program.display());
        for text in [own.as_str(), "#!/bin/sh\n", "echo not even a first line\n"] {
            assert_eq!(
                Obstacle::from_program(&script(&place, "script", text), None),
                None,
                "{text}"
            );
        }
        if can_build(&place, "ubsan", &["-fsanitize=undefined"]) {
            assert_eq!(Obstacle::from_program(&place.join("ubsan"), None), None);
        }
    }

    #[test]
    fn static_programs_and_scripts_for_them_are_static() {
        let place = Scratch::new("static");
        for flag in ["-static", "-static-pie"] {
            let program = build(&place, "program", &[flag]);
            let script = script(&place, "script", &format!("#!{}\n", program.display()));
            assert_eq!(reason(&program), Some(Reason::Static));
            let obstacle = Obstacle::from_program(&script, None).expect("an obstacle");
            assert_eq!((&obstacle.file, obstacle.forbids_preloading()), (&program, false));
            assert!(obstacle.to_string().contains("program is statically linked"), "{obstacle}");
        }
    }

    #[test]
    fn a_static_program_with_an_embedded_recorder_can_be_recorded() {
        let place = Scratch::new("embedded");
        let note = "__attribute__((section(\".note.heaptide\"), used, aligned(4)))\n\
                    static const struct { int name, text, kind; char bytes[20]; } note =\n\
                    { 18, 0, 1, \"Heaptide-embedded\" };\n";
        fs::write(place.join("note.c"), note).expect("a source");
        let source = place.join("note.c").display().to_string();
        let program = build(&place, "program", &["-static", &source]);
        assert_eq!(reason(&program), None);
    }

    #[test]
    fn go_and_unnamed_allocators_are_partial_obstacles() {
        let place = Scratch::new("partly");
        let text = |name: &str, text: &str| {
            fs::write(place.join(name), text).expect("a source");
            place.join(name).display().to_string()
        };
        let go = "__asm__(\".section .go.buildinfo,\\\"aw\\\"\\n.quad 1\\n.previous\");\n";
        let go = build(&place, "go", &[&text("go.c", go)]);
        assert_eq!(reason(&go), Some(Reason::Go));
        let obstacle = Obstacle::from_program(&go, None).expect("an obstacle");
        assert!(obstacle.is_partial() && !obstacle.forbids_preloading());
        assert!(obstacle.announcement().starts_with("recorded in part: "));
        let constant = "const char *const allocator_text = \"mimalloc: error: %s\";\n";
        let constant = text("text.c", constant);
        assert_eq!(reason(&build(&place, "whole", &[&constant])), None, "it has symbols");
        let stripped = build(&place, "stripped", &[&constant, "-s"]);
        assert_eq!(reason(&stripped), Some(Reason::Unnamed("mimalloc")));
        let python = text("python.c", "void PyMem_Malloc(void) {}\n");
        let python = build(&place, "python", &[&constant, &python, "-s", "-rdynamic"]);
        assert_eq!(reason(&python), None, "CPython has its own use for it");
    }

    #[test]
    fn sanitizers_that_replace_the_allocator_are_found() {
        let place = Scratch::new("sanitizers");
        let mut found = 0;
        for flag in ["address", "thread", "leak", "hwaddress", "memory"] {
            let flag = format!("-fsanitize={flag}");
            for more in ["-O0", "-static-libasan", "-static-libtsan", "-static-liblsan", "-s"] {
                if can_build(&place, "program", &[&flag, more]) {
                    assert_eq!(sanitizer(&place.join("program")), Some(&*flag), "{flag} {more}");
                    found += 1;
                }
            }
            if can_build(&place, "program", &[&flag, "-static-libasan", "-s"]) {
                assert!(sanitizer(&place.join("program")).is_some(), "{flag}, stripped");
            }
        }
        assert!(found > 0, "the compiler has no sanitizer");
    }

    #[test]
    fn a_preloaded_sanitizer_is_found() {
        let place = Scratch::new("preloaded");
        let program = build(&place, "program", &[]);
        let of = |preloaded: &str| Obstacle::from_program(&program, Some(OsStr::new(preloaded)));
        assert_eq!(of("/lib/libother.so:/lib/libasanitary.so"), None);
        for preloaded in ["/usr/lib/libasan.so.8", "x.so libclang_rt.asan-x86_64.so"] {
            assert!(of(preloaded).is_some_and(|o| o.forbids_preloading()), "{preloaded}");
        }
    }

    #[test]
    fn programs_with_more_rights_than_their_user_are_privileged() {
        let place = Scratch::new("privileged");
        let program = build(&place, "program", &[]);
        if !getuid().is_root() {
            return; // only root can change the owner
        }
        let mode = |mode| fs::set_permissions(&program, fs::Permissions::from_mode(mode));
        mode(0o4755).expect("a mode");
        assert_eq!(reason(&program), None, "of our own user");
        chown(&program, Some(1), Some(1)).expect("another owner");
        for (bits, expected) in [
            (0o755, None),
            (0o4755, Some(Privilege::User)),
            (0o2755, Some(Privilege::Group)),
            (0o2745, None),
        ] {
            mode(bits).expect("a mode");
            assert_eq!(reason(&program), expected.map(Reason::Privileged), "{bits:o}");
        }
    }

    #[test]
    fn libraries_are_checked_before_they_are_loaded() {
        let place = Scratch::new("libraries");
        let library = build(&place, "library.so", &["-shared", "-fPIC"]);
        assert!(check_library(&library).is_ok());
        let why = |path: &Path| check_library(path).expect_err("no library");
        assert!(why(&build(&place, "program", &[])).contains("an executable, expected"));
        assert!(why(&place).contains("not a 64-bit ELF shared object"));
        assert!(why(&place.join("program.c")).contains("not a 64-bit ELF shared object"));
        assert!(why(&place.join("missing")).contains("no such file"));
    }
}
