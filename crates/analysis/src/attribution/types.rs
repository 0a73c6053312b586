//! Derives allocated types from the functions between an owner and the allocator.

use rustc_hash::FxHashMap;

use super::functions::FunctionId;
use super::names::{last, qualified};
use super::owners::Owners;
use crate::model::{Process, StackId};

/// Index into [`Types::names`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TypeId(pub u32);

/// The type that each stack of a process allocates, if known.
///
/// A template or generic function that the owner calls has the type in its name: a member of
/// `std::vector<Order>`, `std::make_unique<Node>`, `<alloc::boxed::Box<app::Node>>::new`. With
/// debug information, inlined functions are included.
#[derive(Debug, Default)]
pub struct Types {
    /// Distinct types.
    pub names: Vec<String>,
    /// Types by stack.
    of_stack: Vec<Option<TypeId>>,
}

impl Types {
    /// Finds the types of a process.
    pub fn of(process: &Process, owners: &Owners) -> Types {
        let named = |id: u32| {
            let frame = owners.functions.first_frame(FunctionId(id));
            type_in(process.tables.frames[frame.0 as usize].function.as_deref()?)
        };
        let mut types = Types::default();
        let mut ids = FxHashMap::default();
        let mut number = |name: String| {
            *ids.entry(name).or_insert_with_key(|name| {
                types.names.push(name.clone());
                TypeId(types.names.len() as u32 - 1)
            })
        };
        let of_function: Vec<Option<TypeId>> =
            (0..owners.functions.len() as u32).map(|id| named(id).map(&mut number)).collect();
        types.of_stack.push(None);
        // The outermost function below the owner whose name contains a type; nodes follow their
        // callers.
        for (node, id) in process.tables.stacks.iter().zip(0..).skip(1) {
            let parent = node.parent.0 as usize;
            let is_inside = owners.stack(StackId(id)) != StackId(id);
            let is_same = owners.stack(node.parent) == owners.stack(StackId(id));
            let known = types.of_stack[parent].filter(|_| is_same);
            let here = || of_function[owners.functions.of_frame(node.frame).0 as usize];
            types.of_stack.push(if is_inside { known.or_else(here) } else { None });
        }
        types
    }

    /// Returns the type that a stack allocates.
    pub fn of_stack(&self, stack: StackId) -> Option<TypeId> {
        self.of_stack.get(stack.0 as usize).copied().flatten()
    }

    /// Returns the name of a type.
    pub fn name(&self, id: TypeId) -> &str {
        &self.names[id.0 as usize]
    }
}

/// C++ functions whose first template argument is the type of a single object.
const MAKERS: [&str; 4] =
    ["std::make_unique<", "std::make_shared<", "std::allocate_shared<", "boost::make_shared<"];
/// Bases of containers in libstdc++ and libc++, and the containers.
const BASES: [(&str, &str); 9] = [
    ("std::_Vector_base<", "std::vector<"),
    ("std::_Deque_base<", "std::deque<"),
    ("std::_List_base<", "std::list<"),
    ("std::__cxx11::_List_base<", "std::list<"),
    ("std::_Fwd_list_base<", "std::forward_list<"),
    ("std::__new_allocator<", ""),
    ("__gnu_cxx::new_allocator<", ""),
    ("std::allocator<", ""),
    ("std::__1::allocator<", ""),
];
/// Modules of Rust's libraries, the type that they define, and how many of the arguments of its
/// functions belong to the type.
const RUST: [(&str, &str, usize); 12] = [
    ("alloc::boxed::", "Box", 1),
    ("alloc::vec::", "Vec", 1),
    ("alloc::sync::", "Arc", 1),
    ("alloc::rc::", "Rc", 1),
    ("alloc::collections::vec_deque::", "VecDeque", 1),
    ("alloc::collections::binary_heap::", "BinaryHeap", 1),
    ("alloc::collections::btree::map::", "BTreeMap", 2),
    ("alloc::collections::btree::set::", "BTreeSet", 1),
    ("std::collections::hash::map::", "HashMap", 2),
    ("std::collections::hash::set::", "HashSet", 1),
    ("hashbrown::map::", "HashMap", 2),
    ("alloc::string::", "String", 0),
];

