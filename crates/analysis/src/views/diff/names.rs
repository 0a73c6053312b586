//! The names of path elements, numbered over both recordings.

use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustc_hash::{FxHashMap, FxHasher};

use super::name::{By, Name};
use crate::attribution::{FunctionId, Functions};
use crate::attribution::{file_in_every_build, name_in_every_build};
use crate::model::{Frame, FrameId, Module, ModuleId, Process, Scope};

/// The key of the program itself, which can have any file name.
const PROGRAM: &str = "/";

/// The names so far.
#[derive(Default)]
pub(super) struct Names {
    names: Vec<Name>,
    /// The build-independent key of each name.
    keys: Vec<Key>,
    index: HashTable<u32>,
    /// Files by build-independent name.
    files: FxHashMap<Box<str>, FileId>,
    /// The builds of each file.
    builds: Vec<Build>,
}

/// Index into [`Names::builds`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FileId(u32);

/// The builds of a file: if there is only one, addresses identify calls.
enum Build {
    One(Vec<u8>),
    /// Several builds, or an unknown one.
    Several,
}

/// Names with equal keys are merged.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    /// A function's name and file.
    Function(Arc<str>, FileId),
    /// The name and file of a function, the name of its source file, and a line in it.
    Line(Arc<str>, FileId, Box<str>, u32),
    /// Functions without names of a file.
    Nameless(FileId),
    /// An address in a file of one build.
    Place(FileId, u64),
    /// Attribute and value of a scope.
    Scope(Arc<str>, Arc<str>),
}

fn hash(key: &Key) -> u64 {
    BuildHasherDefault::<FxHasher>::default().hash_one(key)
}

impl Names {
    /// Returns the name of each frame of a process. Earlier names may have to be merged afterwards.
    pub(super) fn of_frames(&mut self, process: &Process, by: By) -> Vec<u32> {
        let nowhere = (self.file("", &[]), Arc::from(""));
        let files: Vec<(FileId, Arc<str>)> =
            process.tables.modules.iter().map(|module| self.module(process, module)).collect();
        let functions = match by {
            By::Lines => Functions::of(process).by_line(process),
            By::Stacks | By::Scopes => Functions::of(process),
        };
        let of_function: Vec<u32> = (0..functions.len() as u32)
            .map(|id| {
                let frame =
                    &process.tables.frames[functions.first_frame(FunctionId(id)).0 as usize];
                let of_module = |ModuleId(id)| &files[id as usize];
                let (file, module) = frame.module.map_or(&nowhere, of_module);
                self.of_frame(frame, *file, module, by)
            })
            .collect();
        let frames = (0..process.tables.frames.len() as u32).map(FrameId);
        frames.map(|frame| of_function[functions.of_frame(frame).0 as usize]).collect()
    }

    /// Returns the replacements of earlier names: if a file turns out to have several builds, its
    /// addresses do not identify calls. `None` if nothing changes.
    pub(super) fn merge_places(&mut self) -> Option<Vec<u32>> {
        let is_merged = |key: &Key| matches!(key, Key::Place(file, _) if !self.is_one_build(*file));
        if !self.keys.iter().any(is_merged) {
            return None;
        }
        let mut new: Vec<u32> = (0..self.names.len() as u32).collect();
        for (id, stands) in new.iter_mut().enumerate() {
            let (Key::Place(file, _), Name::Place { module, .. }) =
                (&self.keys[id], &self.names[id])
            else {
                continue;
            };
            if !self.is_one_build(*file) {
                *stands = self.number(Key::Nameless(*file), Name::Nameless(module.clone()));
            }
        }
        Some(new)
    }

    /// Returns the name of a scope.
    pub(super) fn of_scope(&mut self, scope: &Scope) -> u32 {
        let (attribute, value) = (scope.attribute.clone(), scope.value.clone());
        let key = Key::Scope(attribute.clone(), value.clone());
        self.number(key, Name::Scope { attribute, value })
    }

    /// Returns whether the name is that of all functions without names of a file.
    pub(super) fn is_nameless(&self, name: u32) -> bool {
        matches!(self.keys[name as usize], Key::Nameless(_))
    }

    pub(super) fn finish(self) -> Vec<Name> {
        self.names
    }

    fn of_frame(&mut self, frame: &Frame, file: FileId, module: &Arc<str>, by: By) -> u32 {
        let (module, offset) = (module.clone(), frame.offset);
        match &frame.function {
            Some(name) if by == By::Lines => match (&frame.file, frame.line) {
                (Some(source), Some(line)) => self.line(name, file, module, (source, line)),
                _ => self.function(name, file, module),
            },
            Some(name) => self.function(name, file, module),
            None if self.is_one_build(file) => {
                self.number(Key::Place(file, offset), Name::Place { module, offset })
            }
            None => self.number(Key::Nameless(file), Name::Nameless(module)),
        }
    }

    fn function(&mut self, name: &Arc<str>, file: FileId, module: Arc<str>) -> u32 {
        let plain = name_in_every_build(name);
        let key = if plain.len() == name.len() { name.clone() } else { Arc::from(plain) };
        let new = Name::Function { name: name.clone(), module };
        let number = self.number(Key::Function(key, file), new);
        // Prefer the name of the whole function if another build splits it into parts.
        if let Name::Function { name: shown, .. } = &mut self.names[number as usize]
            && name.len() < shown.len()
        {
            *shown = name.clone();
        }
        number
    }

    /// Returns the name of a line. Directories of source files differ between builds.
    fn line(
        &mut self,
        name: &Arc<str>,
        file: FileId,
        module: Arc<str>,
        (source, line): (&str, u32),
    ) -> u32 {
        let source = source.rsplit('/').next().unwrap_or(source);
        let key = Key::Line(name_in_every_build(name).as_ref().into(), file, source.into(), line);
        let place = format!("{source}:{line}").into();
        self.number(key, Name::Line { name: name.clone(), module, place })
    }

    /// Returns the number of an equal name, or adds the name.
    fn number(&mut self, key: Key, name: Name) -> u32 {
        let same = |&id: &u32| self.keys[id as usize] == key;
        let of = |&id: &u32| hash(&self.keys[id as usize]);
        let vacant = match self.index.entry(hash(&key), same, of) {
            Entry::Occupied(found) => return *found.get(),
            Entry::Vacant(vacant) => vacant,
        };
        let id = self.names.len() as u32;
        vacant.insert(id);
        self.keys.push(key);
        self.names.push(name);
        id
    }

    /// Returns the file of a module, and its name.
    fn module(&mut self, process: &Process, module: &Module) -> (FileId, Arc<str>) {
        let name = module.file_name();
        let is_program = process.identity.program.rsplit('/').next() == Some(name);
        let in_every_build = if is_program { PROGRAM } else { file_in_every_build(name) };
        (self.file(in_every_build, &module.build_id), Arc::from(name))
    }

    /// Returns the file with this name, and notes its build.
    fn file(&mut self, name: &str, build_id: &[u8]) -> FileId {
        let next = FileId(self.builds.len() as u32);
        let file = *self.files.entry(name.into()).or_insert(next);
        if file == next {
            self.builds.push(Build::One(build_id.to_vec()));
        }
        let build = &mut self.builds[file.0 as usize];
        if build_id.is_empty() || matches!(build, Build::One(known) if known != build_id) {
            *build = Build::Several;
        }
        file
    }

    fn is_one_build(&self, file: FileId) -> bool {
        matches!(self.builds[file.0 as usize], Build::One(_))
    }
}
