//! The names that paths go through, numbered over both recordings.

use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::Arc;

use hashbrown::HashTable;
use rustc_hash::{FxHashMap, FxHasher};

use super::Name;
use super::alike::{file_in_every_build, name_in_every_build};
use crate::aggregate::{FunctionId, Functions};
use crate::model::{ModuleId, Process, Scope};

/// The program itself, whatever its file is called.
const PROGRAM: &str = "/";

/// The names so far.
#[derive(Default)]
pub(super) struct Names {
    names: Vec<Name>,
    /// Of each name, what it is in every build.
    keys: Vec<Key>,
    index: HashTable<u32>,
    /// Files by what they are in every build, in order of appearance.
    files: FxHashMap<Box<str>, u32>,
}

/// By what names are the same: a function's name and file, or what a scope is called.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    Function(Arc<str>, u32),
    Nameless(u32),
    Scope(Arc<str>, Arc<str>),
}

fn hash(key: &Key) -> u64 {
    BuildHasherDefault::<FxHasher>::default().hash_one(key)
}

impl Names {
    /// The name of each frame of a process.
    pub(super) fn of_frames(&mut self, process: &Process) -> Vec<u32> {
        let files: Vec<(u32, Arc<str>)> =
            process.modules.iter().map(|m| self.file(process, m)).collect();
        let nowhere = (self.file_number(""), Arc::from(""));
        let functions = Functions::of(process);
        let of_function: Vec<u32> = (0..functions.len() as u32)
            .map(|id| {
                let frame = &process.frames[functions.first_frame(FunctionId(id)).0 as usize];
                let (number, file) =
                    frame.module.map_or(&nowhere, |ModuleId(id)| &files[id as usize]);
                match &frame.function {
                    Some(name) => self.function(name, *number, file),
                    None => self.number(Key::Nameless(*number), Name::Nameless(file.clone())),
                }
            })
            .collect();
        let frames = 0..process.frames.len() as u32;
        frames
            .map(|id| of_function[functions.of_frame(crate::model::FrameId(id)).0 as usize])
            .collect()
    }

    /// The name of a scope.
    pub(super) fn of_scope(&mut self, scope: &Scope) -> u32 {
        let (attribute, value) = (scope.attribute.clone(), scope.value.clone());
        let key = Key::Scope(attribute.clone(), value.clone());
        self.number(key, Name::Scope { attribute, value })
    }

    /// Whether it stands for functions without names.
    pub(super) fn is_nameless(&self, name: u32) -> bool {
        matches!(self.keys[name as usize], Key::Nameless(_))
    }

    pub(super) fn finish(self) -> Vec<Name> {
        self.names
    }

    fn function(&mut self, name: &Arc<str>, file: u32, module: &Arc<str>) -> u32 {
        let plain = name_in_every_build(name);
        let key = if plain.len() == name.len() { name.clone() } else { Arc::from(plain) };
        let new = Name::Function { name: name.clone(), module: module.clone() };
        let number = self.number(Key::Function(key, file), new);
        // The name of the whole function, where another build has parts of it.
        if let Name::Function { name: shown, .. } = &mut self.names[number as usize] {
            if name.len() < shown.len() {
                *shown = name.clone();
            }
        }
        number
    }

    /// The number of what is the same, or of the new name.
    fn number(&mut self, key: Key, name: Name) -> u32 {
        let same = |&id: &u32| self.keys[id as usize] == key;
        let of = |&id: &u32| hash(&self.keys[id as usize]);
        let vacant = match self.index.entry(hash(&key), same, of) {
            hashbrown::hash_table::Entry::Occupied(found) => return *found.get(),
            hashbrown::hash_table::Entry::Vacant(vacant) => vacant,
        };
        let id = self.names.len() as u32;
        vacant.insert(id);
        self.keys.push(key);
        self.names.push(name);
        id
    }

    /// The number and name of a module's file.
    fn file(&mut self, process: &Process, module: &crate::model::Module) -> (u32, Arc<str>) {
        let file = module.file_name();
        let is_program = process.program.rsplit('/').next() == Some(file);
        let number = self.file_number(if is_program { PROGRAM } else { file_in_every_build(file) });
        (number, Arc::from(file))
    }

    fn file_number(&mut self, file: &str) -> u32 {
        let next = self.files.len() as u32;
        *self.files.entry(file.into()).or_insert(next)
    }
}
