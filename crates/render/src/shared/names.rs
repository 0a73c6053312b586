//! Readable function names, in linear time: drops noise of C++ and Rust, and elides long lists.

pub use heaptide_analysis::text::printable;

/// Default template arguments; dropped unless they are the first argument.
const DEFAULTS: [&str; 8] = [
    "std::allocator<",
    "std::char_traits<",
    "std::less<",
    "std::hash<",
    "std::equal_to<",
    "std::default_delete<",
    "alloc::alloc::Global",
    "std::hash::random::RandomState",
];

/// Inline namespaces that version a library's ABI; source code omits them.
const INLINE_NAMESPACES: [&str; 4] = ["__cxx11", "__1", "__ndk1", "_V2"];

/// Prefixes by which a demangler marks entities derived from the following name.
const PHRASES: [&str; 6] = [
    "non-virtual thunk to ",
    "virtual thunk to ",
    "covariant return thunk to ",
    "guard variable for ",
    "TLS init function for ",
    "TLS wrapper function for ",
];

/// Sorted by length, so that the first match is the longest.
const OPERATORS: [&str; 21] = [
    "<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "()", "[]", "==", "!=", "&&", "||",
    "++", "--", "<", ">", "=", ",",
];

/// Maximum length in bytes of a compiler's `[…]` that is removed. ABI tags are the longest.
const TAG_MAX: usize = 256;

/// How many open brackets a closing one is compared with. Real names have fewer open at once.
const DEPTH_MAX: usize = 256;

/// Maximum number of bytes and brackets inspected per byte of a name, which makes the time linear.
const LOOKS_MAX: usize = 2 + if TAG_MAX > DEPTH_MAX { TAG_MAX } else { DEPTH_MAX };

/// Returns a name, [`printable`], in at most about `width` characters. Return type, default
/// template arguments, inline namespaces and compiler suffixes are always dropped. Then, only as
/// far as needed: function arguments, namespaces and modules of template arguments, nested template
/// arguments, all template arguments, outer namespaces and modules, and finally the middle.
///
/// ```
/// use heaptide_render::shared::names::shorten;
/// let name = "void std::vector<int, std::allocator<int> >::push_back(int const&)";
/// assert_eq!(shorten(name, 60), "std::vector<int>::push_back(int const&)");
/// assert_eq!(shorten(name, 30), "std::vector<int>::push_back(…)");
/// ```
pub fn shorten(name: &str, width: usize) -> String {
    let name = &*printable(name);
    if name.starts_with('[') {
        // Heaptide's own text for missing frames.
        return elide_middle(name, width);
    }
    let whole = simplify(name, Detail::Arguments);
    let fits = |short: &str| short.chars().count() <= width;
    if fits(&whole) {
        return whole;
    }
    let mut bare = String::new();
    for detail in [Detail::Templates, Detail::Paths, Detail::OuterTemplates, Detail::Bare] {
        bare = simplify(name, detail);
        if detail >= Detail::Paths {
            bare.truncate(without_mark(&bare).len());
        }
        if fits(&bare) {
            return bare;
        }
        if let Some(closure) = called_closure(&bare).filter(|closure| fits(closure)) {
            return closure.to_owned();
        }
    }
    // The end of a path is more informative than its outer modules.
    let fits = |path: &&str| path.chars().count() < width;
    let paths = bare.rmatch_indices("::").map(|(at, _)| &bare[at..]);
    let inner = paths.take_while(fits).filter(|path| is_balanced(path)).last();
    inner.map_or_else(|| elide_middle(&bare, width), |path| format!("…{path}"))
}

/// Returns the texts of a name with more and more details, as [`shorten`] tries them from the last
/// to the first; the last text is the whole name.
pub(crate) fn texts_by_detail(name: &str) -> Vec<String> {
    const DETAILS: [Detail; 5] =
        [Detail::Bare, Detail::OuterTemplates, Detail::Paths, Detail::Templates, Detail::Arguments];
    let name = printable(name);
    let mut texts: Vec<String> = DETAILS.iter().map(|&detail| simplify(&name, detail)).collect();
    texts.push(name.into_owned());
    texts
}

