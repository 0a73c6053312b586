//! Demangles symbols: C++ (Itanium ABI), both Rust manglings, Fortran and Cython.

use std::fmt::{self, Write};
use std::thread;

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};
use rustc_hash::FxHashMap;

use super::{cython, empty_packs, fortran};

/// Recursion limit that fits into the stack of any thread.
const SHALLOW: u32 = 96;
/// Recursion limit for deeply nested templates, and the stack size that it needs.
const DEEP: u32 = 4096;
const DEEP_STACK_BYTES: usize = 256 << 20;
/// Maximum length of a demangled name in bytes: a symbol of 30 kB can expand to gigabytes.
const LONGEST: usize = 1 << 20;

/// Demangles names with a cache.
#[derive(Debug, Default)]
pub struct Demangler {
    known: FxHashMap<Box<str>, Option<Box<str>>>,
}

impl Demangler {
    /// Returns the demangled name of a symbol; the symbol itself if it is not mangled, or its
    /// mangling is not understood.
    pub fn readable(&mut self, symbol: &str) -> String {
        let name = self.demangled(symbol).unwrap_or(symbol);
        let language = cython::readable(name).or_else(|| fortran::readable(name));
        language.unwrap_or_else(|| name.to_owned())
    }

    /// Returns the demangled name of a symbol; `None` if it is not mangled.
    pub fn demangled(&mut self, symbol: &str) -> Option<&str> {
        if !is_mangled(symbol) {
            return None;
        }
        if !self.known.contains_key(symbol) {
            let name = demangle(symbol).map(String::into_boxed_str);
            self.known.insert(symbol.into(), name);
        }
        self.known.get(symbol)?.as_deref()
    }
}

/// Returns whether a name has the prefix of a known mangling.
pub fn is_mangled(symbol: &str) -> bool {
    ["_Z", "__Z", "_R"].iter().any(|start| symbol.starts_with(start))
}

fn demangle(symbol: &str) -> Option<String> {
    if is_rust(symbol) {
        let name = rustc_demangle::try_demangle(symbol).ok()?;
        return written(|out| write!(out, "{name:#}"));
    }
    let Some((filled, marker)) = empty_packs::filled(symbol) else {
        return cpp_or_deeper(symbol);
    };
    let name = cpp_or_deeper(&filled).and_then(|name| empty_packs::without(&name, marker));
    name.or_else(|| cpp_or_deeper(symbol))
}

fn cpp_or_deeper(symbol: &str) -> Option<String> {
    cpp(symbol, SHALLOW).or_else(|| with_deep_stack(symbol)).or_else(|| {
        with_deep_stack(&std_scopes_replaced(symbol)?).map(|name| scopes_restored(&name))
    })
}

