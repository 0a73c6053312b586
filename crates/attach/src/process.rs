//! A process to attach to, and the state that determines when it is safe.

use std::fs;
use std::path::Path;

use heaptide_format::attachment::{ATTACHMENT_SYMBOL, ATTACHMENT_VERSION, Attachment};
use nix::unistd::Pid;
use zerocopy::FromBytes;

use crate::error::{Error, State, field};
use crate::frames::Frame;
use crate::machine;
use crate::memory::{Mapping, Memory, maps, parse_all};
use crate::modules::{Module, Modules};
use crate::threads::Stopped;

/// A process.
#[derive(Debug)]
pub struct Process {
    /// Its process id.
    pub pid: Pid,
    /// Its memory.
    pub memory: Memory,
    /// Its modules.
    pub modules: Modules,
    mappings: Vec<Mapping>,
    /// The text of which these are.
    maps: Vec<u8>,
}

/// The recorder's library in a process.
#[derive(Clone, Copy, Debug)]
pub struct Loaded {
    /// The address of its [`Attachment`].
    pub at: u64,
    /// The value of the [`Attachment`].
    pub state: Attachment,
}

/// Libraries of sanitizers that replace the allocator, and symbols that they define in programs.
const SANITIZER_LIBRARIES: [&str; 5] = ["libasan", "libtsan", "libmsan", "libhwasan", "liblsan"];
const SANITIZERS: [&str; 5] =
    ["__asan_init", "__tsan_init", "__msan_init", "__hwasan_init", "__lsan_init"];

/// Functions during which a thread may hold a lock that is needed to load a library.
const LOCKING: [&str; 55] = [
    "malloc",
    "free",
    "cfree",
    "calloc",
    "realloc",
    "reallocarray",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "malloc_trim",
    "malloc_stats",
    "malloc_info",
    "mallinfo",
    "mallinfo2",
    "mallopt",
    "__libc_malloc",
    "__libc_free",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_memalign",
    "fork",
    "__fork",
    "_Fork",
    "__libc_fork",
    "vfork",
    "posix_spawn",
    "posix_spawnp",
    "system",
    "popen",
    "pthread_create",
    "pthread_exit",
    "pthread_atfork",
    "__register_atfork",
    "pthread_setattr_default_np",
    "dlopen",
    "dlmopen",
    "dlclose",
    "dlsym",
    "dlvsym",
    "dladdr",
    "dladdr1",
    "dlinfo",
    "dl_iterate_phdr",
    "__libc_dlopen_mode",
    "__cxa_atexit",
    "on_exit",
    "at_quick_exit",
    "exit",
    "quick_exit",
    "__cxa_finalize",
    "__call_tls_dtors",
    "__nptl_deallocate_stack",
    "__libc_freeres",
];

