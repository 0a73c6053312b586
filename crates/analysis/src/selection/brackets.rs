//! Matches the brackets of demangled names in linear time, which a regex cannot do.

use std::borrow::Cow;

/// Characters of an operator's name after the word.
const SYMBOLS: &[u8] = b"<>=!+-*/%^&|~,";
/// Texts that can follow the arguments of a function.
const QUALIFIERS: [&str; 6] = ["const", "volatile", "&", "[", "noexcept", "."];

/// Returns a name without return type, arguments, and the text after them.
///
/// ```
/// use heaptide_analysis::selection::brackets::without_signature;
/// let name = "void std::sort<int*>(int*, int*)";
/// assert_eq!(without_signature(name), "std::sort<int*>");
/// let name = "app::run(int) const::{lambda(int)#1}::operator()(int) const [clone .isra.0]";
/// assert_eq!(without_signature(name), "app::run(int) const::{lambda(int)#1}::operator()");
/// let name = "<T as core::fmt::Display>::fmt";
/// assert_eq!(without_signature(name), name);
/// ```
pub fn without_signature(name: &str) -> &str {
    if name.starts_with('[') {
        // A placeholder frame with a description.
        return name;
    }
    let (mut arguments, mut start) = (None, 0);
    let mut brackets = Brackets::of(name);
    while let Some((at, depth)) = brackets.next() {
        match name.as_bytes()[at] {
            b'(' if depth == 0 && at > start => arguments = Some(at),
            // The parentheses were part of the name: `f(int)::{lambda}`.
            b':' if depth == 0 => arguments = None,
            b' ' if depth > 0 || arguments.is_some() || brackets.in_operator => {}
            b' ' if !qualifies(&name[at..]) => start = at + 1,
            _ => {}
        }
    }
    let short = &name[start..arguments.unwrap_or(name.len())];
    let short = short.trim_start_matches(['*', '&']).trim_end();
    if short.is_empty() { name } else { short }
}

/// Returns whether the text after a space is a qualifier of the preceding function.
fn qualifies(rest: &str) -> bool {
    let word = rest.trim_start();
    QUALIFIERS.iter().any(|qualifier| word.starts_with(qualifier))
}

/// Returns the path of a function: its name without signature and template arguments.
///
/// ```
/// use heaptide_analysis::selection::brackets::bare;
/// let name = "void std::vector<A<int>, B>::emplace<A<int> >(A<int>&&)";
/// assert_eq!(bare(name), "std::vector::emplace");
/// let name = "<alloc::vec::Vec<T,A> as core::iter::Extend<T>>::extend::<I>";
/// assert_eq!(bare(name), "<alloc::vec::Vec as core::iter::Extend>::extend");
/// ```
pub fn bare(name: &str) -> Cow<'_, str> {
    let name = without_signature(name);
    if !name.contains('<') {
        return Cow::Borrowed(name);
    }
    let mut path = String::new();
    // Where copying continues, and at which depth, while arguments are skipped.
    let (mut from, mut leaving) = (0, None);
    let mut brackets = Brackets::of(name);
    while let Some((at, depth)) = brackets.next() {
        match (name.as_bytes()[at], leaving) {
            (b'<', None) => {
                let before = name[..at].trim_end_matches(' ').trim_end_matches("::");
                let ends = |c: char| c.is_alphanumeric() || "_>)]".contains(c);
                let after_name = before.ends_with(ends) && !is_rust_word(before);
                if after_name || brackets.in_operator {
                    path.push_str(&name[from..before.len()]);
                    leaving = Some(depth + 1);
                }
            }
            (b'>', Some(inside)) if depth == inside => (from, leaving) = (at + 1, None),
            _ => {}
        }
    }
    if leaving.is_none() {
        path.push_str(&name[from..]);
    }
    Cow::Owned(path)
}

