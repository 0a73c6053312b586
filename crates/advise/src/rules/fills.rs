//! Vectors of C++ that are filled element by element: a part of the rule `growth`.
//!
//! A vector that is full allocates a block for twice the elements. Each such block can be avoided
//! by a call of `reserve`, except the first block of a vector that was empty, which `reserve` has
//! to allocate instead: that for one element. How many blocks of a line have one element is not
//! recorded, but the process has no more blocks of that size class than its histogram counts,
//! without those that other lines certainly allocate. If the element's size is unknown, the largest
//! of the possible classes counts. So the saving is a lower bound.

use heaptide_analysis::model::{Measures, Process, SiteKind, SizeClass};
use heaptide_analysis::quantity::{bytes, count};
use heaptide_analysis::views::sizes::only_size;
use rustc_hash::FxHashMap;

use crate::finding::{Certainty, Finding, Saves};
use crate::material::{Group, Material, Row};

/// Functions of vectors that add one element and allocate twice the capacity, by parts of their
/// names.
const ADDS_ONE: [&str; 4] =
    ["_M_realloc_insert", "_M_realloc_append", "__push_back_slow_path", "__emplace_back_slow_path"];
/// Sizes of elements on 64-bit machines, by their names as template arguments of both libraries.
const ELEMENTS: [(&str, u64); 19] = [
    ("bool", 1),
    ("char", 1),
    ("signed char", 1),
    ("unsigned char", 1),
    ("std::byte", 1),
    ("short", 2),
    ("unsigned short", 2),
    ("int", 4),
    ("unsigned int", 4),
    ("float", 4),
    ("long", 8),
    ("unsigned long", 8),
    ("long long", 8),
    ("unsigned long long", 8),
    ("double", 8),
    ("std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >", 32),
    ("std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char>>", 32),
    ("std::__cxx11::basic_string<char>", 32),
    ("std::string", 32),
];
/// Pointers, and containers of known size, by the beginning of their names.
const ELEMENT_STARTS: [(&str, u64); 4] = [
    ("std::vector<", 24),
    ("std::shared_ptr<", 16),
    ("std::weak_ptr<", 16),
    ("std::__1::vector<", 24),
];

/// Blocks of a process by size class, without those of lines whose blocks all have one size.
pub(super) struct Sizes(Vec<SizeClass>);

impl Sizes {
    pub(super) fn of(process: &Process) -> Sizes {
        let mut classes = process.tables.histogram.clone();
        for site in process.tables.sites.iter().filter(|site| site.kind == SiteKind::Heap) {
            let m = &site.measures;
            let size = site.size.or_else(|| only_size(m)).filter(|_| site.label.is_none());
            let class = size.and_then(|size| classes.iter_mut().find(|of| holds(of, size)));
            if let Some(class) = class {
                class.requested = class.requested.saturating_sub(m.allocations);
            }
        }
        Sizes(classes)
    }

    /// Returns an upper bound of the blocks in one class that these stacks allocate: in the class
    /// of `element` bytes, or else in any class up to that of the mean size.
    fn most_of_one_class(&self, rows: &[Row], element: Option<u64>) -> u64 {
        let mut sum = Measures::default();
        rows.iter().for_each(|row| sum.add(&row.measures));
        let mean = sum.requested_bytes / sum.allocations.max(1);
        let is_possible = |class: &&SizeClass| match element {
            Some(size) => holds(class, size),
            None => class.size_min <= mean,
        };
        let own = |class: &SizeClass| {
            let of_one_size = rows
                .iter()
                .filter(|row| only_size(&row.measures).is_some_and(|size| holds(class, size)));
            of_one_size
                .fold(class.requested, |sum, row| sum.saturating_add(row.measures.allocations))
        };
        let most = self.0.iter().filter(is_possible).map(own).max();
        most.unwrap_or(0).min(sum.allocations)
    }
}

fn holds(class: &SizeClass, size: u64) -> bool {
    (class.size_min..=class.size_max).contains(&size)
}

/// Returns the size of the elements of a vector, by the name of its member function.
fn element_bytes(function: &str) -> Option<u64> {
    let inside = &function[function.find("vector<")? + "vector<".len()..];
    let mut depth = 0u32;
    let end = inside.find(|c| {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' if depth > 0 => depth -= 1,
            '>' | ',' if depth == 0 => return true,
            _ => {}
        }
        false
    })?;
    let element = inside[..end].trim();
    let is_pointer = element.ends_with('*') && !element.contains("::*");
    let known = ELEMENTS.iter().find(|(name, _)| *name == element);
    let starts = ELEMENT_STARTS.iter().find(|(name, _)| element.starts_with(name));
    match known.or(starts) {
        _ if is_pointer => Some(8),
        Some((_, size)) if element.ends_with('>') || known.is_some() => Some(*size),
        _ => None,
    }
}

/// Checks a line that adds elements to vectors, one by one, for the rule of this name.
pub(super) fn finding(
    rule: &'static str,
    material: &Material,
    group: &Group,
    sizes: &Sizes,
    steps_min: u64,
) -> Option<Finding> {
    if material.process.sampling.is_some() {
        return None; // numbers of blocks are estimates
    }
    let mut vectors: FxHashMap<&str, Vec<Row>> = FxHashMap::default();
    for row in &group.rows {
        let names = material.inside(row.stack).filter_map(|frame| frame.function.as_deref());
        let mut adding = names.filter(|name| ADDS_ONE.iter().any(|part| name.contains(part)));
        if let Some(name) = adding.next() {
            vectors.entry(name).or_default().push(*row);
        }
    }
    let first = vectors.iter().fold(0u64, |sum, (name, rows)| {
        sum.saturating_add(sizes.most_of_one_class(rows, element_bytes(name)))
    });
    let rows: Vec<Row> = vectors.into_values().flatten().collect();
    let place = material.place(&rows, |m| m.allocations)?;
    let m = place.measures;
    let avoidable = m.allocations.saturating_sub(first);
    if avoidable / first.max(1) < steps_min || !material.is_many(avoidable) {
        return None;
    }
    Some(Finding {
        rule,
        place: Some(place),
        what: format!("lets vectors grow by {} allocations", count(m.allocations)),
        evidence: vec![
            format!(
                "at most {} of them are the first block of a vector; the largest has {}",
                count(first),
                bytes(m.largest_bytes)
            ),
            format!(
                "the blocks have {} in total, to which the vectors copy their elements",
                bytes(m.requested_bytes)
            ),
        ],
        advice: "Call `reserve` with the final size, if it is known or can be estimated."
            .to_owned(),
        saves: Saves { allocations: avoidable, ..Saves::default() },
        certainty: Certainty::Likely,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_elements_are_known_by_their_types() {
        let of = |element: &str| {
            element_bytes(&format!(
                "void std::vector<{element}, std::allocator<{element} > >::_M_realloc_insert<int>()"
            ))
        };
        assert_eq!(of("int"), Some(4));
        assert_eq!(of("Order*"), Some(8));
        assert_eq!(of("std::vector<int, std::allocator<int> >"), Some(24));
        assert_eq!(of("std::shared_ptr<Order>"), Some(16));
        assert_eq!(of("void (*)(int, char)"), None);
        assert_eq!(of("Order"), None);
        assert_eq!(of("std::vector<int>::iterator"), None);
        let text =
            "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";
        assert_eq!(of(text), Some(32));
        assert_eq!(
            element_bytes("int& std::vector<int>::__emplace_back_slow_path<int>(int&&)"),
            Some(4)
        );
        assert_eq!(element_bytes("grow"), None);
    }
}
