//! Empty packs of template arguments in mangled C++ names.
//!
//! The demangler writes an argument and a parameter for a pack that has none:
//! `std::make_shared<Foo, >(&&)` for `std::make_shared<Foo>()`. So a type that occurs nowhere else
//! is put into each empty pack before demangling. Afterwards, the arguments and parameters that
//! consist of this type are removed. The type is a built-in one, because these have no number among
//! the substitutions of a mangled name.

/// An empty pack in a mangled name.
const EMPTY: &str = "JE";
/// Built-in types that hardly any program uses, mangled and demangled.
const MARKERS: [(&str, &str); 3] = [("Dd", "decimal64"), ("De", "decimal128"), ("Df", "decimal32")];

/// Returns the symbol with a type in each empty pack, and the demangled name of that type. `None`
/// if no pack is empty.
pub(super) fn filled(symbol: &str) -> Option<(String, &'static str)> {
    let packs = packs(symbol);
    if packs.is_empty() {
        return None;
    }
    let (mangled, name) = MARKERS.iter().find(|(mangled, _)| !symbol.contains(mangled))?;
    let mut text = String::with_capacity(symbol.len() + packs.len() * mangled.len());
    let mut from = 0;
    for at in packs {
        let inside = at + 1;
        text.push_str(&symbol[from..inside]);
        text.push_str(mangled);
        from = inside;
    }
    text.push_str(&symbol[from..]);
    Some((text, name))
}

/// Returns the positions of empty packs. Identifiers, which follow their length, are skipped.
fn packs(symbol: &str) -> Vec<usize> {
    let bytes = symbol.as_bytes();
    let (mut at, mut packs) = (0, Vec::new());
    while at < bytes.len() {
        let is_length = bytes[at].is_ascii_digit() && !is_number(&bytes[..at]);
        if is_length {
            let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let length: usize = symbol[at..at + digits].parse().unwrap_or(usize::MAX);
            at = (at + digits).saturating_add(length);
            continue;
        }
        if symbol.get(at..at + EMPTY.len()) == Some(EMPTY) {
            packs.push(at);
        }
        at += 1;
    }
    packs
}

/// Returns whether digits after these bytes are a number, and not the length of an identifier: that
/// of a substitution, a parameter, a literal, an array, a vector or a discriminator.
fn is_number(before: &[u8]) -> bool {
    let digits = |byte: &&u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
    match before {
        // `S1A_`, `T2_`, `fp1_`, `fL0p1_`, `A16_c`, `Dv4_f`, `_12`, and `__12_`.
        [.., b'S' | b'T' | b'_' | b'A'] | [.., b'f', b'p' | b'L'] | [.., b'D', b'v'] => true,
        // `Li42E`, `Lb1E` and `Lin5E`: literals of a built-in type.
        [.., b'L', b'a'..=b'z'] | [.., b'L', b'a'..=b'z', b'n'] => true,
        // `S1A2_`: digits after capital letters of a number.
        [.., last] if last.is_ascii_uppercase() => {
            let number = before.iter().rev().take_while(digits).count();
            before.len().checked_sub(number + 1).is_some_and(|at| {
                let starts = before[at..].first();
                matches!(starts, Some(b'S' | b'T')) && number < 3 //
            })
        }
        _ => false,
    }
}

/// Removes the arguments and parameters that consist of `marker`, qualified or not. `None` if it
/// also occurs elsewhere.
pub(super) fn without(name: &str, marker: &str) -> Option<String> {
    let mut text = name.to_owned();
    while let Some(at) = text.find(marker) {
        let end = at + marker.len();
        let end = end + qualifiers(&text[end..]);
        let before = text[..at].trim_end_matches(' ');
        let after = text[end..].trim_start_matches(' ');
        let (from, to) = match (before.as_bytes().last()?, after.as_bytes().first()?) {
            // The first element of several, or the only one.
            (b'<' | b'(', b',') => (before.len(), text.len() - after[1..].trim_start().len()),
            (b'<' | b'(', b'>' | b')') => (before.len(), text.len() - after.len()),
            (b',', b',' | b'>' | b')') => (before.len() - 1, text.len() - after.len()),
            _ => return None,
        };
        text.replace_range(from..to, "");
    }
    Some(text)
}

/// Returns the length of the qualifiers at the start of a text: ` const`, `&`, `*`, `...`.
fn qualifiers(text: &str) -> usize {
    const QUALIFIERS: [&str; 6] = [" const", " volatile", "...", "&", "*", " "];
    let mut rest = text;
    while let Some(inner) = QUALIFIERS.iter().find_map(|word| rest.strip_prefix(word)) {
        rest = inner;
    }
    text.len() - rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_are_found_outside_of_identifiers() {
        assert_eq!(packs("_Z1fIJEEvDpT_"), [5]);
        assert_eq!(packs("_Z3aJEIiEvT_"), [0; 0], "a part of the name");
        assert_eq!(packs("_Z1gIXLi12EEJEEvv"), [12]);
        assert_eq!(packs("_ZNS_1aIS0_S1_JEE1bIJEEEv").len(), 2);
        assert_eq!(packs("_Z1fA3_i"), [0; 0]);
        assert_eq!(packs("_Z9999999999999999999999x"), [0; 0]);
    }

    #[test]
    fn elements_are_removed_wherever_they_are() {
        let of = |name| without(name, "M");
        assert_eq!(of("f<M>(M&&)").as_deref(), Some("f<>()"));
        assert_eq!(of("f<int, M>(int, M const&)").as_deref(), Some("f<int>(int)"));
        assert_eq!(of("f<M, int>(M, int)").as_deref(), Some("f<int>(int)"));
        assert_eq!(of("f<A<M>, M, int>()").as_deref(), Some("f<A<>, int>()"));
        assert_eq!(of("f(sizeof M)"), None);
        assert_eq!(of("M"), None);
    }
}
