//! Builds full names of functions for which debug information has only an unqualified name.
//!
//! GCC emits no mangled name for functions that are local to a function or a file: `operator()` of
//! a lambda, `__invoke_r<void, run()::<lambda()>&>` of `std`. If such a function is inlined, the
//! symbol table has no name either. The name is built from the enclosing scopes, in the format of a
//! demangler: `run()::{lambda()#1}::operator()() const`.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::rc::Rc;

use gimli::{AttributeValue, DebuggingInformationEntry, DwAt, DwLang, Dwarf, Unit, UnitOffset};
use rustc_hash::FxHashMap;

use super::debug_info::{DebugInfo, Scopes};
use super::demangle::Demangler;
use super::located::{self, Answer, Located, Source};
use super::split::{self, Slice};

/// Maximum depth of links and scopes for one name; it ends loops in damaged files.
const DEPTH: usize = 32;
/// Maximum number of entries read for one name: types of template arguments can contain each other.
const STEPS: usize = 10_000;
const LAMBDA: &str = "<lambda(";
const LAMBDA_END: &str = ")>";

type Entry<'a> = DebuggingInformationEntry<Slice<'a>>;

/// An entry of debug information.
#[derive(Clone, Copy)]
struct Place {
    /// Index of the unit.
    unit: usize,
    offset: UnitOffset,
}

struct Read<'a> {
    /// Index of the unit.
    index: usize,
    unit: Unit<Slice<'a>>,
    scopes: Scopes,
    language: Option<Language>,
    /// The sections of the unit, if it is in a `.dwo` file, and its skeleton.
    split: Option<(Dwarf<Slice<'a>>, Unit<Slice<'a>>)>,
    /// The path of its `.dwo` file, if that is missing.
    missing: Option<PathBuf>,
    /// Lines at addresses, once they are needed.
    lines: OnceCell<FxHashMap<u64, Source>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    C,
    Cpp,
    Rust,
}

/// Returns the functions at addresses, which must be ascending, outermost first, each with its name
/// if it can be built.
pub(super) fn names(
    info: &DebugInfo,
    addresses: &[u64],
    demangler: &mut Demangler,
) -> FxHashMap<u64, Vec<Option<String>>> {
    let mut names = Names::new(info, addresses, demangler);
    let at = |&address: &u64| Some((address, names.at(address)?));
    addresses.iter().filter_map(at).collect()
}

/// Which functions [`located`] returns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// Those of units whose debug information is in `.dwo` files, without the lines at addresses.
    Split,
    /// Those that the engine does not find, because GCC ended a list of ranges too early, without
    /// the lines at addresses.
    Repaired,
    All,
}

/// Returns the functions at addresses, which must be ascending.
pub(super) fn located(
    info: &DebugInfo,
    addresses: &[u64],
    demangler: &mut Demangler,
    which: Which,
) -> FxHashMap<u64, Answer> {
    let mut names = Names::new(info, addresses, demangler);
    let at = |&address: &u64| Some((address, names.located(address, which)?));
    addresses.iter().filter_map(at).collect()
}

/// Returns the name of a function of Rust's libraries with its type arguments, which legacy names
/// lack: `alloc::vec::Vec<T,A>::push::<app::Order>`, from the unqualified name `push<app::Order>`.
fn with_types(name: String, bare: &str) -> String {
    let is_of_library = ["alloc::", "core::", "std::", "hashbrown::"];
    match bare.find('<') {
        Some(open) if open > 0 && is_of_library.iter().any(|library| name.starts_with(library)) => {
            format!("{name}::{}", &bare[open..])
        }
        _ => name,
    }
}

struct Names<'a, 'd> {
    info: &'a DebugInfo,
    dwarf: Dwarf<Slice<'a>>,
    addresses: &'d [u64],
    read: FxHashMap<usize, Option<Rc<Read<'a>>>>,
    may_need_repair: FxHashMap<usize, bool>,
    /// The language of the unit that contains the address.
    language: Option<Language>,
    demangler: &'d mut Demangler,
    /// Remaining number of entries that may be read for this name.
    steps: usize,
}