/// Returns whether a symbol is a Rust symbol: by its prefix, or by the hash at the end of a legacy
/// name.
fn is_rust(symbol: &str) -> bool {
    const HASH: &str = "17h";
    const HASH_DIGITS: usize = 16;
    let Some(at) = symbol.rfind(HASH).filter(|_| symbol.starts_with("_ZN")) else {
        return symbol.starts_with("_R");
    };
    let rest = &symbol.as_bytes()[at + HASH.len()..];
    let digits = rest.iter().take_while(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')).count();
    digits == HASH_DIGITS && rest[digits..].starts_with(b"E")
}

fn cpp(symbol: &str, levels: u32) -> Option<String> {
    let parsing = ParseOptions::default().recursion_limit(levels);
    let writing = DemangleOptions::new().recursion_limit(levels);
    let parsed = Symbol::new_with_options(symbol, &parsing).ok()?;
    written(|out| parsed.structured_demangle(out, &writing))
}

/// Demangles C++ on a thread with a stack for deep recursion.
fn with_deep_stack(symbol: &str) -> Option<String> {
    thread::scope(|scope| {
        let builder = thread::Builder::new().stack_size(DEEP_STACK_BYTES);
        let thread = builder.spawn_scoped(scope, || cpp(symbol, DEEP)).ok()?;
        thread.join().ok().flatten()
    })
}

/// Rewrites an expression that GCC emits for `std::is_array<T>::value` in the return type of a
/// template, as in `std::make_shared`: a scope `sr` that is a whole type, where the ABI requires a
/// list of names and the demangler accepts only that. A member of `typeid(T)` has the same parts in
/// the same order, so that the numbers of substitutions stay correct.
fn std_scopes_replaced(symbol: &str) -> Option<String> {
    symbol.contains(STD_SCOPE).then(|| symbol.replace(STD_SCOPE, MEMBER_OF_TYPEID))
}

const STD_SCOPE: &str = "srSt";
const MEMBER_OF_TYPEID: &str = "dttiSt";

/// Replaces members of `(typeid (T))` by members of `T`.
fn scopes_restored(name: &str) -> String {
    const BEGIN: &str = "(typeid (";
    const END: &str = ")).";
    let mut restored = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find(BEGIN) {
        let (before, inner) = (&rest[..at], &rest[at + BEGIN.len()..]);
        let end = closing(inner).filter(|&end| inner[end..].starts_with(END));
        restored.push_str(before);
        let Some(end) = end else {
            restored.push_str(BEGIN);
            rest = inner;
            continue;
        };
        restored.push_str(&scopes_restored(&inner[..end]));
        restored.push_str("::");
        rest = &inner[end + END.len()..];
    }
    restored.push_str(rest);
    restored
}

/// Returns the position of the closing parenthesis of a text that begins after the opening one.
fn closing(text: &str) -> Option<usize> {
    let mut open = 1;
    text.bytes().position(|byte| {
        open += i32::from(byte == b'(') - i32::from(byte == b')');
        open == 0
    })
}

/// Returns the text that `write` produces, if it succeeds within [`LONGEST`] bytes.
fn written(write: impl FnOnce(&mut Bounded) -> fmt::Result) -> Option<String> {
    let mut out = Bounded(String::new());
    write(&mut out).ok()?;
    Some(out.0)
}

struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readable(symbol: &str) -> String {
        Demangler::default().readable(symbol)
    }

    #[test]
    fn names_of_both_languages() {
        for (symbol, name) in [
            ("main", "main"),
            ("_Znwm", "operator new(unsigned long)"),
            ("_ZN2ns5localEi", "ns::local(int)"),
            ("_ZN2ns5localEi.constprop.0", "ns::local(int) [clone .constprop.0]"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            ("_ZN3foo17hnothexE", "_ZN3foo17hnothexE"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_ZL19__pyx_pw_3lib_1makeP7_objectS0_", "lib.make(_object*, _object*)"),
            ("_Z", "_Z"),
            ("_ZN", "_ZN"),
            ("_R", "_R"),
        ] {
            assert_eq!(readable(symbol), name);
        }
    }

    #[test]
    fn scopes_that_are_types() {
        let make_shared = "_ZSt11make_sharedI3FooJRiEESt10shared_ptrINSt9enable_ifIXntsrSt8is_array\
            IT_E5valueES5_E4typeEEDpOT0_";
        assert_eq!(
            readable(make_shared),
            "std::shared_ptr<std::enable_if<!(std::is_array<Foo>::value), Foo>::type> \
             std::make_shared<Foo, int&>(int&)"
        );
        assert_eq!(scopes_restored("a (typeid (b<(typeid (c(d))).e>)).f"), "a b<c(d)::e>::f");
        assert_eq!(scopes_restored("(typeid (a)) (typeid (b"), "(typeid (a)) (typeid (b");
    }

    /// `c++filt` has `f<, int>(, int)` for the third of these names.
    #[test]
    fn empty_packs_have_no_arguments_and_no_parameters() {
        for (symbol, name) in [
            ("_Z1fIJEEvDpT_", "void f<>()"),
            ("_Z1fIiJEEvT_DpOT0_", "void f<int>(int)"),
            ("_Z1fIJEiEvDpRKT_T0_", "void f<int>(int)"),
            ("_Z4makeI3FooJEEPT_DpOT0_", "Foo* make<Foo>()"),
            (
                "_ZNSt6vectorI3FooSaIS0_EE12emplace_backIJEEERS0_DpOT_",
                "Foo& std::vector<Foo, std::allocator<Foo> >::emplace_back<>()",
            ),
            ("_Z1gSt5tupleIJEE", "g(std::tuple<>)"),
            ("_Z1hIJEEvSt5tupleIJDpT_EE", "void h<>(std::tuple<>)"),
            ("_Z1hIJiEEvSt5tupleIJDpT_EE", "void h<int>(std::tuple<int>)"),
            (
                "_ZSt11make_uniqueI3FooJEENSt8__detail9_MakeUniqIT_E15__single_objectEDpOT0_",
                "std::__detail::_MakeUniq<Foo>::__single_object std::make_unique<Foo>()",
            ),
        ] {
            assert_eq!(readable(symbol), name, "{symbol}");
        }
        let shared = "_ZSt11make_sharedI3FooJEESt10shared_ptrINSt9enable_ifIXntsrSt8is_array\
            IT_E5valueES4_E4typeEEDpOT0_";
        assert_eq!(
            readable(shared),
            "std::shared_ptr<std::enable_if<!(std::is_array<Foo>::value), Foo>::type> \
             std::make_shared<Foo>()"
        );
    }

    #[test]
    fn lambdas_and_local_functions() {
        assert_eq!(
            readable("_ZZ8readFilevENKUlvE_clEv"),
            "readFile()::{lambda()#1}::operator()() const"
        );
    }

    /// Templates nested 600 deep, and a symbol of 30 kB that would expand without end.
    #[test]
    fn names_are_bounded_in_depth_and_length() {
        let nested = format!("_Z1fI{}i{}Evv", "1AI".repeat(600), "E".repeat(600));
        let name = readable(&nested);
        assert!(name.starts_with("void f<A<A<A<") && name.len() > 1800, "{name}");
        let endless = format!("_Z1fI{}i{}Evv", "1AI".repeat(9000), "E".repeat(9000));
        assert_eq!(readable(&endless), endless);
        // Each parameter is a pair of the previous one: 2^30 of them at the end.
        let digit = |n: usize| char::from(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[n]);
        let pairs = (0..30).map(|n| format!("S_I{0}{0}E", format!("S{}_", digit(n + 1))));
        let wide = format!("_Z1f1AIiiE{}", pairs.collect::<String>());
        assert!(readable(&wide).len() <= LONGEST);
    }
}