/// Returns a Rust function without the component by which backtraces find the user's frames.
fn without_mark(name: &str) -> &str {
    const MARKS: [&str; 2] = ["::__rust_begin_short_backtrace", "::__rust_end_short_backtrace"];
    let path = MARKS.iter().find_map(|mark| name.strip_suffix(mark));
    path.filter(|path| !path.ends_with("::backtrace")).unwrap_or(name)
}

/// Returns the closure that a method of `FnOnce`, `FnMut` or `Fn` calls.
fn called_closure(name: &str) -> Option<&str> {
    let (kind, method) = name.strip_prefix('<')?.rsplit_once(" as ")?;
    let of = method.split_once('<')?.0;
    let is_call = matches!(of.rsplit("::").next(), Some("Fn" | "FnMut" | "FnOnce"));
    (is_call && kind.contains("{closure")).then_some(kind)
}

/// Returns whether each closing bracket has an opening one before it.
fn is_balanced(text: &str) -> bool {
    let mut depth = 0;
    text.chars().all(|c| {
        match c {
            '<' | '(' | '{' => depth += 1,
            '>' | ')' | '}' => depth -= 1,
            _ => {}
        }
        depth >= 0
    })
}

/// Returns the text, [`printable`], with its middle replaced by `…` if it is longer than `width`.
/// The end of a name is more specific than its start, so it gets two thirds.
pub fn elide_middle(text: &str, width: usize) -> String {
    let text = &*printable(text);
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let head = kept / 3;
    let tail = kept - head;
    text.chars().take(head).chain(['…']).chain(text.chars().skip(length - tail)).collect()
}

/// Parts of a name that are kept, from most to least.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
enum Detail {
    Arguments,
    Templates,
    /// Without namespaces and modules inside brackets.
    Paths,
    OuterTemplates,
    Bare,
}

/// An open bracket.
struct Open {
    bracket: u8,
    /// Where its content starts in the output.
    at: usize,
    /// Length of `commas` when it was opened.
    commas: usize,
    /// Whether its content will be replaced by `…`.
    elide: bool,
    /// Whether it is a list of template arguments.
    template: bool,
}

/// One pass over a name. Each byte is written at most once and removed at most once.
struct Simplifier {
    detail: Detail,
    out: String,
    open: Vec<Open>,
    /// Output positions of the commas between arguments of the open brackets.
    commas: Vec<usize>,
    /// Number of open brackets that are template arguments.
    templates: usize,
    /// Dropping a return type truncates the output to this length.
    floor: usize,
    arguments_seen: bool,
    operator_seen: bool,
    /// Bytes and brackets inspected so far.
    looks: usize,
}

fn simplify(name: &str, detail: Detail) -> String {
    let mut s = Simplifier {
        detail,
        out: String::with_capacity(name.len().min(256)),
        open: Vec::new(),
        commas: Vec::new(),
        templates: 0,
        floor: 0,
        arguments_seen: false,
        operator_seen: false,
        looks: 0,
    };
    let mut rest = name;
    if let Some(phrase) = PHRASES.iter().find(|p| name.starts_with(**p)) {
        s.out.push_str(phrase);
        s.floor = phrase.len();
        rest = &name[phrase.len()..];
    }
    while !rest.is_empty() {
        let taken = s.step(rest);
        s.looks += taken;
        rest = &rest[taken..];
    }
    debug_assert!(s.looks <= name.len() * LOOKS_MAX, "{} for {} bytes", s.looks, name.len());
    s.out
}

