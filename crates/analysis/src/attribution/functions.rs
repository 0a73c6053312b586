//! The functions of a process.

use rustc_hash::FxHashMap;

use super::known::{Role, known};
use crate::model::{CodeKind, Frame, FrameId, Module, Process, StackId};
use crate::threads;

/// Index into a process's [`Functions`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FunctionId(pub u32);

/// The distinct functions of a process: frames with the same name and module belong to the same
/// function; a frame without a name is a function of its own. Python functions with the same name
/// are distinguished by their source file.
#[derive(Debug)]
pub struct Functions {
    of_frame: Vec<FunctionId>,
    /// The first frame of each function.
    first_frame: Vec<FrameId>,
}

impl Functions {
    /// Finds the functions of a process.
    pub fn of(process: &Process) -> Functions {
        let mut ids = FxHashMap::default();
        let mut functions = Functions { of_frame: Vec::new(), first_frame: Vec::new() };
        for (frame, index) in process.tables.frames.iter().zip(0..) {
            let module = match frame.code {
                CodeKind::Python => frame.file.as_deref(),
                _ => frame.module.map(|m| process.tables.modules[m.0 as usize].path.as_str()),
            };
            let offset = if frame.function.is_some() { 0 } else { frame.offset };
            let id = *ids.entry((frame.function.as_deref(), module, offset)).or_insert_with(|| {
                functions.first_frame.push(FrameId(index));
                FunctionId((functions.first_frame.len() - 1) as u32)
            });
            functions.of_frame.push(id);
        }
        functions
    }

    /// Returns the lines of the functions in place of the functions: frames of a function with the
    /// same source line.
    ///
    /// ```
    /// use heaptide_analysis::attribution::Functions;
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # let process =
    /// #     heaptide_analysis::model::Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// let functions = Functions::of(&process);
    /// assert!(functions.by_line(&process).len() >= functions.len());
    /// ```
    pub fn by_line(&self, process: &Process) -> Functions {
        let mut ids = FxHashMap::default();
        let mut lines = Functions { of_frame: Vec::new(), first_frame: Vec::new() };
        for (frame, index) in process.tables.frames.iter().zip(0..) {
            let function = self.of_frame(FrameId(index));
            let place = (function, frame.file.as_deref(), frame.line);
            let id = *ids.entry(place).or_insert_with(|| {
                lines.first_frame.push(FrameId(index));
                FunctionId((lines.first_frame.len() - 1) as u32)
            });
            lines.of_frame.push(id);
        }
        lines
    }

    /// Returns the function of a frame.
    pub fn of_frame(&self, frame: FrameId) -> FunctionId {
        self.of_frame[frame.0 as usize]
    }

    /// Returns a frame of a function, for its name, module and file.
    pub fn first_frame(&self, function: FunctionId) -> FrameId {
        self.first_frame[function.0 as usize]
    }

    /// Returns the number of functions.
    pub fn len(&self) -> usize {
        self.first_frame.len()
    }

    /// Returns whether there are no functions.
    pub fn is_empty(&self) -> bool {
        self.first_frame.is_empty()
    }

    /// Returns the role of each function according to its name and file.
    pub(super) fn roles(&self, process: &Process) -> Vec<Role> {
        // Allocations of an extension are attributed to the Python function that called it.
        let has_python = process.has_python();
        let is_runtime = |m: &Module| {
            known().is_runtime(m.file_name())
                || has_python && EXTENSIONS.iter().any(|part| m.path.contains(part))
        };
        let kind = |module: &Module| Code {
            is_runtime: is_runtime(module),
            is_library: known().is_library(module.file_name()),
        };
        let kinds: Vec<Code> = process.tables.modules.iter().map(kind).collect();
        let role = |frame: &FrameId| {
            let frame = &process.tables.frames[frame.0 as usize];
            role_of(frame, frame.module.map(|module| kinds[module.0 as usize]))
        };
        let roles = threads::in_parts(self.len(), |part| -> Vec<Role> {
            self.first_frame[part].iter().map(role).collect()
        });
        let mut roles = roles.concat();
        self.find_starters(process, &mut roles);
        roles
    }

    /// Finds functions without names in the C library that start a program and its threads: they
    /// are outermost frames, or called by such frames.
    fn find_starters(&self, process: &Process, roles: &mut [Role]) {
        let stacks = &process.tables.stacks;
        let is_outermost = |id: StackId| stacks[id.0 as usize].parent == StackId(0);
        for node in stacks.iter().skip(1) {
            let frame = &process.tables.frames[node.frame.0 as usize];
            let caller = || self.of_frame(stacks[node.parent.0 as usize].frame).0 as usize;
            let is_nameless = frame.function.is_none() && is_of_libc(process, frame);
            if is_nameless
                && (node.parent == StackId(0)
                    || is_outermost(node.parent)
                    || roles[caller()] == Role::Starter)
            {
                roles[self.of_frame(node.frame).0 as usize] = Role::Starter;
            }
        }
    }
}

/// Returns whether a frame is in the C library.
pub fn is_of_libc(process: &Process, frame: &Frame) -> bool {
    const FILES: [&str; 4] = ["libc.so", "libc-2.", "libpthread", "ld-musl-"];
    let module = frame.module.and_then(|module| process.tables.modules.get(module.0 as usize));
    module.is_some_and(|module| FILES.iter().any(|start| module.file_name().starts_with(start)))
}

/// Parts of the paths of installed Python extensions.
const EXTENSIONS: [&str; 3] = ["/site-packages/", "/dist-packages/", "/lib-dynload/"];

/// Returns whether the source of a frame belongs to Rust's standard library.
fn is_of_rust_library(frame: &Frame) -> bool {
    let file = frame.file.as_deref().and_then(|file| file.strip_prefix("/rustc/"));
    file.is_some_and(|file| file.contains("/library/"))
}

/// The kind of a module's code.
#[derive(Clone, Copy)]
struct Code {
    /// It executes a program.
    is_runtime: bool,
    /// Its functions without names allocate for their callers.
    is_library: bool,
}

/// Returns the role of the function of a frame in this code; `None`: in no module.
fn role_of(frame: &Frame, code: Option<Code>) -> Role {
    if frame.code == CodeKind::Python {
        let (function, file) = (frame.function.as_deref(), frame.file.as_deref());
        return known().python_role(function.unwrap_or_default(), file.unwrap_or_default());
    }
    let by_name = match &frame.function {
        Some(_) if frame.is_scope() => return Role::Owner,
        Some(function) => match known().role(function) {
            // Debug information can have the name without its path.
            Role::Owner if is_of_rust_library(frame) => Role::Container,
            role => role,
        },
        // The callers of code without a name that a runtime compiled, or of a standard library, are
        // more informative.
        None if code.is_none_or(|code| code.is_library) => Role::Container,
        None => Role::Owner,
    };
    by_name.in_runtime(code.is_some_and(|code| code.is_runtime))
}