impl<'a, 'd> Names<'a, 'd> {
    fn new(info: &'a DebugInfo, addresses: &'d [u64], demangler: &'d mut Demangler) -> Self {
        Names {
            info,
            dwarf: info.dwarf(),
            addresses,
            read: FxHashMap::default(),
            may_need_repair: FxHashMap::default(),
            language: None,
            demangler,
            steps: 0,
        }
    }

    /// Returns the functions at an address with their source lines; `None` if they are unknown, or
    /// not wanted.
    fn located(&mut self, address: u64, which: Which) -> Option<Answer> {
        let units: Vec<usize> = self.info.units_at(address).collect();
        units.into_iter().find_map(|unit| {
            if which == Which::Repaired && !self.may_need_repair(unit) {
                return None;
            }
            let read = self.read(unit)?;
            if which == Which::Repaired && !read.scopes.is_repaired(address) {
                return None;
            }
            self.language = read.language;
            let functions = read.scopes.functions(address);
            match &read.missing {
                // Compilers can put inlined functions into the skeleton, too.
                Some(path) if functions.is_empty() => return Some(Answer::Missing(path.clone())),
                Some(_) => return None,
                None if which == Which::Split && read.split.is_none() => return None,
                None if functions.is_empty() => return None,
                None => {}
            }
            let functions = functions.to_vec();
            let calls = functions[1..].iter().map(|&inlined| self.call(&read, inlined));
            let last = (which == Which::All).then(|| self.line(&read, address)).flatten();
            let sources: Vec<Option<Source>> = calls.chain([last]).collect();
            let located = functions.iter().zip(sources).map(|(&offset, source)| {
                self.steps = STEPS;
                Located { name: self.function(Place { unit, offset }, DEPTH), source }
            });
            Some(Answer::Found(located.collect()))
        })
    }

