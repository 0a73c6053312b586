//! Names for addresses: `symbols.json`, and the engine that fills it from the modules' files.
//!
//! A name is looked up only in a file that is the recorded one: with the same build-id or, without
//! a build-id, not changed since the process started.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::Builder;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::files::file_names::SYMBOLS_FILE;
use crate::files::json::{check_version, read_if_there, replace};

mod apart;
mod cython;
mod debug_info;
mod demangle;
mod elf;
mod empty_packs;
mod engine;
mod fortran;
pub(crate) mod jit;
pub(crate) mod jit_name;
mod located;
mod name;
mod qualified;
mod references;
mod sources;
mod split;
mod symbol_table;
mod wanted;

pub use apart::look_up_apart;
pub use demangle::Demangler;
pub use elf::ElfFile;
pub use engine::{Blazesym, answer_apart, own_names};
pub use jit::Code;
use name::BATCH;
pub use name::{Engine, Known, Name};
pub use sources::{DebugFiles, Sources, is_another_build, is_debug_file_of, separate_debug_file};
use wanted::hex;
pub use wanted::{ModuleKey, Wanted};

/// The version of its layout; later versions are rejected.
pub const VERSION: u32 = 1;
/// Maximum size in bytes: names of some ten million functions.
const LIMIT: u64 = 2 << 30;
/// Number of threads that look modules up.
const THREADS: usize = 2;

/// The names of one module's addresses.
#[derive(Debug, Default)]
pub struct ModuleSymbols {
    strings: Vec<Arc<str>>,
    /// Empty until a string is added, because reading does not need it.
    string_ids: FxHashMap<Arc<str>, u32>,
    /// Range in `names` by address.
    places: FxHashMap<u64, (u32, u32)>,
    /// Function and file as string ids plus one, line; 0 is none.
    names: Vec<[u32; 3]>,
    /// Replaced functions of generated code by address, in order of time.
    earlier: FxHashMap<u64, Vec<Earlier>>,
}

/// A function that was replaced by another one.
#[derive(Clone, Copy, Debug)]
struct Earlier {
    /// When it was replaced, nanoseconds from the start of the process image.
    until_ns: u64,
    /// String id plus one.
    function: u32,
}

impl ModuleSymbols {
    /// Stores the functions at an address, outermost first, replacing earlier ones.
    pub fn insert(&mut self, address: u64, names: &[Name<'_>]) {
        let start = self.names.len() as u32;
        for name in names {
            let (function, file) = (self.string(name.function), self.string(name.file));
            self.names.push([function, file, name.line.unwrap_or(0)]);
        }
        self.places.insert(address, (start, names.len() as u32));
    }

    /// Returns the functions at an address, outermost first; `None` if it was never looked up.
    pub fn get(&self, address: u64) -> Option<impl Iterator<Item = Known<'_>>> {
        let &(start, count) = self.places.get(&address)?;
        let names = &self.names[start as usize..(start + count) as usize];
        Some(names.iter().map(|&[function, file, line]| Known {
            function: self.text(function),
            file: self.text(file),
            line: Some(line).filter(|&l| l != 0),
        }))
    }

    /// Returns whether any address has functions that other code has replaced.
    pub(crate) fn has_earlier(&self) -> bool {
        !self.earlier.is_empty()
    }

    /// Returns the function at an address and time, in nanoseconds from the start of the process
    /// image, if other code has replaced it since.
    pub(crate) fn replaced_since(&self, address: u64, time_ns: u64) -> Option<&Arc<str>> {
        let earlier = self.earlier.get(&address)?;
        let then = earlier.iter().find(|earlier| earlier.until_ns > time_ns)?;
        self.text(then.function)
    }

    /// Stores that a function was at an address until a time.
    fn insert_earlier(&mut self, address: u64, until_ns: u64, function: &str) {
        let function = self.string(Some(function));
        self.earlier.entry(address).or_default().push(Earlier { until_ns, function });
    }

