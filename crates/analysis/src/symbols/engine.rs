//! Functions at addresses of a file, by blazesym; names by [`super::demangle`].

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};
use rustc_hash::FxHashMap;

use super::demangle::{Demangler, is_mangled};
use super::name::{BATCH, Engine, Name};
use crate::text;

/// The engine: debug info, separate debug files by build-id and debuglink, else symbol tables.
#[derive(Debug, Default)]
pub struct Blazesym;

impl Engine for Blazesym {
    fn look_up(
        &self,
        file: &Path,
        addresses: &[u64],
        each: &mut dyn FnMut(u64, &[Name<'_>]),
    ) -> Result<(), String> {
        let builder = Symbolizer::builder().enable_auto_reload(false).enable_demangling(false);
        let symbolizer = builder.build();
        let mut elf = Elf::new(file);
        let mut demangler = Demangler::default();
        for batch in addresses.chunks(BATCH) {
            let mut answer =
                symbolizer.symbolize(&Source::Elf(elf.clone()), Input::VirtOffset(batch));
            if answer.is_err() && elf.debug_syms {
                elf.debug_syms = false; // bad debug info must not cost the symbol table
                answer = symbolizer.symbolize(&Source::Elf(elf.clone()), Input::VirtOffset(batch));
            }
            let answer = answer.map_err(|e| e.to_string())?;
            let whole = whole_names(&symbolizer, &elf, batch, &answer, &mut demangler);
            for (&address, symbol) in batch.iter().zip(&answer) {
                let Some(symbol) = symbol.as_sym() else {
                    each(address, &[]);
                    continue;
                };
                let outermost = whole.get(&address).map_or(symbol.name.as_ref(), String::as_str);
                with_names(symbol, outermost, &mut demangler, |names| each(address, names));
            }
        }
        Ok(())
    }
}

/// Debug info has a bare name for functions that are local to a file or to a function, as lambdas
/// are. Returns the mangled names in the symbol table of the addresses that have such a name, where
/// the bare one is a part of them.
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

/// A name of debug info without template arguments, which compilers write in other ways there.
fn identifier(name: &str) -> &str {
    if name.starts_with("operator") {
        return name;
    }
    name.split('<').next().unwrap_or(name)
}

/// Hands on the functions at an address.
fn with_names(
    symbol: &Sym<'_>,
    outermost: &str,
    demangler: &mut Demangler,
    each: impl FnOnce(&[Name<'_>]),
) {
    let inlined = symbol.inlined.iter().map(|f| (f.name.as_ref(), f.code_info.as_ref()));
    let all: Vec<_> = std::iter::once((outermost, symbol.code_info.as_deref()))
        .chain(inlined)
        .map(|(name, code)| (demangler.readable(name), code.map(|c| (source_path(c), c.line))))
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