    /// Returns whether a unit may have lists of ranges that end too early: those that GCC writes up
    /// to DWARF 4.
    fn may_need_repair(&mut self, index: usize) -> bool {
        if let Some(&known) = self.may_need_repair.get(&index) {
            return known;
        }
        let is_of_gcc = |unit: Unit<Slice<'a>>| {
            let root = unit.entry(unit.header.root_offset()).ok()?;
            let producer = root.attr_value(gimli::DW_AT_producer)?;
            let dwarf = self.info.dwarf_of(&self.dwarf, index);
            let producer = dwarf.attr_string(&unit, producer).ok()?;
            Some(unit.header.version() < 5 && producer.slice().starts_with(b"GNU "))
        };
        let may = self.info.unit(&self.dwarf, index).and_then(is_of_gcc).unwrap_or_default();
        self.may_need_repair.insert(index, may);
        may
    }

    /// Returns where an inlined function was called.
    fn call(&self, read: &Read<'a>, inlined: UnitOffset) -> Option<Source> {
        let files = match &read.split {
            // A unit without a line table of its own has the files of the skeleton.
            Some((_, skeleton)) if read.unit.line_program.is_none() => {
                skeleton.unit_ref(&self.dwarf)
            }
            _ => read.unit.unit_ref(self.dwarf_of(read)),
        };
        located::call(&read.unit.entry(inlined).ok()?, files)
    }

    fn line(&self, read: &Read<'a>, address: u64) -> Option<Source> {
        let lines = || match &read.split {
            Some((_, skeleton)) => located::lines(&self.dwarf, skeleton, self.addresses),
            None => located::lines(self.dwarf_of(read), &read.unit, self.addresses),
        };
        read.lines.get_or_init(lines).get(&address).cloned()
    }

    /// Returns the sections of the file that contains a unit.
    fn dwarf_of<'r>(&'r self, read: &'r Read<'a>) -> &'r Dwarf<Slice<'a>> {
        match &read.split {
            Some((dwarf, _)) => dwarf,
            None => self.info.dwarf_of(&self.dwarf, read.index),
        }
    }

    fn at(&mut self, address: u64) -> Option<Vec<Option<String>>> {
        let units: Vec<usize> = self.info.units_at(address).collect();
        units.into_iter().find_map(|unit| {
            self.language = None;
            let read = self.read(unit)?;
            self.language = Some(read.language?);
            // The engine reads the names of C, except those in a supplementary file.
            if read.language == Some(Language::C) && !self.info.has_supplementary() {
                return None;
            }
            let functions = read.scopes.functions(address);
            let name = |&offset: &UnitOffset| {
                self.steps = STEPS;
                self.function(Place { unit, offset }, DEPTH)
            };
            Some(functions.iter().map(name).collect()).filter(|f: &Vec<_>| !f.is_empty())
        })
    }

    fn read(&mut self, index: usize) -> Option<Rc<Read<'a>>> {
        if let Some(known) = self.read.get(&index) {
            return known.clone();
        }
        let unit = self.info.unit(&self.dwarf, index);
        let read = unit.map(|unit| Rc::new(self.read_unit(index, unit)));
        self.read.insert(index, read.clone());
        read
    }

    /// Reads the functions of a unit: those in its `.dwo` file, if it is a skeleton.
    fn read_unit(&self, index: usize, unit: Unit<Slice<'a>>) -> Read<'a> {
        let path = split::path(&self.dwarf, &unit);
        let of_file = path.as_ref().and_then(|_| self.info.split_unit(&self.dwarf, index, &unit));
        let missing = path.filter(|_| of_file.is_none());
        let (unit, split) = match of_file {
            Some((dwarf, whole)) => (whole, Some((dwarf, unit))),
            None => (unit, None),
        };
        let of_split = split.as_ref().map(|(dwarf, _)| dwarf);
        let dwarf = of_split.unwrap_or_else(|| self.info.dwarf_of(&self.dwarf, index));
        let scopes = Scopes::of(unit.unit_ref(dwarf), self.addresses);
        // A partial unit created by `dwz` has the language of the unit that uses it.
        let language = language(&unit).or(self.language);
        Read { index, unit, scopes, language, split, missing, lines: OnceCell::new() }
    }

    fn entry(&mut self, place: Place) -> Option<(Rc<Read<'a>>, Entry<'a>)> {
        self.steps = self.steps.checked_sub(1)?;
        let read = self.read(place.unit)?;
        let entry = read.unit.entry(place.offset).ok()?;
        Some((read, entry))
    }

    fn text(&self, read: &Read<'a>, entry: &Entry<'a>, name: DwAt) -> Option<String> {
        let value = entry.attr_value(name)?;
        let text = self.dwarf_of(read).attr_string(&read.unit, value).ok()?;
        Some(text.to_string_lossy().into_owned()).filter(|text| !text.is_empty())
    }

    fn link(&self, place: Place, entry: &Entry<'a>, name: DwAt) -> Option<Place> {
        match entry.attr_value(name)? {
            AttributeValue::UnitRef(offset) => Some(Place { offset, ..place }),
            AttributeValue::DebugInfoRef(offset) => {
                // A `.dwo` file has one unit, at its start.
                if self.read.get(&place.unit).is_some_and(|read| {
                    read.as_ref().is_some_and(|read| read.split.is_some()) //
                }) {
                    return Some(Place { offset: UnitOffset(offset.0), ..place });
                }
                let (unit, offset) = self.info.unit_with(place.unit, offset)?;
                Some(Place { unit, offset })
            }
            AttributeValue::DebugInfoRefSup(offset) => {
                let (unit, offset) = self.info.supplementary_unit_with(offset)?;
                Some(Place { unit, offset })
            }
            _ => None,
        }
    }

    /// Returns the entry with the name of a function or type: the one that it is a copy or the
    /// definition of.
    fn declared(&self, place: Place, entry: &Entry<'a>) -> Option<Place> {
        self.link(place, entry, gimli::DW_AT_abstract_origin)
            .or_else(|| self.link(place, entry, gimli::DW_AT_specification))
    }

    fn function(&mut self, place: Place, depth: usize) -> Option<String> {
        let depth = depth.checked_sub(1)?;
        let (read, entry) = self.entry(place)?;
        let mangled = self
            .text(&read, &entry, gimli::DW_AT_linkage_name)
            .or_else(|| self.text(&read, &entry, gimli::DW_AT_MIPS_linkage_name));
        if let Some(mangled) = mangled {
            let name = self.demangler.readable(&mangled);
            let is_legacy = read.language == Some(Language::Rust) && mangled.starts_with("_ZN");
            let bare = is_legacy.then(|| self.text(&read, &entry, gimli::DW_AT_name)).flatten();
            return Some(with_types(name, &bare.unwrap_or_default()));
        }
        if let Some(declared) = self.declared(place, &entry) {
            return self.function(declared, depth);
        }
        let bare = self.text(&read, &entry, gimli::DW_AT_name)?;
        if read.language == Some(Language::C) {
            return Some(bare);
        }
        let scope = self.scope(place, depth);
        let is_external = entry.has_attr(gimli::DW_AT_external);
        let is_member = self.parent_is_type(place);
        if read.language == Some(Language::Cpp) && is_external && !is_member && !bare.contains('<')
        {
            return Some(bare); // a C function: extern "C", or main
        }
        let name = self.with_lambdas(place, bare, depth);
        let parameters = match read.language {
            Some(Language::Cpp) => self.parameters(place, depth).unwrap_or_default(),
            _ => String::new(),
        };
        Some(format!("{}{name}{parameters}", scope?))
    }

    fn parent_is_type(&mut self, place: Place) -> bool {
        let Some(read) = self.read(place.unit) else { return false };
        let Some(parent) = read.scopes.parent(place.offset) else { return false };
        read.unit.entry(parent.offset).is_ok_and(|entry| is_type(&entry))
    }

    /// Returns the enclosing scopes of an entry, each followed by `::`; `None` if one of them is
    /// unknown.
    fn scope(&mut self, place: Place, depth: usize) -> Option<String> {
        let depth = depth.checked_sub(1)?;
        let read = self.read(place.unit)?;
        let Some(parent) = read.scopes.parent(place.offset) else { return Some(String::new()) };
        let parent = Place { offset: parent.offset, ..place };
        let (_, entry) = self.entry(parent)?;
        let name = match entry.tag() {
            gimli::DW_TAG_subprogram => self.function(parent, depth)?,
            gimli::DW_TAG_namespace => {
                let name = self.text(&read, &entry, gimli::DW_AT_name);
                let name = name.unwrap_or_else(|| "(anonymous namespace)".to_owned());
                self.scope(parent, depth)? + &name
            }
            _ => self.class(parent, depth)?,
        };
        Some(name + "::")
    }

    /// Returns the name of a class, union or enumeration.
    fn class(&mut self, place: Place, depth: usize) -> Option<String> {
        let depth = depth.checked_sub(1)?;
        let (read, entry) = self.entry(place)?;
        if let Some(declared) = self.declared(place, &entry) {
            return self.class(declared, depth);
        }
        let scope = self.scope(place, depth)?;
        if let Some(name) = self.text(&read, &entry, gimli::DW_AT_name) {
            return Some(scope + &self.with_lambdas(place, name, depth));
        }
        let number = read.scopes.closure_number(place.offset)?;
        let call = self.children(place).into_iter().find(|&child| {
            let name =
                self.entry(child).and_then(|(read, e)| self.text(&read, &e, gimli::DW_AT_name));
            name.is_some_and(|name| name.starts_with("operator()"))
        })?;
        let parameters = self.parameters(call, depth).unwrap_or_default();
        let parameters = parameters.trim_end_matches(" const");
        Some(format!("{scope}{{lambda{parameters}#{number}}}"))
    }

    fn children(&mut self, place: Place) -> Vec<Place> {
        let Some(read) = self.read(place.unit) else { return Vec::new() };
        let mut children = Vec::new();
        let Ok(mut tree) = read.unit.entries_tree(Some(place.offset)) else { return children };
        let Ok(root) = tree.root() else { return children };
        let mut iter = root.children();
        while let Ok(Some(child)) = iter.next() {
            children.push(Place { offset: child.entry().offset(), ..place });
        }
        children
    }

    /// Returns the parameter types in parentheses, and ` const` for a const member; `None` if a
    /// type cannot be named.
    fn parameters(&mut self, place: Place, depth: usize) -> Option<String> {
        let mut types = Vec::new();
        let mut is_const = false;
        for child in self.children(place) {
            let (_, entry) = self.entry(child)?;
            match entry.tag() {
                gimli::DW_TAG_formal_parameter => {}
                gimli::DW_TAG_unspecified_parameters => {
                    types.push("...".to_owned());
                    continue;
                }
                _ => continue,
            }
            if entry.has_attr(gimli::DW_AT_artificial) {
                is_const |= types.is_empty() && self.points_to_const(child, &entry);
            } else {
                types.push(self.type_of(child, &entry, depth)?);
            }
        }
        Some(format!("({}){}", types.join(", "), if is_const { " const" } else { "" }))
    }

    fn points_to_const(&mut self, place: Place, entry: &Entry<'a>) -> bool {
        let mut target = self.link(place, entry, gimli::DW_AT_type);
        // `this` is a pointer, which can be const itself.
        for _ in 0..3 {
            let Some(place) = target else { return false };
            let Some((_, entry)) = self.entry(place) else { return false };
            let next = self.link(place, &entry, gimli::DW_AT_type);
            if entry.tag() == gimli::DW_TAG_pointer_type {
                let to = next.and_then(|next| self.entry(next));
                return to.is_some_and(|(_, entry)| entry.tag() == gimli::DW_TAG_const_type);
            }
            target = next;
        }
        false
    }

    fn type_of(&mut self, place: Place, entry: &Entry<'a>, depth: usize) -> Option<String> {
        match self.link(place, entry, gimli::DW_AT_type) {
            Some(target) => self.type_name(target, depth),
            None if entry.has_attr(gimli::DW_AT_type) => None,
            None => Some("void".to_owned()),
        }
    }

    /// Returns a type in the format of a demangler; `None` if it cannot be named.
    fn type_name(&mut self, place: Place, depth: usize) -> Option<String> {
        let depth = depth.checked_sub(1)?;
        let (read, entry) = self.entry(place)?;
        let suffix = match entry.tag() {
            gimli::DW_TAG_base_type => {
                return self.text(&read, &entry, gimli::DW_AT_name).map(|name| base_type(&name));
            }
            gimli::DW_TAG_unspecified_type => return self.text(&read, &entry, gimli::DW_AT_name),
            _ if is_type(&entry) => return self.class(place, depth),
            gimli::DW_TAG_typedef => "",
            gimli::DW_TAG_pointer_type => "*",
            gimli::DW_TAG_reference_type => "&",
            gimli::DW_TAG_rvalue_reference_type => "&&",
            gimli::DW_TAG_const_type => " const",
            gimli::DW_TAG_volatile_type => " volatile",
            _ => return None,
        };
        Some(self.type_of(place, &entry, depth)? + suffix)
    }

    /// Numbers GCC's `<lambda(int)>` in template arguments as in mangled names.
    fn with_lambdas(&mut self, place: Place, name: String, depth: usize) -> String {
        if !name.contains(LAMBDA) {
            return name;
        }
        let mut numbers = Vec::new();
        self.closure_numbers(place, depth, &mut numbers);
        numbered(&name, &numbers).unwrap_or(name)
    }

    /// Collects the numbers of the closures in the template arguments of an entry, in their order.
    fn closure_numbers(&mut self, place: Place, depth: usize, numbers: &mut Vec<usize>) {
        let Some(depth) = depth.checked_sub(1) else { return };
        for child in self.children(place) {
            let Some((_, entry)) = self.entry(child) else { continue };
            match entry.tag() {
                gimli::DW_TAG_GNU_template_parameter_pack => {
                    self.closure_numbers(child, depth, numbers);
                }
                gimli::DW_TAG_template_type_parameter => {
                    let target = self.link(child, &entry, gimli::DW_AT_type);
                    if let Some(target) = target {
                        self.closure_numbers_of_type(target, depth, numbers);
                    }
                }
                _ => {}
            }
        }
    }

    fn closure_numbers_of_type(&mut self, place: Place, depth: usize, numbers: &mut Vec<usize>) {
        let Some(depth) = depth.checked_sub(1) else { return };
        let Some((read, entry)) = self.entry(place) else { return };
        if is_type(&entry) {
            match read.scopes.closure_number(place.offset) {
                Some(number) => numbers.push(number),
                None => self.closure_numbers(place, depth, numbers),
            }
        } else if let Some(target) = self.link(place, &entry, gimli::DW_AT_type) {
            self.closure_numbers_of_type(target, depth, numbers);
        }
    }
}