    /// Returns whether the stored names of an address have more than these: a function, or its
    /// source.
    fn knows_more(&self, address: u64, names: &[Name<'_>]) -> bool {
        let old: Vec<_> = self.get(address).into_iter().flatten().collect();
        let has_source = |file: Option<&str>| file.is_some();
        let old_source = old.iter().any(|name| has_source(name.file.map(AsRef::as_ref)));
        let new_source = names.iter().any(|name| has_source(name.file));
        (names.is_empty() && !old.is_empty()) || (old_source && !new_source)
    }

    fn packed_earlier(&self) -> Vec<[u64; 3]> {
        let mut addresses: Vec<_> = self.earlier.iter().collect();
        addresses.sort_unstable_by_key(|&(address, _)| address);
        let row = |address, one: &Earlier| [address, one.until_ns, one.function.into()];
        let rows = |(&address, earlier): (&u64, &Vec<Earlier>)| {
            earlier.iter().map(|one| row(address, one)).collect::<Vec<_>>()
        };
        addresses.into_iter().flat_map(rows).collect()
    }

    fn string(&mut self, text: Option<&str>) -> u32 {
        let Some(text) = text else { return 0 };
        if self.string_ids.is_empty() {
            let ids = self.strings.iter().zip(1..).map(|(text, id)| (text.clone(), id));
            self.string_ids = ids.collect();
        }
        if let Some(&id) = self.string_ids.get(text) {
            return id;
        }
        let shared: Arc<str> = Arc::from(text);
        self.strings.push(shared.clone());
        let id = self.strings.len() as u32;
        self.string_ids.insert(shared, id);
        id
    }

    fn text(&self, id: u32) -> Option<&Arc<str>> {
        self.strings.get((id as usize).checked_sub(1)?)
    }
}

/// Returns whether a line of [`Symbols::complete`] is about debug information that the compiler
/// wrote into `.dwo` files, which are missing.
pub fn is_about_split(line: &str) -> bool {
    line.contains(engine::WITHOUT_SPLIT)
}

/// How names are looked up.
pub struct Lookup<'a> {
    /// Reads names from a file.
    pub engine: &'a dyn Engine,
    /// Finds the files of modules.
    pub sources: &'a Sources,
    /// Whether known addresses are looked up again. Known names stay if less is found.
    pub again: bool,
}

/// The names of all modules of a recording.
#[derive(Debug, Default)]
pub struct Symbols {
    modules: FxHashMap<ModuleKey, ModuleSymbols>,
}

/// `symbols.json`. A place is an address, followed by function, file and line of each function
/// there, outermost first: strings as index plus one, 0 for none.
#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    modules: Vec<StoredModule>,
}

#[derive(Serialize, Deserialize)]
struct StoredModule {
    path: String,
    /// The path in hexadecimal digits if it is not UTF-8; then `path` contains replacement
    /// characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    path_bytes: String,
    build_id: String,
    strings: Vec<String>,
    places: Vec<Vec<u64>>,
    /// Replaced functions of generated code: address, time of replacement in nanoseconds from the
    /// start of the process image, and the function as string index plus one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    earlier: Vec<[u64; 3]>,
}

impl Symbols {
    /// Reads the symbols stored with a recording; `None` if there are none.
    ///
    /// Errors: the file cannot be read, does not parse, or has a later version.
    pub fn read(directory: &Path) -> Result<Option<Symbols>, Error> {
        let path = directory.join(SYMBOLS_FILE);
        let Some(bytes) = read_if_there(&path, LIMIT)? else {
            return Ok(None);
        };
        check_version(&path, &bytes, VERSION)?;
        match serde_json::from_slice::<Stored>(&bytes) {
            Ok(stored) => Ok(Some(Symbols {
                modules: stored.modules.into_iter().map(StoredModule::unpack).collect(),
            })),
            Err(source) => Err(Error::Json { path, source }),
        }
    }

    /// Stores the symbols with a recording, replacing the file atomically.
    pub fn write(&self, directory: &Path) -> Result<(), Error> {
        let path = directory.join(SYMBOLS_FILE);
        let mut modules: Vec<_> =
            self.modules.iter().map(|(k, m)| StoredModule::pack(k, m)).collect();
        modules.sort_by(|a, b| (&a.path, &a.build_id).cmp(&(&b.path, &b.build_id)));
        let stored = Stored { version: VERSION, modules };
        let text = serde_json::to_vec(&stored)
            .map_err(|source| Error::Json { path: path.clone(), source })?;
        replace(&path, &text)
    }