impl Simplifier {
    /// Processes the start of `rest` and returns the number of bytes processed.
    fn step(&mut self, rest: &str) -> usize {
        let word = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        if word > 0 {
            return self.word(&rest[..word], &rest[word..]);
        }
        match rest.as_bytes()[0] {
            b'<' => self.less(rest),
            b'>' if self.out.ends_with(['-', '=']) => self.raw(rest),
            b'(' => self.parenthesis(rest),
            b'{' => self.push_open(b'{', false, false),
            b'>' => self.close(b'<', '>'),
            b')' => self.close(b'(', ')'),
            b'}' => self.close(b'{', '}'),
            b'[' => self.square(rest),
            b',' if !self.open.is_empty() => {
                self.commas.push(self.out.len());
                self.out.push_str(", ");
                1 + spaces(&rest[1..])
            }
            b' ' => self.space(rest),
            _ => self.raw(rest),
        }
    }

    fn raw(&mut self, rest: &str) -> usize {
        let c = rest.chars().next().unwrap_or(' ');
        self.out.push(c);
        c.len_utf8()
    }

    fn word(&mut self, word: &str, after: &str) -> usize {
        let qualified = self.out.ends_with("::");
        if qualified && after.starts_with("::") && INLINE_NAMESPACES.contains(&word) {
            return word.len() + 2;
        }
        if qualified && after.is_empty() && is_rust_hash(word) {
            self.out.truncate(self.out.len() - 2);
            return word.len();
        }
        if qualified && self.detail >= Detail::Paths && !self.open.is_empty() {
            self.drop_path();
        }
        self.out.push_str(word);
        if word != "operator" {
            return word.len();
        }
        self.operator_seen |= self.open.is_empty();
        let symbol = OPERATORS.iter().find(|o| after.starts_with(**o)).map_or("", |o| o);
        self.out.push_str(symbol);
        word.len() + symbol.len()
    }

    /// Removes the namespaces and modules at the end of the output, back to a bracket.
    fn drop_path(&mut self) {
        let is_path = |c: char| is_word(c) || c == ':';
        let kept = self.out.trim_end_matches(is_path).len();
        self.looks += self.out.len() - kept;
        // After a bracket, the path names a member of the bracketed type.
        if !self.out[..kept].ends_with(['>', '}', ')']) {
            self.out.truncate(kept);
        }
    }

    fn less(&mut self, rest: &str) -> usize {
        if rest.starts_with("< ") || rest.starts_with("<=") {
            return self.raw(rest);
        }
        let after_name = self.out.ends_with(is_word) || self.out.ends_with("::");
        let template = after_name || (self.operator_seen && !self.out.is_empty());
        let elide = template
            && match self.detail {
                Detail::Arguments | Detail::Templates | Detail::Paths => false,
                Detail::OuterTemplates => self.templates > 0,
                Detail::Bare => true,
            };
        self.push_open(b'<', elide, template)
    }

    fn parenthesis(&mut self, rest: &str) -> usize {
        const ANONYMOUS: &str = "(anonymous namespace)";
        if let Some(after) = rest.strip_prefix(ANONYMOUS) {
            let qualifier = if after.starts_with("::") { 2 } else { 0 };
            return ANONYMOUS.len() + qualifier;
        }
        let outermost = self.open.is_empty();
        if outermost && self.arguments_seen && rest.starts_with("(.") {
            return rest.len();
        }
        let arguments = outermost && !self.out.ends_with("decltype");
        self.arguments_seen |= arguments;
        self.push_open(b'(', arguments && self.detail > Detail::Arguments, false)
    }

    fn square(&mut self, rest: &str) -> usize {
        let searched = rest.len().min(TAG_MAX);
        let closing = rest.bytes().take(searched).position(|byte| byte == b']');
        self.looks += closing.unwrap_or(searched);
        let Some(end) = closing.map(|at| at + 1).or((searched == rest.len()).then_some(searched))
        else {
            return self.raw(rest);
        };
        let inside = &rest[1..end.max(2) - 1];
        let disambiguator = inside.len() >= 8 && inside.bytes().all(|b| b.is_ascii_hexdigit());
        if inside.starts_with("abi:") || inside.starts_with("clone ") || disambiguator {
            self.out.truncate(self.out.trim_end().len());
            return end;
        }
        self.raw(rest)
    }