/// Inserts the numbers of closures into a name; `None` if the counts differ.
fn numbered(name: &str, numbers: &[usize]) -> Option<String> {
    let mut text = String::with_capacity(name.len());
    let mut rest = name;
    let mut numbers = numbers.iter();
    while let Some(at) = rest.find(LAMBDA) {
        let inner = &rest[at + LAMBDA.len()..];
        let end = inner.find(LAMBDA_END)?;
        let number = numbers.next()?;
        text.push_str(&rest[..at]);
        text.push_str(&format!("{{lambda({})#{number}}}", &inner[..end]));
        rest = &inner[end + LAMBDA_END.len()..];
        rest = rest.strip_prefix(' ').filter(|rest| rest.starts_with('>')).unwrap_or(rest);
    }
    numbers.next().is_none().then(|| text + rest)
}

fn is_type(entry: &Entry<'_>) -> bool {
    matches!(
        entry.tag(),
        gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_enumeration_type
    )
}

/// Returns the name of a number type in the format of demanglers; GCC has `long unsigned int`.
fn base_type(name: &str) -> String {
    let short = match name {
        "long int" => "long",
        "long unsigned int" => "unsigned long",
        "long long int" => "long long",
        "long long unsigned int" => "unsigned long long",
        "short int" => "short",
        "short unsigned int" => "unsigned short",
        other => other,
    };
    short.to_owned()
}