    /// Returns the names of a module.
    pub fn module(&self, key: &ModuleKey) -> Option<&ModuleSymbols> {
        self.modules.get(key)
    }

    /// Looks up addresses. `progress` receives the number of addresses looked up and of all
    /// addresses. `roots` returns the root directories of processes in containers. Returns a line
    /// for each file that is missing or has changed.
    pub fn complete(
        &mut self,
        wanted: Vec<Wanted>,
        lookup: &Lookup<'_>,
        roots: &dyn Fn() -> Vec<PathBuf>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Vec<(ModuleKey, String)> {
        let mut problems = Vec::new();
        let mut tasks = Vec::new();
        for mut want in wanted {
            if let Some(known) = self.modules.get(&want.module).filter(|_| !lookup.again) {
                want.addresses.retain(|address| !known.places.contains_key(address));
            }
            if want.addresses.is_empty() {
                continue;
            }
            let found = lookup.sources.find(&want, roots);
            problems.extend(found.problems.into_iter().map(|line| (want.module.clone(), line)));
            if !found.files.is_empty() {
                tasks.push(Task { want, files: found.files });
            }
        }
        tasks.sort_by_key(|task| std::cmp::Reverse(task.want.addresses.len()));
        let total = tasks.iter().map(|task| task.want.addresses.len()).sum();
        let mut done = 0;
        in_parallel(&tasks, lookup.engine, &mut |message| match message {
            Message::Progress(addresses) => {
                done += addresses;
                progress(done, total);
            }
            Message::Found(index, found, failure) => {
                let module = &tasks[index].want.module;
                self.merge(module, found);
                let line = |why| (module.clone(), format!("{}: {why}", module.shown()));
                problems.extend(failure.map(line));
            }
        });
        problems
    }

    /// Looks up addresses of code generated by a JIT compiler; addresses without a name are looked
    /// up again the next time. `start_ns` is the monotonic clock at the start of the process image.
    pub(crate) fn complete_jit(
        &mut self,
        module: ModuleKey,
        mut addresses: Vec<u64>,
        code: &jit::Code,
        start_ns: u64,
    ) {
        addresses.sort_unstable();
        let mut found = ModuleSymbols::default();
        let Some(earlier) = code.earlier(&addresses) else { return };
        for (address, until_ns, name) in earlier {
            found.insert_earlier(address, until_ns.saturating_sub(start_ns), name);
        }
        for &address in &addresses {
            let last = || found.text(found.earlier.get(&address)?.last()?.function).cloned();
            let name = code.name(address).map(Arc::from).or_else(last);
            if let Some(name) = &name {
                found.insert(address, &[Name { function: Some(name), ..Name::default() }]);
            }
        }
        if !found.places.is_empty() {
            self.merge(&module, found);
        }
    }

    /// Adds the names of addresses that are not known here.
    pub(crate) fn absorb(&mut self, others: Symbols) {
        for (module, mut found) in others.modules {
            if let Some(known) = self.modules.get(&module) {
                found.places.retain(|address, _| !known.places.contains_key(address));
            }
            self.merge(&module, found);
        }
    }

    fn merge(&mut self, module: &ModuleKey, found: ModuleSymbols) {
        let Some(known) = self.modules.get_mut(module) else {
            self.modules.insert(module.clone(), found);
            return;
        };
        for &address in found.places.keys() {
            let names: Vec<_> = found.get(address).into_iter().flatten().map(Name::from).collect();
            if !known.knows_more(address, &names) {
                known.insert(address, &names);
            }
        }
        for (&address, earlier) in &found.earlier {
            if known.earlier.contains_key(&address) {
                continue;
            }
            for Earlier { until_ns, function } in earlier {
                if let Some(function) = found.text(*function) {
                    known.insert_earlier(address, *until_ns, function);
                }
            }
        }
    }
}

enum Message {
    Progress(usize),
    Found(usize, ModuleSymbols, Option<String>),
}

/// A module to look up, with at least one file.
struct Task {
    want: Wanted,
    files: Vec<PathBuf>,
}

/// Looks modules up on a few threads and calls `sink` on this thread with the results.
fn in_parallel(tasks: &[Task], engine: &dyn Engine, sink: &mut dyn FnMut(Message)) {
    let next = AtomicUsize::new(0);
    let work = |sender: mpsc::Sender<Message>| {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(index) else { break };
            let (found, failure) = look_up(task, engine, &sender);
            if sender.send(Message::Found(index, found, failure)).is_err() {
                break; // the receiver ends only with the scope
            }
        }
    };
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let start = |_| {
            let sender = sender.clone();
            Builder::new().spawn_scoped(scope, || work(sender)).ok()
        };
        if (0..THREADS.min(tasks.len())).map_while(start).count() == 0 {
            work(sender.clone()); // no thread: results wait for the receiver
        }
        drop(sender);
        receiver.iter().for_each(sink);
    });
}