/// Returns the type that a function allocates, derived from its name.
///
/// ```
/// use heaptide_analysis::attribution::type_in;
/// let is = |name, of: &str| assert_eq!(type_in(name).as_deref(), Some(of), "{name}");
/// is("std::vector<Order, std::allocator<Order> >::push_back(Order&&)", "std::vector<Order>");
/// is("std::_MakeUniq<Node>::__single_object std::make_unique<Node, int>(int&&)", "Node");
/// is("std::__new_allocator<int>::allocate(unsigned long, void const*)", "int");
/// is("<alloc::boxed::Box<app::Node>>::new", "Box<app::Node>");
/// is("alloc::vec::{impl#1}::push<app::Order, alloc::alloc::Global>", "Vec<app::Order>");
/// is("<std::collections::hash::map::HashMap<alloc::string::String, app::Session>>::insert",
///     "HashMap<String, app::Session>");
/// assert_eq!(type_in("std::transform<int*>(int*, int*)"), None);
/// assert_eq!(type_in("alloc::vec::Vec<T, A>::push"), None); // whatever T is
/// ```
pub fn type_in(function: &str) -> Option<String> {
    let name = qualified(function);
    let path = name.strip_prefix('<').unwrap_or(name);
    let found = match RUST.iter().find(|(module, ..)| path.starts_with(module)) {
        Some(&(module, kind, count)) => in_rust(&path[module.len()..], kind, count),
        None => in_cpp(name),
    };
    found.filter(|name| name.len() <= LONGEST)
}

/// Maximum length of a type's name; longer ones are not useful.
const LONGEST: usize = 400;

fn in_cpp(name: &str) -> Option<String> {
    if let Some(maker) = MAKERS.iter().find(|maker| name.starts_with(**maker)) {
        let (inside, _) = arguments(&name[maker.len() - 1..])?;
        return Some(simple(first(inside)));
    }
    if let Some((base, of)) = BASES.iter().find(|(base, _)| name.starts_with(base)) {
        let (inside, _) = arguments(&name[base.len() - 1..])?;
        let element = simple(first(inside));
        return Some(if of.is_empty() { element } else { format!("{of}{element}>") });
    }
    // A member of a named template: `std::vector<Order>::push_back`.
    let class = name.get(..name.len() - last_with_arguments(name))?.strip_suffix("::")?;
    if ["std::string", "std::wstring"].contains(&class) {
        return Some(class.to_owned());
    }
    let own = last(class);
    let is_container = class.ends_with('>')
        && ["std::", "boost::", "absl::", "folly::", "Q", "llvm::", "google::protobuf::"]
            .iter()
            .any(|library| class.starts_with(library));
    (is_container && !own.starts_with('_') && !own.contains("alloc")).then(|| simple(class))
}

/// Returns the length of the last part of a qualified name, including its arguments.
fn last_with_arguments(name: &str) -> usize {
    let mut depth = 0usize;
    let bytes = name.as_bytes();
    for at in (1..bytes.len()).rev() {
        match bytes[at] {
            b'>' => depth += 1,
            b'<' => depth = depth.saturating_sub(1),
            b':' if depth == 0 && bytes[at - 1] == b':' => return bytes.len() - at - 1,
            _ => {}
        }
    }
    bytes.len()
}

/// Returns the type of a function in the module that defines the type: `rest` is the text after the
/// module's name, and the first `count` arguments belong to the type.
fn in_rust(rest: &str, kind: &str, count: usize) -> Option<String> {
    if count == 0 {
        return Some(kind.to_owned());
    }
    // `Vec<app::Order>>::push`, or `Vec<T, A>::push::<app::Order, …>`, `{impl#1}::push<app::Order,
    // …>`, where the arguments of the function begin with those of the type.
    let of_type = rest.strip_prefix(kind).filter(|rest| rest.starts_with('<'));
    let of_type = of_type.and_then(|rest| in_arguments(arguments(rest)?.0, kind, count));
    of_type.or_else(|| {
        let inside = arguments(rest.get(rest.len() - generic(rest)?..)?)?.0;
        in_arguments(inside, kind, count)
    })
}

fn in_arguments(inside: &str, kind: &str, count: usize) -> Option<String> {
    let arguments: Vec<&str> = split(inside).into_iter().take(count).collect();
    // Legacy names contain the parameters instead of the arguments.
    let is_known = |text: &&str| !(text.len() == 1 && text.starts_with(|c: char| c.is_uppercase()));
    (arguments.len() == count && arguments.iter().all(is_known)).then(|| {
        let arguments: Vec<String> = arguments.into_iter().map(simple).collect();
        format!("{kind}<{}>", arguments.join(", "))
    })
}

/// Returns the length of the arguments at the end of a name.
fn generic(name: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in name.bytes().enumerate().rev() {
        match byte {
            b'>' => depth += 1,
            b'<' => depth = depth.checked_sub(1)?,
            _ if depth == 0 => return None,
            _ => {}
        }
        if depth == 0 {
            return Some(name.len() - at);
        }
    }
    None
}