fn language(unit: &Unit<Slice<'_>>) -> Option<Language> {
    let root = unit.entry(unit.header.root_offset()).ok()?;
    let Some(AttributeValue::Language(language)) = root.attr_value(gimli::DW_AT_language) else {
        return None;
    };
    const CPP: [DwLang; 6] = [
        gimli::DW_LANG_C_plus_plus,
        gimli::DW_LANG_C_plus_plus_03,
        gimli::DW_LANG_C_plus_plus_11,
        gimli::DW_LANG_C_plus_plus_14,
        gimli::DW_LANG_C_plus_plus_17,
        gimli::DW_LANG_C_plus_plus_20,
    ];
    const C: [DwLang; 5] = [
        gimli::DW_LANG_C,
        gimli::DW_LANG_C89,
        gimli::DW_LANG_C99,
        gimli::DW_LANG_C11,
        gimli::DW_LANG_C17,
    ];
    match language {
        gimli::DW_LANG_Rust => Some(Language::Rust),
        language if C.contains(&language) => Some(Language::C),
        language => CPP.contains(&language).then_some(Language::Cpp),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lambdas_have_numbers_if_all_are_known() {
        let name = "each<run()::<lambda(int)>, go()::<lambda()>&, f()::<lambda()> >";
        let expected = "each<run()::{lambda(int)#2}, go()::{lambda()#1}&, f()::{lambda()#3}>";
        assert_eq!(numbered(name, &[2, 1, 3]).as_deref(), Some(expected));
        assert_eq!(numbered(name, &[2, 1]), None);
        assert_eq!(numbered(name, &[2, 1, 3, 4]), None);
        assert_eq!(numbered("<lambda(", &[1]), None);
    }

    #[test]
    fn functions_of_rusts_libraries_have_their_types() {
        let with = |name: &str, bare| with_types(name.to_owned(), bare);
        let push = "alloc::vec::Vec<T,A>::push";
        assert_eq!(with(push, "push<app::Order>"), "alloc::vec::Vec<T,A>::push::<app::Order>");
        assert_eq!(with(push, "push"), push);
        assert_eq!(with("app::parse", "parse<u8>"), "app::parse", "one function of the program");
    }

    #[test]
    fn number_types_are_spelt_as_demanglers_do() {
        assert_eq!(base_type("long unsigned int"), "unsigned long");
        assert_eq!(base_type("char"), "char");
    }
}