    /// Processes a space outside all brackets. It ends a return type or starts a qualifier; both
    /// are dropped.
    fn space(&mut self, rest: &str) -> usize {
        let width = spaces(rest);
        if !self.open.is_empty() || (self.operator_seen && !self.arguments_seen) {
            self.out.push(' ');
        } else if !self.arguments_seen {
            // A space before `[clone .cold]` or `(.isra.0)` ends the name.
            let suffix = rest[width..].starts_with(['[', '(']) || rest.len() == width;
            match suffix {
                true if rest[width..].starts_with("(.") => return rest.len(),
                true => {}
                false => self.out.truncate(self.floor),
            }
        } else if rest[width..].starts_with("const") {
            return width + "const".len();
        } else if !rest[width..].starts_with(['[', '(', '&']) {
            self.out.push(' ');
        }
        width
    }

    fn push_open(&mut self, bracket: u8, elide: bool, template: bool) -> usize {
        self.out.push(char::from(bracket));
        self.templates += usize::from(template);
        let (at, commas) = (self.out.len(), self.commas.len());
        self.open.push(Open { bracket, at, commas, elide, template });
        1
    }

    /// Closes the innermost bracket of this kind, and the unclosed ones inside it.
    fn close(&mut self, bracket: u8, closing: char) -> usize {
        // A `>` inside parentheses is a comparison; a `)` also closes brackets left open inside.
        let innermost = self.open.last().map(|o| o.bracket);
        let depth = match innermost {
            Some(b) if b == bracket => Some(self.open.len() - 1),
            _ if bracket == b'<' => None,
            _ => {
                let mut nearest = self.open.iter().rev().take(DEPTH_MAX);
                let back = nearest.position(|o| o.bracket == bracket);
                self.looks += back.unwrap_or(DEPTH_MAX);
                back.map(|back| self.open.len() - 1 - back)
            }
        };
        let Some(depth) = depth else {
            self.out.push(closing);
            return 1;
        };
        let mut open = None;
        for inner in self.open.drain(depth..).rev() {
            self.templates -= usize::from(inner.template);
            open = Some(inner);
        }
        if let Some(open) = open {
            self.finish(&open, closing);
        }
        1
    }

    fn finish(&mut self, open: &Open, closing: char) {
        self.out.truncate(self.out.trim_end_matches(' ').len().max(open.at));
        if open.template {
            self.drop_defaults(open);
        }
        self.commas.truncate(open.commas);
        if open.template && self.is_char_template(open) {
            return;
        }
        if open.elide && self.out.len() > open.at {
            self.out.truncate(open.at);
            self.out.push('…');
        }
        self.out.push(closing);
    }

    fn drop_defaults(&mut self, open: &Open) {
        while self.commas.len() > open.commas {
            let comma = self.commas[self.commas.len() - 1];
            // In a malformed list, nothing follows the last comma.
            let argument = self.out.get(comma + 2..).unwrap_or("");
            if !argument.is_empty() && !DEFAULTS.iter().any(|d| argument.starts_with(d)) {
                return;
            }
            self.out.truncate(comma);
            self.commas.pop();
        }
    }

    /// Changes `std::basic_string<char>` to `std::string`, and likewise all `basic_` templates of
    /// char and wchar_t.
    fn is_char_template(&mut self, open: &Open) -> bool {
        let wide = match &self.out[open.at..] {
            "char" => "",
            "wchar_t" => "w",
            _ => return false,
        };
        let head = &self.out[..open.at - 1];
        let start = head.rfind(|c: char| !is_word(c)).map_or(0, |i| i + 1);
        let Some(plain) = head[start..].strip_prefix("basic_") else {
            return false;
        };
        if !head[..start].ends_with("std::") {
            return false;
        }
        let name = format!("{wide}{plain}");
        self.out.truncate(start);
        self.out.push_str(&name);
        true
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '@' | '…')
}

fn spaces(text: &str) -> usize {
    text.len() - text.trim_start_matches(' ').len()
}