/// Returns the text between `<` and its `>`, for a text that begins with it, and the rest.
fn arguments(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            b'>' if at > 0 && text.as_bytes()[at - 1] == b'-' => {}
            b'>' | b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return text.get(1..at).map(|inside| (inside, &text[at + 1..]));
        }
    }
    None
}

/// Splits arguments at their commas.
fn split(inside: &str) -> Vec<&str> {
    let (mut depth, mut start) = (0usize, 0);
    let mut parts = Vec::new();
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            b'>' | b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(inside[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(inside[start..].trim());
    parts
}

fn first(inside: &str) -> &str {
    split(inside)[0]
}

/// Default arguments, which are omitted.
const DEFAULTS: [&str; 12] = [
    "std::allocator<",
    "std::less<",
    "std::hash<",
    "std::equal_to<",
    "std::char_traits<",
    "std::default_delete<",
    "std::__1::allocator<",
    "std::__1::less<",
    "std::__1::hash<",
    "std::__1::equal_to<",
    "alloc::alloc::Global",
    "std::hash::random::RandomState",
];
/// Well-known paths of Rust's types, which are omitted.
const PATHS: [&str; 9] = [
    "alloc::string::",
    "alloc::vec::",
    "alloc::boxed::",
    "alloc::sync::",
    "alloc::rc::",
    "core::option::",
    "core::result::",
    "std::collections::hash::map::",
    "core::cell::",
];

/// Returns a type without default arguments and in its usual form: `std::string` for
/// `std::__cxx11::basic_string<char, …>`.
fn simple(text: &str) -> String {
    simple_within(text, 0)
}

/// Maximum nesting; types nested deeper are not simplified.
const DEEPEST: usize = 32;

fn simple_within(text: &str, depth: usize) -> String {
    let text = text.trim();
    let plain = PATHS.iter().find_map(|path| text.strip_prefix(path)).unwrap_or(text);
    let plain = plain.replacen("std::__cxx11::", "std::", 1).replacen("std::__1::", "std::", 1);
    let Some(open) = plain.find('<').filter(|_| depth < DEEPEST) else {
        return plain;
    };
    let Some((inside, after)) = arguments(&plain[open..]) else {
        return plain;
    };
    let kept = split(inside).into_iter().enumerate().filter(|(place, argument)| {
        *place == 0 || !DEFAULTS.iter().any(|default| argument.starts_with(default))
    });
    let kept: Vec<String> = kept.map(|(_, text)| simple_within(text, depth + 1)).collect();
    match (&plain[..open], &*kept.join(", ")) {
        ("std::basic_string", "char") => format!("std::string{after}"),
        ("std::basic_string", "wchar_t") => format!("std::wstring{after}"),
        (name, arguments) => format!("{name}<{arguments}>{after}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_containers_and_objects() {
        let cases = [
            (
                "std::map<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >, int, std::less<std::__cxx11::basic_string<char> >, std::allocator<std::pair<int const, int> > >::operator[](int const&)",
                Some("std::map<std::string, int>"),
            ),
            (
                "std::_Vector_base<Foo, std::allocator<Foo> >::_M_allocate(unsigned long)",
                Some("std::vector<Foo>"),
            ),
            (
                "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::reserve(unsigned long)",
                Some("std::string"),
            ),
            ("std::shared_ptr<Session> std::make_shared<Session, int&>(int&)", Some("Session")),
            ("std::string::string<std::allocator<char>>(char const*)", Some("std::string")),
            ("std::deque<Job>::emplace_back<Job>(Job&&)", Some("std::deque<Job>")),
            ("std::_Rb_tree<int, int>::_M_insert_(int)", None),
            ("std::__detail::_Hash_node<int>* make(int)", None),
            ("QList<QString>::append(QString const&)", Some("QList<QString>")),
            ("<alloc::sync::Arc<app::Session>>::new", Some("Arc<app::Session>")),
            ("alloc::boxed::{impl#0}::new<app::Node>", Some("Box<app::Node>")),
            ("alloc::boxed::Box<T>::new::<app::Node>", Some("Box<app::Node>")),
            ("std::collections::hash::map::HashMap<K,V,S,A>::insert", None),
            ("<alloc::string::String as core::clone::Clone>::clone", Some("String")),
            ("alloc::vec::Vec<T,A>::push", None),
            ("main", None),
            ("operator new(unsigned long)", None),
            ("a<b", None),
            ("std::vector<", None),
            ("", None),
        ];
        for (name, expected) in cases {
            assert_eq!(type_in(name).as_deref(), expected, "{name}");
        }
    }
}