/// Returns whether a type follows, which can begin with a bracket: `<A as <B>::C>`.
fn is_rust_word(before: &str) -> bool {
    [" as", " for", " dyn"].iter().any(|word| before.ends_with(word))
}

/// Returns a name without template arguments of this type; each is removed including its brackets.
/// The first argument of a template is kept.
///
/// ```
/// use heaptide_analysis::selection::brackets::without_argument;
/// let name = "f(std::map<int, std::vector<A, std::allocator<A> >, std::allocator<int> >)";
/// let short = "f(std::map<int, std::vector<A>>)";
/// assert_eq!(without_argument(name, "std::allocator"), short);
/// let name = "g<std::allocator<int>>";
/// assert_eq!(without_argument(name, "std::allocator"), name);
/// ```
pub fn without_argument<'a>(name: &'a str, argument: &str) -> Cow<'a, str> {
    if argument.is_empty() || !name.contains(argument) {
        return Cow::Borrowed(name);
    }
    let mut short = String::with_capacity(name.len());
    // Where copying continues, and at which depth, while an argument is skipped.
    let (mut from, mut leaving) = (0, None);
    for (at, depth) in Brackets::of(name) {
        let byte = name.as_bytes()[at];
        match leaving {
            Some(outer) if depth == outer && matches!(byte, b',' | b'>' | b')' | b'}') => {
                (from, leaving) = (at, None);
            }
            Some(_) => continue,
            None => {}
        }
        if byte == b',' && is_argument(&name[at + 1..], argument) {
            short.push_str(&name[from..at]);
            leaving = Some(depth);
        } else if byte == b'>' && depth > 0 && name[from..at].ends_with(' ') {
            short.push_str(name[from..at].trim_end());
            from = at;
        }
    }
    if leaving.is_none() {
        short.push_str(&name[from..]);
    }
    Cow::Owned(short)
}

/// Returns whether the next argument of a list has this type.
fn is_argument(rest: &str, argument: &str) -> bool {
    let after = rest.trim_start().strip_prefix(argument);
    after.is_some_and(|after| after.starts_with(['<', ',', '>', ' ']))
}

/// Iterates over brackets and separators of a name that are not part of an operator, with their
/// nesting depth; an opening bracket is outside of itself, a closing one inside.
struct Brackets<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    /// Whether an operator's name began outside of all brackets; it can contain spaces.
    in_operator: bool,
}

impl Brackets<'_> {
    fn of(name: &str) -> Brackets<'_> {
        Brackets { bytes: name.as_bytes(), at: 0, depth: 0, in_operator: false }
    }

    /// Skips the word `operator` and its symbols, if they are here.
    fn operator(&mut self) {
        const WORD: &[u8] = b"operator";
        let inside_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
        let before = self.at.checked_sub(1).map(|at| self.bytes[at]);
        let Some(rest) = self.bytes[self.at..].strip_prefix(WORD) else {
            return;
        };
        if before.is_some_and(|b| inside_word(&b)) || rest.first().is_none_or(inside_word) {
            return;
        }
        let symbols = match rest {
            [b'(', b')', ..] | [b'[', b']', ..] => 2,
            _ => rest.iter().take_while(|b| SYMBOLS.contains(b)).count(),
        };
        self.at += WORD.len() + symbols;
        self.in_operator |= self.depth == 0;
    }
}

/// Bytes at which [`Brackets`] stops: those that it returns, and the first of `operator`.
const STOPS: [bool; 256] = {
    let mut stops = [false; 256];
    let bytes = b"<>(){}[],: o";
    let mut at = 0;
    while at < bytes.len() {
        stops[bytes[at] as usize] = true;
        at += 1;
    }
    stops
};