/// Returns whether this is the `h0123456789abcdef` at the end of rustc's legacy names.
fn is_rust_hash(word: &str) -> bool {
    word.len() == 17 && word.starts_with('h') && word[1..].bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_goes_and_meaning_stays() {
        let cases = [
            ("malloc", "malloc"),
            ("main", "main"),
            ("operator new(unsigned long)", "operator new(unsigned long)"),
            ("operator new[](unsigned long)", "operator new[](unsigned long)"),
            (
                "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::reserve(unsigned long)",
                "std::string::reserve(unsigned long)",
            ),
            (
                "void std::vector<int, std::allocator<int> >::_M_realloc_insert<int const&>(__gnu_cxx::__normal_iterator<int*, std::vector<int, std::allocator<int> > >, int const&)",
                "std::vector<int>::_M_realloc_insert<int const&>(…)",
            ),
            (
                "std::map<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >, int, std::less<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > >, std::allocator<std::pair<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > const, int> > >::operator[](std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > const&)",
                "std::map<std::string, int>::operator[](std::string const&)",
            ),
            (
                "std::basic_ostream<char, std::char_traits<char> >& std::operator<< <std::char_traits<char> >(std::basic_ostream<char, std::char_traits<char> >&, char const*)",
                "std::operator<< <std::char_traits<char>>(std::ostream&, char const*)",
            ),
            ("(anonymous namespace)::pool::refill(int)", "pool::refill(int)"),
            ("foo::bar[abi:cxx11](int) const", "foo::bar(int)"),
            ("foo::bar(int) [clone .isra.0]", "foo::bar(int)"),
            ("parse_file [clone .cold]", "parse_file"),
            ("parse_file (.cold)", "parse_file"),
            (
                "main::{lambda(int, char)#1}::operator()(int, char) const",
                "main::{lambda(int, char)#1}::operator()(int, char)",
            ),
            (
                "auto run(int)::{lambda()#1}::operator()<int>(int) const::{lambda()#2}::operator()() const",
                "run(int)::{lambda()#1}::operator()<int>(int)::{lambda()#2}::operator()()",
            ),
            ("unsigned long hash<4u>(char const*)", "hash<4u>(char const*)"),
            ("non-virtual thunk to Widget::~Widget()", "non-virtual thunk to Widget::~Widget()"),
            ("Value::operator unsigned long() const", "Value::operator unsigned long()"),
            ("bool operator< <int>(Box<int> const&)", "operator< <int>(Box<int> const&)"),
            ("alloc::raw_vec::finish_grow::h0123456789abcdef", "alloc::raw_vec::finish_grow"),
            (
                "<alloc::vec::Vec<T,A> as core::clone::Clone>::clone",
                "<alloc::vec::Vec<T, A> as core::clone::Clone>::clone",
            ),
            ("core[846817f741e54dfd]::ptr::drop_in_place::<u8>", "core::ptr::drop_in_place::<u8>"),
            (
                "<alloc::vec::Vec<u8, alloc::alloc::Global> as std::io::Write>::write_all",
                "<alloc::vec::Vec<u8> as std::io::Write>::write_all",
            ),
            ("std::rt::lang_start::{{closure}}", "std::rt::lang_start::{{closure}}"),
            (
                "std::function<void (int)>::operator()(int) const",
                "std::function<void (int)>::operator()(int)",
            ),
            ("f(std::wstring)", "f(std::wstring)"),
            // Older versions stored such names for packs without arguments.
            ("std::make_unique<Node, >(&&)", "std::make_unique<Node>(&&)"),
            ("[below the stack threshold]", "[below the stack threshold]"),
        ];
        for (name, short) in cases {
            assert_eq!(shorten(name, 72), short, "{name}");
        }
    }

    #[test]
    fn what_does_not_fit_goes_from_the_inside() {
        let name =
            "ns::Table<ns::Key<int, 4>, ns::Value<std::vector<char>>>::insert(ns::Key<int, 4>)";
        assert_eq!(shorten(name, 90), name);
        assert_eq!(
            shorten(name, 70),
            "ns::Table<ns::Key<int, 4>, ns::Value<std::vector<char>>>::insert(…)"
        );
        assert_eq!(shorten(name, 54), "ns::Table<Key<int, 4>, Value<vector<char>>>::insert(…)");
        assert_eq!(shorten(name, 50), "ns::Table<Key<…>, Value<…>>::insert(…)");
        assert_eq!(shorten(name, 30), "ns::Table<…>::insert(…)");
        assert_eq!(shorten(name, 16), "…::insert(…)");
        let path = "regex_automata::nfa::thompson::compiler::Compiler::c_alt_iter";
        assert_eq!(shorten(path, 40), "…::compiler::Compiler::c_alt_iter");
        assert_eq!(shorten("a_function_of_a_long_name", 10), "a_f…g_name");
        let method = "<alloc::vec::Vec<T, A> as core::clone::Clone>::clone";
        assert_eq!(shorten(method, 36), "<Vec<T, A> as Clone>::clone");
        assert_eq!(shorten(method, 26), "<Vec<…> as Clone>::clone");
        let member = "f<ns::Outer<int>::Inner, std::vector<ns::A>::iterator>(int, int, int)";
        assert_eq!(shorten(member, 50), "f<Outer<int>::Inner, vector<A>::iterator>(…)");
    }

    /// Instances of a generic function for different types have different names.
    #[test]
    fn generic_functions_keep_what_tells_them_apart() {
        let of = |argument: &str| {
            format!(
                "<rustc_data_structures::vec_cache::SlotIndex>::initialize_bucket::<{argument}>"
            )
        };
        assert_eq!(
            shorten(&of("rustc_middle::query::erase::ErasedData<[u8; 8]>"), 64),
            "<SlotIndex>::initialize_bucket::<ErasedData<[u8; 8]>>"
        );
        assert_eq!(shorten(&of("()"), 64), "<SlotIndex>::initialize_bucket::<()>");
        let mark = "rustc_query_impl::query_impl::layout_of::execute_query_non_incr::__rust_end_short_backtrace";
        assert_eq!(shorten(mark, 50), "…::query_impl::layout_of::execute_query_non_incr");
        let shim = "<std::thread::lifecycle::spawn_unchecked<app::serve::{closure#0}, ()>::{closure#1} as core::ops::function::FnOnce<()>>::call_once::{shim:vtable#0}";
        assert_eq!(shorten(shim, 60), "spawn_unchecked<serve::{closure#0}, ()>::{closure#1}");
    }

    #[test]
    fn broken_brackets_are_kept_as_they_are() {
        for name in ["a<b", "a>b", "f((", "f)))", "{", "<<<<", "operator", "[", "x<(a>b)>"] {
            assert_eq!(shorten(name, 72), name);
        }
        assert_eq!(shorten("a,b", 72), "a,b");
        assert_eq!(shorten("f(a{b)c", 72), "f(a{b)c");
        assert_eq!(shorten("", 72), "");
    }

    /// Debug builds assert the number of inspected bytes for each name.
    #[test]
    fn a_huge_name_takes_linear_time() {
        let pairs = "std::pair<std::vector<A, std::allocator<A> >, ".repeat(3000);
        let nested = format!("void f<{pairs}{}(int)", ">".repeat(3000));
        let names = [
            nested,
            "x<".repeat(50_000),
            "module::".repeat(50_000),
            "[".repeat(50_000),
            "f[".repeat(50_000),
            "{".repeat(50_000) + &")".repeat(50_000),
        ];
        let expected = [
            "f<pair<…>(int)",
            "x<x<x<…<x<x<x<x<x<x<",
            "…::module::module::",
            "[[[[[[…[[[[[[[[[[[[[",
            "f[f[f[…[f[f[f[f[f[f[",
            "{{{{{{…)))))))))))))",
        ];
        assert_eq!(names.map(|name| shorten(&name, 20)), expected);
    }

    #[test]
    fn the_middle_is_cut_at_whole_characters() {
        assert_eq!(elide_middle("äöüßäöüß", 5), "ä…öüß");
        assert_eq!(elide_middle("abcdefghij", 7), "ab…ghij");
        assert_eq!(elide_middle("abc", 3), "abc");
    }
}