impl Process {
    /// Opens a process.
    ///
    /// Errors: it does not exist, it cannot be recorded, or it may not be traced.
    pub fn open(pid: Pid) -> Result<Process, Error> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))
            .map_err(|_| Error::new(format!("there is no process {pid}")))?;
        let field = |name: &str| field(&status, name);
        if let Some(group) = field("Tgid").filter(|group| *group != pid.to_string()) {
            return Err(Error::new(format!("{pid} is a thread of process {group}")));
        }
        if let Some(reason) = State::of(pid).why_not(pid) {
            return Err(Error::new(reason));
        }
        if field("VmSize").is_none() {
            return Err(Error::new(format!("{pid} is a kernel thread")));
        }
        if field("x86_Thread_features").is_some_and(|features| features.contains("shstk")) {
            return Err(Error::new(format!(
                "process {pid} has a shadow stack, which prevents injected calls; start it with \
                 `heaptide run`"
            )));
        }
        let process = Process::look_at(pid)?;
        process.check()?;
        process.modules.read_all();
        Ok(process)
    }

    /// Opens a process that need not be one to which a command can attach.
    ///
    /// Errors: it does not exist, or it may not be traced.
    pub fn look_at(pid: Pid) -> Result<Process, Error> {
        let refused = |error| Error::refused(pid, &error);
        let memory = Memory::open(pid).map_err(refused)?;
        let maps = maps(pid).map_err(refused)?;
        let mappings = parse_all(&maps);
        let modules = Modules::of(pid, &mappings);
        Ok(Process { pid, memory, modules, mappings, maps })
    }

    /// Checks whether the recorder can be loaded.
    fn check(&self) -> Result<(), Error> {
        let pid = self.pid;
        let mut head = [0u8; 20];
        let own = fs::File::open(format!("/proc/{pid}/exe"));
        let read = own.and_then(|file| {
            use std::os::unix::fs::FileExt;
            file.read_exact_at(&mut head, 0)
        });
        let is_of_this_machine = head.starts_with(b"\x7fELF\x02") && head[18..] == machine::ELF;
        if read.is_ok() && !is_of_this_machine {
            return Err(Error::new(format!("process {pid} has a different architecture")));
        }
        let brings = |names: &[&str]| {
            let mut files = self.modules.iter().map(Module::file_name);
            files.any(|file| names.iter().any(|name| file.starts_with(name)))
        };
        let first = self.modules.iter().next();
        let is_checked =
            |module: &Module| SANITIZERS.iter().any(|name| module.symbol(name).is_some());
        if brings(&SANITIZER_LIBRARIES) || first.is_some_and(is_checked) {
            return Err(Error::new(format!(
                "process {pid} was built with a sanitizer, which replaces the allocator"
            )));
        }
        if brings(&["vgpreload_"]) {
            return Err(Error::new(format!("process {pid} runs under valgrind")));
        }
        if self.modules.libc().is_some_and(Module::is_musl) {
            return Err(Error::new(format!(
                "process {pid} uses musl, whose loader can load the recorder only at startup \
                 (thread-local storage); start it with `heaptide run`"
            )));
        }
        if self.modules.libc().is_none() {
            return Err(Error::new(format!(
                "process {pid} is statically linked; start it with `heaptide run`, or control it with \
                 `heaptide ctl` if it is recorded"
            )));
        }
        Ok(())
    }

    /// Updates modules and mappings.
    ///
    /// Errors: the process has ended.
    pub fn look_again(&mut self) -> Result<(), Error> {
        let maps = maps(self.pid).map_err(|error| Error::refused(self.pid, &error))?;
        if maps != self.maps {
            self.mappings = parse_all(&maps);
            self.modules.renew(&self.mappings);
            self.maps = maps;
        }
        Ok(())
    }

    /// Returns whether the recorder is loaded now.
    pub fn has_recorder(pid: Pid) -> bool {
        Modules::new(pid).is_ok_and(|modules| recorder_in(&modules).is_some())
    }

    /// Returns the module of the recorder if it is loaded.
    pub fn recorder(&self) -> Option<&Module> {
        recorder_in(&self.modules)
    }

    /// Returns the library's state if it is loaded.
    ///
    /// Errors: it is another version, or the process has ended.
    pub fn loaded(&self) -> Result<Option<Loaded>, Error> {
        let Some(module) = self.recorder() else { return Ok(None) };
        let other = || {
            Error::new(format!(
                "process {} contains another version of the recorder, {}",
                self.pid, module.path
            ))
        };
        let at = module.symbol(ATTACHMENT_SYMBOL).ok_or_else(other)?;
        let mut bytes = vec![0u8; size_of::<Attachment>()];
        self.memory.read(at, &mut bytes).map_err(|error| Error::refused(self.pid, &error))?;
        let state = Attachment::read_from_bytes(&bytes).map_err(|_| other())?;
        if state.version != ATTACHMENT_VERSION {
            return Err(other());
        }
        Ok(Some(Loaded { at, state }))
    }

    /// Returns the file whose mapping contains an address, with the path that the process uses.
    pub fn file_at(&self, address: u64) -> Option<&Path> {
        let holds = |mapping: &&Mapping| (mapping.low..mapping.high).contains(&address);
        let mapping = self.mappings.iter().find(holds)?;
        Some(Path::new(&mapping.path)).filter(|path| path.is_absolute())
    }

    /// Returns whether a stopped thread runs on the stack that it was created with, which has space
    /// below.
    pub fn is_on_own_stack(&self, thread: &Stopped) -> bool {
        let sp = machine::below_red_zone(&thread.registers);
        let pointer = machine::thread_pointer(&thread.registers);
        let holds = |mapping: &&Mapping| (mapping.low..mapping.high).contains(&sp);
        // The mapping may include stacks of other threads, and may be newer than the list.
        self.mappings.iter().find(holds).is_some_and(|mapping| {
            let is_main = mapping.path == "[stack]";
            is_main || mapping.path.is_empty() && (sp..sp + STACK_MAX).contains(&pointer)
        })
    }

    /// Returns whether a stopped thread can load a library: it is not in the allocator, the loader
    /// or a signal handler, and holds no lock that is needed to load one.
    pub fn may_load(&self, thread: &Stopped) -> bool {
        if !self.is_on_own_stack(thread) {
            return false;
        }
        let is_waiting = machine::is_waiting(&thread.registers);
        let frames = thread.frames(&self.memory, &self.modules);
        let Some(first) = frames.first() else { return false };
        let Some(inner) = self.modules.holding(first.pc) else { return false };
        if !is_waiting && (inner.is_libc() || self.brings_allocator(inner)) {
            return false;
        }
        frames.iter().all(|frame| self.may_load_in(frame)) && !has_handler(&frames)
    }

    fn may_load_in(&self, frame: &Frame) -> bool {
        let at = if frame.is_interrupted { frame.pc } else { frame.pc.wrapping_sub(1) };
        let Some(module) = self.modules.holding(at) else { return true };
        if module.is_loader() {
            return false;
        }
        if module.is_libc() {
            return module.function_at(at).is_none_or(|name| !LOCKING.contains(&name));
        }
        let is_program = self.modules.iter().next().is_some_and(|first| first.low == module.low);
        is_program || !self.brings_allocator(module)
    }

    /// Returns whether a module has an allocator of its own, whose locks a thread in it may hold.
    fn brings_allocator(&self, module: &Module) -> bool {
        !module.is_libc() && !module.is_loader() && module.symbol("malloc").is_some()
    }

    /// Returns whether a stopped thread is in the loader.
    pub fn is_in_loader(&self, frames: &[Frame]) -> bool {
        frames.iter().any(|frame| {
            let Some(module) = self.modules.holding(frame.pc.wrapping_sub(1)) else { return false };
            let is_loading = |name: &str| ["dlopen", "dlclose", "dlmopen"].contains(&name);
            module.is_loader()
                || module.is_musl() && module.function_at(frame.pc).is_some_and(is_loading)
        })
    }
}

/// The largest stack of a thread, in bytes.
const STACK_MAX: u64 = 1 << 30;

/// Returns whether the frames include a signal handler.
fn has_handler(frames: &[Frame]) -> bool {
    frames.iter().skip(1).any(|frame| frame.is_interrupted)
}

fn recorder_in(modules: &Modules) -> Option<&Module> {
    modules.iter().find(|module| {
        let name = module.file_name();
        let is_named = name.starts_with("libheaptide") || name.starts_with("memfd:heaptide");
        is_named && module.symbol("heaptide_interface").is_some()
    })
}