/// Looks up the addresses of a module in its files, in their order; in each file only addresses
/// without a name in the previous ones. Returns why the last file could not be read, if it failed.
fn look_up(
    task: &Task,
    engine: &dyn Engine,
    sender: &mpsc::Sender<Message>,
) -> (ModuleSymbols, Option<String>) {
    let mut found = ModuleSymbols::default();
    let mut failure = None;
    let mut addresses = task.want.addresses.clone();
    for (index, file) in task.files.iter().enumerate() {
        let is_first = index == 0;
        let mut untold = 0;
        let answer = engine.look_up(file, &addresses, &mut |address, names| {
            found.insert(address, names);
            untold += 1;
            if untold == BATCH && is_first {
                let _ = sender.send(Message::Progress(untold)); // fails only without a receiver
                untold = 0;
            }
        });
        let _ = sender.send(Message::Progress(if is_first { untold } else { 0 }));
        failure = answer.err();
        addresses.retain(|address| found.places.get(address).is_none_or(|place| place.1 == 0));
        if addresses.is_empty() {
            break;
        }
    }
    (found, failure)
}

impl StoredModule {
    fn pack(key: &ModuleKey, symbols: &ModuleSymbols) -> StoredModule {
        let mut addresses: Vec<_> = symbols.places.iter().collect();
        addresses.sort_unstable();
        let place = |(&address, &(start, count)): (&u64, &(u32, u32))| {
            let names = &symbols.names[start as usize..(start + count) as usize];
            let numbers = names.iter().flatten().map(|&n| u64::from(n));
            std::iter::once(address).chain(numbers).collect()
        };
        let path = key.path.as_os_str().as_bytes();
        StoredModule {
            path: String::from_utf8_lossy(path).into_owned(),
            path_bytes: key.path.to_str().map_or_else(|| hex(path), |_| String::new()),
            build_id: hex(&key.build_id),
            strings: symbols.strings.iter().map(|text| text.to_string()).collect(),
            places: addresses.into_iter().map(place).collect(),
            earlier: symbols.packed_earlier(),
        }
    }

    fn unpack(self) -> (ModuleKey, ModuleSymbols) {
        let strings = self.strings.into_iter().map(Arc::from).collect();
        let mut symbols = ModuleSymbols { strings, ..ModuleSymbols::default() };
        let small = |n: u64| u32::try_from(n).unwrap_or(0);
        for place in &self.places {
            let Some((&address, numbers)) = place.split_first() else {
                continue;
            };
            let start = symbols.names.len() as u32;
            let names = numbers.chunks_exact(3).map(|n| [small(n[0]), small(n[1]), small(n[2])]);
            symbols.names.extend(names);
            symbols.places.insert(address, (start, symbols.names.len() as u32 - start));
        }
        for &[address, until_ns, function] in &self.earlier {
            let function = small(function);
            let earlier = symbols.earlier.entry(address).or_default();
            earlier.push(Earlier { until_ns, function });
        }
        let path = if self.path_bytes.is_empty() {
            PathBuf::from(self.path)
        } else {
            PathBuf::from(OsString::from_vec(unhex(&self.path_bytes)))
        };
        (ModuleKey { path, build_id: unhex(&self.build_id) }, symbols)
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |c: u8| char::from(c).to_digit(16).unwrap_or(0) as u8;
    text.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}
