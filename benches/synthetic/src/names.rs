//! Functions with names like those of C++: namespaces, templates, arguments.

use heaptide_fixtures::Random;

/// The average length of names, in characters.
const MEAN: u64 = 200;
/// The length of the longest name, in characters.
pub(crate) const LONGEST: usize = 30_000;

const SPACES: [&str; 12] = [
    "app", "detail", "ir", "codegen", "parser", "graph", "io", "net", "render", "physics",
    "storage", "v2",
];
const WORDS: [&str; 16] = [
    "Visitor",
    "Table",
    "Node",
    "Builder",
    "Index",
    "Buffer",
    "Session",
    "Expression",
    "Lattice",
    "Arena",
    "Event",
    "Cache",
    "Matrix",
    "Symbol",
    "Region",
    "Tracker",
];
const VERBS: [&str; 14] = [
    "visit",
    "insert",
    "build",
    "resolve",
    "flush",
    "emplace_back",
    "merge",
    "lower",
    "reserve",
    "parse",
    "rewrite",
    "collect",
    "dispatch",
    "expand",
];
const TYPES: [&str; 12] = [
    "int",
    "unsigned long",
    "double",
    "char const*",
    "bool",
    "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >",
    "std::vector<int, std::allocator<int> >",
    "std::shared_ptr<app::ir::Node>",
    "std::unique_ptr<app::Arena, std::default_delete<app::Arena> >",
    "app::graph::Edge<double, 3u>",
    "std::pair<unsigned int const, app::Event>",
    "void*",
];
const OWNERS: [&str; 5] =
    ["std::vector", "std::_Rb_tree", "std::_Hashtable", "std::deque", "std::function"];

/// A function of the program.
pub(crate) struct Function {
    /// Index into [`crate::profile::MODULES`].
    pub(crate) module: u32,
    /// The demangled name.
    pub(crate) name: String,
    pub(crate) file: String,
}

/// The function with the name of [`LONGEST`] characters, innermost in one stack.
pub(crate) const LONG: u64 = 0;
/// `operator new`, innermost in many stacks.
pub(crate) const NEW: u64 = 1;

/// Returns `count` functions with distinct names.
pub(crate) fn functions(count: u32, random: &mut Random) -> Vec<Function> {
    let function = |index: u32| {
        let (module, name) = match u64::from(index) {
            LONG => (0, long(random)),
            NEW => (1, "operator new(unsigned long)".to_owned()),
            _ => (0, name(index, random)),
        };
        let file = format!("/src/app/{}/unit_{}.cc", random.one(&SPACES), index / 64);
        Function { module, name, file }
    };
    (0..count).map(function).collect()
}

/// Returns a name that ends with the number of its function. Every fifth belongs to a container of
/// the standard library.
fn name(index: u32, random: &mut Random) -> String {
    let length = (60 + random.geometric(MEAN - 95, 2_000)) as usize;
    let mut name = match random.below(5) {
        0 => format!("void {}", random.one(&OWNERS)),
        _ => format!("{}::{}::{}", random.one(&SPACES), random.one(&SPACES), random.one(&WORDS)),
    };
    list(&mut name, '<', length * 2 / 3, random);
    name += " >::";
    name += random.one(&VERBS);
    name += &format!("_{index}");
    list(&mut name, '(', length, random);
    name.push(')');
    name
}

/// Opens a list and adds types until the name has `length` characters.
fn list(name: &mut String, open: char, length: usize, random: &mut Random) {
    name.push(open);
    name.push_str(random.one(&TYPES));
    while name.len() < length {
        name.push_str(", ");
        name.push_str(random.one(&TYPES));
    }
}

/// Returns nested templates, as deep as a name can be.
fn long(random: &mut Random) -> String {
    let (open, close) = ("app::detail::Chain<int, ", ">");
    let levels = LONGEST / (open.len() + close.len()) - 4;
    let mut name = open.repeat(levels) + random.one(&WORDS) + &close.repeat(levels);
    name += "::run(";
    while name.len() < LONGEST {
        name += "int,";
    }
    name.truncate(LONGEST - 1);
    name + ")"
}
