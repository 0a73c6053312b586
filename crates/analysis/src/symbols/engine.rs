//! Looks up functions at addresses of a file with blazesym; demangles with [`super::demangle`].

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};
use rustc_hash::FxHashMap;

use super::apart::{self, Use};
use super::debug_info::DebugInfo;
use super::demangle::{Demangler, is_mangled};
use super::elf::ElfFile;
use super::located::{Answer, Located};
use super::name::{BATCH, Engine, Name};
use super::qualified::{self, Which};
use super::references;
use super::symbol_table::SymbolTable;
use crate::text;

/// The engine, which uses debug info, else symbol tables and MiniDebugInfo.
#[derive(Debug, Default)]
pub struct Blazesym;

impl Engine for Blazesym {
    fn look_up(
        &self,
        file: &Path,
        addresses: &[u64],
        each: &mut dyn FnMut(u64, &[Name<'_>]),
    ) -> Result<(), String> {
        apart::look_up(file, addresses, each)
            .unwrap_or_else(|| here(file, addresses, Use::DebugInfo, each))
    }
}

/// Looks up names for the process that started this one, if these arguments are those of such a
/// process; returns its exit status.
pub fn answer_apart(arguments: &[OsString]) -> Option<u8> {
    apart::answer(arguments, here)
}

/// Looks up names in this process.
fn here(
    file: &Path,
    addresses: &[u64],
    used: Use,
    each: &mut dyn FnMut(u64, &[Name<'_>]),
) -> Result<(), String> {
    let opened = ElfFile::open(file).ok();
    if let Some(table) = opened.as_ref().and_then(SymbolTable::read) {
        from_table(&table, addresses, each);
        return Ok(());
    }
    let blocking = opened.as_ref().and_then(|elf| references::blocking(elf, file));
    if used == Use::SymbolTable || blocking.is_some() {
        from_symbols(file, addresses, each)?;
        return blocking.map_or(Ok(()), |path| Err(references::refusal(&path)));
    }
    from_debug_info(file, addresses, each)
}

/// Files do not change while they are read, and names are demangled here.
fn symbolizer() -> Symbolizer {
    Symbolizer::builder().enable_auto_reload(false).enable_demangling(false).build()
}

/// Looks up names in the symbol table only.
fn from_symbols(
    file: &Path,
    addresses: &[u64],
    each: &mut dyn FnMut(u64, &[Name<'_>]),
) -> Result<(), String> {
    let symbolizer = symbolizer();
    let source = Source::Elf(Elf { debug_syms: false, ..Elf::new(file) });
    let mut demangler = Demangler::default();
    for batch in addresses.chunks(BATCH) {
        let answer = symbolizer.symbolize(&source, Input::VirtOffset(batch));
        for (&address, symbol) in batch.iter().zip(&answer.map_err(|e| e.to_string())?) {
            let name = symbol.as_sym().map(|symbol| (symbol.name.as_ref(), None));
            let name: Functions<'_> = name.into_iter().collect();
            with_names(&name, &mut demangler, |names| each(address, names));
        }
    }
    Ok(())
}

/// Looks up names in debug information, and in the symbol table where that lacks them.
fn from_debug_info(
    file: &Path,
    addresses: &[u64],
    each: &mut dyn FnMut(u64, &[Name<'_>]),
) -> Result<(), String> {
    let symbolizer = symbolizer();
    let mut elf = Elf::new(file);
    let mut demangler = Demangler::default();
    let info = OnceCell::new();
    let read = || DebugInfo::read(&ElfFile::open(file).ok()?, file);
    let read_here = ElfFile::open(file).ok().and_then(|elf| which(&elf, file));
    let mut missing = BTreeSet::new();
    for batch in addresses.chunks(BATCH) {
        let mut answer = symbolizer.symbolize(&Source::Elf(elf.clone()), Input::VirtOffset(batch));
        if answer.is_err() && elf.debug_syms {
            elf.debug_syms = false; // damaged debug info: use the symbol table
            answer = symbolizer.symbolize(&Source::Elf(elf.clone()), Input::VirtOffset(batch));
        }
        let answer = answer.map_err(|e| e.to_string())?;
        let mut whole = whole_names(&symbolizer, &elf, batch, &answer, &mut demangler);
        whole.extend(names_of_nameless(&symbolizer, &elf, batch, &answer));
        let bare = with_bare_names(batch, &answer, &whole);
        let qualified = if bare.is_empty() {
            FxHashMap::default()
        } else {
            let info = info.get_or_init(read).as_ref();
            info.map(|info| qualified::names(info, &bare, &mut demangler)).unwrap_or_default()
        };
        let info = read_here.and_then(|which| Some((which, info.get_or_init(read).as_ref()?)));
        let located = info.map(|(which, info)| {
            qualified::located(info, batch, &mut demangler, which) //
        });
        let located = located.unwrap_or_default();
        for (&address, symbol) in batch.iter().zip(&answer) {
            let symbol = symbol.as_sym();
            let is_whole = read_here == Some(Which::Repaired)
                || symbol.is_none_or(|symbol| symbol.inlined.is_empty());
            match located.get(&address).filter(|_| is_whole) {
                Some(Answer::Found(functions)) => {
                    with_located(functions, symbol, &mut demangler, |n| each(address, n));
                    continue;
                }
                Some(Answer::Missing(path)) => {
                    // The line at the address can be that of an inlined function.
                    missing.insert(path.clone());
                    let name = symbol.map(|symbol| [(symbol.name.as_ref(), None)]);
                    let name = name.iter().flatten().copied().collect();
                    with_names(&name, &mut demangler, |names| each(address, names));
                    continue;
                }
                None => {}
            }
            let whole = whole.get(&address);
            let functions = match symbol {
                Some(symbol) => functions(symbol, whole, qualified.get(&address)),
                None => whole.map(|name| (name.as_str(), None)).into_iter().collect(),
            };
            with_names(&functions, &mut demangler, |names| each(address, names));
        }
    }
    match missing.first() {
        Some(path) => Err(without_split(path, missing.len(), file)),
        None => Ok(()),
    }
}

/// Part of the message about missing `.dwo` files.
pub(super) const WITHOUT_SPLIT: &str = "inlined functions and lines are missing";

/// Returns the message about missing `.dwo` files, the first of which is `path`.
fn without_split(path: &Path, count: usize, file: &Path) -> String {
    let path = text::of_path(path);
    let others = match count {
        1 => String::new(),
        _ => format!(" and {} other files", count - 1),
    };
    let name = text::of_path(Path::new(file.file_name().unwrap_or_default()));
    format!(
        "{WITHOUT_SPLIT}: their debug information is in {path}{others}, expected where the compiler \
         wrote it or beside the module; keep the .dwo files, or make {name}.dwp (`dwp -e {name}`)"
    )
}

/// Returns which functions of a file this crate has to read itself.
fn which(elf: &ElfFile, file: &Path) -> Option<Which> {
    if elf.has(".zdebug_info") {
        return Some(Which::All);
    }
    let mut package = file.as_os_str().to_owned();
    package.push(".dwp");
    let is_split = elf.has(".debug_addr") && !Path::new(&package).exists();
    if is_split && has_skeletons(elf) {
        return Some(Which::Split);
    }
    elf.has(".debug_ranges").then_some(Which::Repaired)
}

/// Returns whether a unit of a file may be a skeleton: whether the attribute `DW_AT_dwo_name` or
/// `DW_AT_GNU_dwo_name`, with the form of a text, is among the abbreviations.
fn has_skeletons(elf: &ElfFile) -> bool {
    const FORMS: [u8; 9] = [0x08, 0x0e, 0x1a, 0x1f, 0x25, 0x26, 0x27, 0x28, 0x1d];
    let abbreviations = elf.section(".debug_abbrev", ABBREVIATIONS_LIMIT).unwrap_or_default();
    let is_name = |bytes: &[u8]| {
        matches!(bytes, [0x76, form, ..] | [0xb0, 0x42, form] if FORMS.contains(form)) //
    };
    abbreviations.windows(3).any(is_name)
}

/// Maximum size of `.debug_abbrev` in bytes. The largest known have some 10 MB.
const ABBREVIATIONS_LIMIT: u64 = 256 << 20;

/// Calls `each` with functions that this crate has read; what they lack is that of the engine's
/// `symbol`, which has a line for the address.
fn with_located(
    functions: &[Located],
    symbol: Option<&Sym<'_>>,
    demangler: &mut Demangler,
    each: impl FnOnce(&[Name<'_>]),
) {
    let code = symbol.and_then(|symbol| symbol.code_info.as_deref());
    let here = code.map(|code| (source_path(code), code.line));
    let of_symbol = symbol.map(|symbol| demangler.readable(&symbol.name));
    let last = functions.len().saturating_sub(1);
    let name = |(index, function): (usize, &Located)| {
        let name = function.name.clone().or(of_symbol.clone().filter(|_| index == 0));
        (name, function.source.clone().or(here.clone().filter(|_| index == last)))
    };
    let mut all: Vec<_> = functions.iter().enumerate().map(name).collect();
    let mut is_outermost = true;
    all.retain(|(name, _)| {
        let is_named = name.as_ref().is_some_and(|name| !name.is_empty());
        std::mem::take(&mut is_outermost) || is_named
    });
    let names: Vec<_> = all
        .iter()
        .map(|(name, source)| Name {
            function: name.as_deref().filter(|name| !name.is_empty()),
            file: source.as_ref().map(|(path, _)| path.as_str()),
            line: source.as_ref().and_then(|&(_, line)| line),
        })
        .collect();
    each(&names);
}

/// Returns the names that this crate's own readers find at addresses, which must be ascending:
/// those of MiniDebugInfo, else qualified names from debug information. [`Blazesym`] adds them to
/// the results of blazesym.
///
/// Errors: the file cannot be read, or is not an executable or library.
pub fn own_names(file: &Path, addresses: &[u64]) -> Result<Vec<Option<String>>, String> {
    let elf = ElfFile::open(file)?;
    let mut demangler = Demangler::default();
    if let Some(table) = SymbolTable::read(&elf) {
        let name = |&address| table.name(address).map(|name| demangler.readable(name));
        return Ok(addresses.iter().map(name).collect());
    }
    let info = DebugInfo::read(&elf, file);
    let mut names = info.map(|info| qualified::names(&info, addresses, &mut demangler));
    let innermost = |address| names.as_mut()?.remove(address)?.pop()?;
    Ok(addresses.iter().map(innermost).collect())
}

/// Looks up names of a stripped module with MiniDebugInfo, which blazesym reads only with liblzma.
fn from_table(table: &SymbolTable, addresses: &[u64], each: &mut dyn FnMut(u64, &[Name<'_>])) {
    let mut demangler = Demangler::default();
    for &address in addresses {
        match table.name(address).map(|name| demangler.readable(name)) {
            Some(name) => each(address, &[Name { function: Some(&name), ..Name::default() }]),
            None => each(address, &[]),
        }
    }
}

/// Returns the mangled names in the symbol table of functions for which debug info has only an
/// unqualified name, if that is part of the mangled one. This is the case for functions that are
/// local to a file or to a function, such as lambdas.
fn whole_names(
    symbolizer: &Symbolizer,
    elf: &Elf,
    addresses: &[u64],
    answer: &[Symbolized<'_>],
    demangler: &mut Demangler,
) -> FxHashMap<u64, String> {
    let bare: FxHashMap<u64, &str> = addresses
        .iter()
        .zip(answer)
        .filter_map(|(&address, symbol)| Some((address, symbol.as_sym()?)))
        .filter(|(_, symbol)| symbol.code_info.is_some() && !is_mangled(&symbol.name))
        .map(|(address, symbol)| (address, symbol.name.as_ref()))
        .collect();
    let asked: Vec<u64> = bare.keys().copied().collect();
    let table = Source::Elf(Elf { debug_syms: false, ..elf.clone() });
    let found = symbolizer.symbolize(&table, Input::VirtOffset(&asked)).unwrap_or_default();
    let named = asked.iter().zip(&found).filter_map(|(&a, s)| Some((a, s.as_sym()?.name.as_ref())));
    let mut is_of = |address: &u64, name: &str| {
        demangler.demangled(name).is_some_and(|whole| whole.contains(identifier(bare[address])))
    };
    named
        .filter(|&(address, name)| is_of(&address, name))
        .map(|(address, name)| (address, name.to_owned()))
        .collect()
}

/// Returns the names in the symbol table of functions that have none in debug info, because it is
/// damaged.
fn names_of_nameless(
    symbolizer: &Symbolizer,
    elf: &Elf,
    addresses: &[u64],
    answer: &[Symbolized<'_>],
) -> FxHashMap<u64, String> {
    let is_nameless = |answer: &Symbolized<'_>| answer.as_sym().is_none_or(|s| s.name.is_empty());
    let asked = addresses.iter().zip(answer).filter(|&(_, answer)| is_nameless(answer));
    let asked: Vec<u64> = asked.map(|(&address, _)| address).collect();
    let table = Source::Elf(Elf { debug_syms: false, ..elf.clone() });
    let found = symbolizer.symbolize(&table, Input::VirtOffset(&asked)).unwrap_or_default();
    let named = asked.into_iter().zip(&found);
    named.filter_map(|(a, symbol)| Some((a, symbol.as_sym()?.name.as_ref().to_owned()))).collect()
}

/// Returns a name of debug info without template arguments, which compilers format differently
/// there.
fn identifier(name: &str) -> &str {
    if name.starts_with("operator") {
        return name;
    }
    name.split('<').next().unwrap_or(name)
}

/// Returns whether debug information has more about a function than this name: the scopes of an
/// unqualified name, or the type arguments of a function of Rust's libraries, which legacy names
/// lack.
fn is_incomplete(name: &str) -> bool {
    const LIBRARIES: [&str; 4] = ["_ZN5alloc", "_ZN4core", "_ZN3std", "_ZN9hashbrown"];
    !is_mangled(name)
        || (name.contains("17h") && LIBRARIES.iter().any(|library| name.starts_with(library)))
}

/// Returns the addresses of functions without a complete name.
fn with_bare_names(
    addresses: &[u64],
    answer: &[Symbolized<'_>],
    whole: &FxHashMap<u64, String>,
) -> Vec<u64> {
    let has_bare = |&(address, symbol): &(u64, &Sym<'_>)| {
        let outermost = symbol.code_info.is_some() && !whole.contains_key(&address);
        (outermost && is_incomplete(&symbol.name))
            || symbol.inlined.iter().any(|function| is_incomplete(&function.name))
    };
    let symbols = addresses.iter().zip(answer).filter_map(|(&a, s)| Some((a, s.as_sym()?)));
    symbols.filter(has_bare).map(|(address, _)| address).collect()
}

/// The functions at an address, outermost first: names, mangled or not, and source.
type Functions<'a> = Vec<(&'a str, Option<&'a CodeInfo<'a>>)>;

/// Combines the results for an address: `whole` is the name of the outermost function in the symbol
/// table, `qualified` the names of all functions from debug info.
fn functions<'a>(
    symbol: &'a Sym<'_>,
    whole: Option<&'a String>,
    qualified: Option<&'a Vec<Option<String>>>,
) -> Functions<'a> {
    let outermost =
        (whole.map_or(symbol.name.as_ref(), String::as_str), symbol.code_info.as_deref());
    let inlined = symbol.inlined.iter().map(|f| (f.name.as_ref(), f.code_info.as_ref()));
    let mut functions: Functions<'a> = std::iter::once(outermost).chain(inlined).collect();
    let names = qualified.filter(|names| names.len() == functions.len());
    for (function, name) in functions.iter_mut().zip(names.into_iter().flatten()) {
        if let Some(name) = name.as_ref().filter(|_| is_incomplete(function.0)) {
            function.0 = name;
        }
    }
    // An inlined function without a name, such as one in a supplementary file that is missing, is
    // omitted: the function around it has the line of the call.
    let mut is_outermost = true;
    functions.retain(|(name, _)| std::mem::take(&mut is_outermost) || !name.is_empty());
    functions
}

/// Calls `each` with the demangled names of the functions at an address.
fn with_names(
    functions: &Functions<'_>,
    demangler: &mut Demangler,
    each: impl FnOnce(&[Name<'_>]),
) {
    let all: Vec<_> = functions
        .iter()
        .map(|&(name, code)| (demangler.readable(name), code.map(|c| (source_path(c), c.line))))
        .collect();
    let names: Vec<_> = all
        .iter()
        .map(|(name, code)| Name {
            function: Some(name.as_str()).filter(|n| !n.is_empty()),
            file: code.as_ref().map(|(path, _)| path.as_str()),
            line: code.as_ref().and_then(|&(_, line)| line),
        })
        .collect();
    each(&names);
}

fn source_path(code: &CodeInfo<'_>) -> String {
    text::from_bytes(code.to_path().as_os_str().as_bytes())
}