impl Iterator for Brackets<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        let byte = loop {
            let rest = self.bytes.get(self.at..)?;
            self.at += rest.iter().position(|&byte| STOPS[usize::from(byte)])?;
            if self.bytes[self.at] != b'o' {
                break self.bytes[self.at];
            }
            let before = self.at;
            self.operator();
            if self.at == before {
                self.at += 1;
            }
        };
        let (at, depth) = (self.at, self.depth);
        self.at += 1;
        match byte {
            b'<' | b'(' | b'{' | b'[' => self.depth += 1,
            b'>' if at > 0 && matches!(self.bytes[at - 1], b'-' | b'=') => {}
            b'>' | b')' | b'}' | b']' => self.depth = depth.saturating_sub(1),
            _ => {}
        }
        Some((at, depth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures() {
        for (name, short) in [
            ("main", "main"),
            ("operator new(unsigned long)", "operator new"),
            ("operator delete[](void*)", "operator delete[]"),
            ("A::operator()(int)", "A::operator()"),
            ("A::operator()() const", "A::operator()"),
            ("bool operator< <int>(A<int> const&)", "operator< <int>"),
            ("std::ostream& std::operator<< <char>(std::ostream&)", "std::operator<< <char>"),
            ("A::operator unsigned int() const", "A::operator unsigned int"),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
            ("(anonymous namespace)::f", "(anonymous namespace)::f"),
            ("void (anonymous namespace)::f<int>(int)", "(anonymous namespace)::f<int>"),
            (
                "main::{lambda()#1}::operator()() const::{lambda()#1}",
                "main::{lambda()#1}::operator()() const::{lambda()#1}",
            ),
            ("f(void (*)(int), A<(B)0>)", "f"),
            ("std::pair<int const, A>* std::f<A>(A)", "std::f<A>"),
            ("non-virtual thunk to A::f()", "A::f"),
            ("alloc::vec::Vec<T,A>::push", "alloc::vec::Vec<T,A>::push"),
            (
                "core::ops::function::FnOnce::call_once{{vtable.shim}}",
                "core::ops::function::FnOnce::call_once{{vtable.shim}}",
            ),
            ("[deeper frames cut]", "[deeper frames cut]"),
            ("_ZN3fooEv.cold", "_ZN3fooEv.cold"),
            ("f(int) [clone .cold]", "f"),
            ("", ""),
            ("(", "("),
            ("<<<<", "<<<<"),
            ("f)>(", "f)>"),
        ] {
            assert_eq!(without_signature(name), short, "{name}");
        }
    }

    #[test]
    fn paths() {
        for (name, path) in [
            ("main", "main"),
            ("f<A<B> >(C<D>)", "f"),
            (
                "std::_Function_handler<void (), main::{lambda()#1}>::_M_invoke(std::_Any_data const&)",
                "std::_Function_handler::_M_invoke",
            ),
            ("bool std::operator< <char>(A<char> const&)", "std::operator<"),
            ("A<B>::operator<<", "A::operator<<"),
            ("(anonymous namespace)::f<int>::g()", "(anonymous namespace)::f::g"),
            ("<dyn A<B> as C>::f", "<dyn A as C>::f"),
            ("<impl A for <B as C>::D>::f", "<impl A for <B as C>::D>::f"),
            ("f<A", "f"),
            (">>f<<", ">>f"),
        ] {
            assert_eq!(bare(name), path, "{name}");
        }
    }

    #[test]
    fn arguments() {
        let without = |name| without_argument(name, "std::allocator").into_owned();
        for (name, short) in [
            ("std::vector<int, std::allocator<int> >::push_back", "std::vector<int>::push_back"),
            (
                "std::set<A<int>, std::less<A>, std::allocator<A<int> > >",
                "std::set<A<int>, std::less<A>>",
            ),
            ("f<A, std::allocator<B>, C>", "f<A, C>"),
            ("f<A, std::allocator_traits<B>>", "f<A, std::allocator_traits<B>>"),
            ("f(A, std::allocator<B> const&)", "f(A)"),
            ("f<A, std::allocator<B", "f<A"),
            (", std::allocator<int>", ""),
        ] {
            assert_eq!(without(name), short, "{name}");
        }
    }
}
