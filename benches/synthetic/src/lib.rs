//! Synthetic recordings with any number of distinct stacks, to measure reading at scale.
//!
//! Stacks are 40 frames deep and share their outer part with the previous one, with about four new
//! frames, like in a compiler. Functions have names like those of C++, of 200 characters on
//! average; one has 30,000. Equal plans create equal recordings.

#![forbid(unsafe_code)]

mod names;
mod profile;

use std::io;
use std::path::Path;

use heaptide_analysis::files::file_names::SYMBOLS_FILE;
use heaptide_analysis::recording::metadata::{self, Metadata, Status, StatusKind};
use heaptide_analysis::symbols;
use serde::Serialize;

use crate::names::Function;
use heaptide_fixtures::Random;

/// Frames per stack.
pub const DEPTH: usize = 40;
/// The process id in the recording.
pub const PID: u32 = 4242;
/// The most call sites per function.
pub(crate) const CALLS: u64 = 3;
/// The most functions of a recording; recordings of few stacks have fewer.
const FUNCTIONS: u32 = 120_000;

/// The parameters of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Distinct stacks.
    pub stacks: u32,
    /// Different seeds create different recordings of the same kind.
    pub seed: u64,
}

/// Writes a sealed recording into a new directory.
///
/// Errors: the directory already exists, or cannot be written.
///
/// ```
/// use heaptide_synthetic::{Plan, write};
/// # let directory = std::env::temp_dir().join(format!("synthetic-{}", std::process::id()));
/// # let _ = std::fs::remove_dir_all(&directory);
/// write(&directory, &Plan { stacks: 100, seed: 1 })?;
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write(directory: &Path, plan: &Plan) -> io::Result<()> {
    std::fs::create_dir(directory)?;
    let mut random = Random::new(plan.seed);
    let functions = names::functions(plan.stacks.clamp(100, FUNCTIONS), &mut random);
    let profile = profile::make(plan.stacks, &functions, &mut random);
    std::fs::write(directory.join(format!("{PID}-0.profile")), profile)?;
    let file = io::BufWriter::new(std::fs::File::create(directory.join(SYMBOLS_FILE))?);
    serde_json::to_writer(file, &Symbols::of(&functions))?;
    let metadata = Metadata {
        version: metadata::VERSION,
        heaptide: env!("CARGO_PKG_VERSION").to_owned(),
        command: vec!["synthetic".to_owned(), plan.stacks.to_string()],
        root_pid: PID,
        status: Some(Status { kind: StatusKind::Exited, code: 0 }),
        ..Metadata::default()
    };
    metadata.write(directory).map_err(io::Error::other)?;
    heaptide_analysis::seal(directory, &mut |_, _| {}).map_err(io::Error::other)?;
    Ok(())
}

/// The contents of `symbols.json`.
#[derive(Serialize)]
struct Symbols<'a> {
    version: u32,
    modules: Vec<ModuleSymbols<'a>>,
}

#[derive(Serialize)]
struct ModuleSymbols<'a> {
    path: &'a str,
    build_id: String,
    strings: Vec<&'a str>,
    places: Vec<[u64; 4]>,
}

impl<'a> Symbols<'a> {
    fn of(functions: &'a [Function]) -> Symbols<'a> {
        let modules = profile::MODULES.iter().zip(0..).map(|(path, module)| ModuleSymbols {
            path,
            build_id: format!("{:02x}", profile::build_id(module)[0]),
            strings: Vec::new(),
            places: Vec::new(),
        });
        let mut symbols = Symbols { version: symbols::VERSION, modules: modules.collect() };
        for (function, index) in functions.iter().zip(0..) {
            let module = &mut symbols.modules[function.module as usize];
            module.strings.extend([function.name.as_str(), function.file.as_str()]);
            let file = module.strings.len() as u64;
            for call in 0..CALLS {
                let offset = profile::offset(index, call);
                module.places.push([offset, file - 1, file, 10 + 7 * call]);
            }
        }
        symbols
    }
}
