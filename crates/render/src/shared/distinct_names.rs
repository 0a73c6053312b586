//! Short names of the functions that a view shows together: different functions have different
//! names, which show the part in which they differ.

use std::cell::RefCell;
use std::sync::Arc;

use heaptide_analysis::attribution::{FunctionId, Functions};
use heaptide_analysis::model::{Frame, FrameId, Process, StackId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::shared::frames::{self, in_module};
use crate::shared::names::{elide_middle, shorten, texts_by_detail};

/// Names that are equal in this width are compared with each other. No view has narrower names, and
/// names that are equal in a larger width are equal in this one.
const KEY: usize = 12;

/// The labels of the frames that a view shows.
pub struct Labels<'a> {
    /// The process.
    pub(crate) process: &'a Process,
    /// Names that are equal in the narrowest width, by the short name.
    alike: FxHashMap<String, Vec<Arc<str>>>,
    /// Their short names by width.
    known: RefCell<FxHashMap<(String, usize), ShortNames>>,
}

/// Short names by name.
type ShortNames = FxHashMap<Arc<str>, String>;

impl<'a> Labels<'a> {
    /// Compares the names of these frames.
    pub fn of<'f>(process: &'a Process, frames: impl IntoIterator<Item = &'f Frame>) -> Labels<'a> {
        let mut all: FxHashMap<&str, &Arc<str>> = FxHashMap::default();
        for frame in frames.into_iter().filter(|frame| !frame.is_scope()) {
            if let Some(name) = &frame.function {
                all.insert(name, name);
            }
        }
        let mut alike: FxHashMap<String, Vec<Arc<str>>> = FxHashMap::default();
        for name in all.into_values() {
            alike.entry(shorten(name, KEY)).or_default().push(name.clone());
        }
        alike.retain(|_, names| names.len() > 1);
        alike.values_mut().for_each(|names| names.sort_unstable());
        Labels { process, alike, known: RefCell::default() }
    }

    /// Compares the names of the functions of these stacks.
    pub fn of_stacks(
        process: &'a Process,
        stacks: impl IntoIterator<Item = StackId>,
    ) -> Labels<'a> {
        let ids: FxHashSet<FrameId> =
            stacks.into_iter().flat_map(|stack| process.frames_of(stack)).collect();
        Labels::of_ids(process, ids)
    }

    /// Compares the names of these frames of the process.
    pub fn of_ids(process: &'a Process, ids: impl IntoIterator<Item = FrameId>) -> Labels<'a> {
        Labels::of(process, ids.into_iter().map(|id| &process.tables.frames[id.0 as usize]))
    }

    /// Returns the label of a frame in at most `width` characters: its function, else
    /// `module+0xoffset`. Labels of different functions differ.
    pub fn label(&self, frame: &Frame, width: usize) -> String {
        self.distinct(frame, width).unwrap_or_else(|| frames::label(self.process, frame, width))
    }

    /// Returns the name of a function that has to be compared with others.
    fn distinct(&self, frame: &Frame, width: usize) -> Option<String> {
        let name =
            frame.function.as_ref().filter(|_| !frame.is_scope() && !self.alike.is_empty())?;
        let key = shorten(name, KEY);
        let names = self.alike.get(&key)?;
        let mut known = self.known.borrow_mut();
        let of_width = known.entry((key, width)).or_insert_with(|| {
            names.iter().cloned().zip(shorten_apart(names, width)).collect() //
        });
        of_width.get(name).cloned()
    }
}

/// Returns a label for each function of a process, in at most about `width` characters, by which
/// the functions can be grouped: all are different.
pub(crate) fn of_functions(process: &Process, functions: &Functions, width: usize) -> Vec<String> {
    let frame = |id: u32| {
        let id = functions.first_frame(FunctionId(id));
        &process.tables.frames[id.0 as usize]
    };
    let frames: Vec<&Frame> = (0..functions.len() as u32).map(frame).collect();
    let mut labels: Vec<String> =
        frames.iter().map(|frame| frames::label(process, frame, width)).collect();
    let named = |frame: &&Frame| frame.function.is_some() && !frame.is_scope();
    let names = frames.iter().map(|frame| frame.function.as_deref().unwrap_or_default());
    let names: Vec<&str> = names.collect();
    let rows: Vec<usize> = (0..frames.len()).filter(|&row| named(&frames[row])).collect();
    make_different(&names, &rows, &mut labels, width);
    add_modules(&mut labels, width, |row| in_module(process, frames[row]));
    labels
}

/// Adds the text of `module` to the labels that several rows have: functions of one name are those
/// of several modules. Labels that are still equal get numbers.
pub(crate) fn add_modules(labels: &mut [String], width: usize, module: impl Fn(usize) -> String) {
    for row in repeated(labels) {
        labels[row] += &module(row);
    }
    let mut seen: FxHashMap<String, usize> = FxHashMap::default();
    for label in labels {
        let times = seen.entry(label.clone()).or_default();
        *times += 1;
        if *times > 1 {
            *label = numbered(label, *times, width);
        }
    }
}

/// Returns each name, as [`shorten`] returns it; if that makes different names equal, these show
/// the part in which they differ.
pub(crate) fn shorten_apart<S: AsRef<str>>(names: &[S], width: usize) -> Vec<String> {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let mut short: Vec<String> = names.iter().map(|name| shorten(name, width)).collect();
    make_different(&names, &(0..names.len()).collect::<Vec<_>>(), &mut short, width);
    short
}

/// Replaces those of the short names of `rows` that are equal although the names are different.
fn make_different(names: &[&str], rows: &[usize], short: &mut [String], width: usize) {
    let mut groups: FxHashMap<&str, Vec<usize>> = FxHashMap::default();
    for &row in rows {
        groups.entry(&short[row]).or_default().push(row);
    }
    let mut groups: Vec<Vec<usize>> = groups.into_values().filter(|rows| rows.len() > 1).collect();
    groups.sort_unstable();
    let mut is_changed = false;
    for group in groups {
        let mut different: Vec<&str> = group.iter().map(|&row| names[row]).collect();
        different.sort_unstable();
        different.dedup();
        if different.len() > 1 {
            let apart: FxHashMap<&str, String> =
                different.iter().copied().zip(tell_apart(&different, width)).collect();
            group.iter().for_each(|&row| short[row].clone_from(&apart[names[row]]));
            is_changed = true;
        }
    }
    if is_changed {
        number_names(names, rows, short, width);
    }
}

/// Numbers different names that are still equal.
fn number_names(names: &[&str], rows: &[usize], short: &mut [String], width: usize) {
    let mut first: FxHashMap<String, Vec<&str>> = FxHashMap::default();
    for &row in rows {
        let known = first.entry(short[row].clone()).or_default();
        match known.iter().position(|name| *name == names[row]) {
            Some(0) => {}
            Some(number) => short[row] = numbered(&short[row], number + 1, width),
            None => {
                known.push(names[row]);
                if known.len() > 1 {
                    short[row] = numbered(&short[row], known.len(), width);
                }
            }
        }
    }
}

fn numbered(label: &str, number: usize, width: usize) -> String {
    let number = format!(" #{number}");
    elide_middle(label, width.saturating_sub(number.len())) + &number
}

/// Returns the rows whose label occurs more than once.
fn repeated(labels: &[String]) -> Vec<usize> {
    let mut times: FxHashMap<&str, usize> = FxHashMap::default();
    labels.iter().for_each(|label| *times.entry(label).or_default() += 1);
    (0..labels.len()).filter(|&row| times[&*labels[row]] > 1).collect()
}

/// Returns short forms of names that are different and sorted, and whose usual short forms are
/// equal.
fn tell_apart(names: &[&str], width: usize) -> Vec<String> {
    let texts = distinct_texts(names);
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by(|&a, &b| texts[a].cmp(&texts[b]));
    // The character at which a text differs from the one that is most similar.
    let mut differs = vec![0; texts.len()];
    for pair in order.windows(2) {
        let (a, b) = (&texts[pair[0]], &texts[pair[1]]);
        let equal = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        pair.iter().for_each(|&text| differs[text] = differs[text].max(equal));
    }
    let short = |(text, at): (&Vec<char>, usize)| {
        if text.len() <= width {
            return text.iter().collect();
        }
        let outer = outer_path(text, at);
        let inner: Vec<char> = match outer {
            0 => text.clone(),
            _ => std::iter::once('…').chain(text[outer..].iter().copied()).collect(),
        };
        excerpt(&inner, at - outer + usize::from(outer > 0), width)
    };
    texts.iter().zip(differs).map(short).collect()
}

/// Returns the length of the namespaces and modules before the name that contains the character
/// `at`.
fn outer_path(text: &[char], at: usize) -> usize {
    let (mut depth, mut outer) = (0usize, 0);
    for (index, three) in text.windows(3).enumerate().take_while(|(index, _)| index + 2 <= at) {
        match three {
            ['<' | '(' | '{', ..] => depth += 1,
            ['>' | ')' | '}', ..] => depth = depth.saturating_sub(1),
            [':', ':', name] if depth == 0 && name.is_alphabetic() => outer = index,
            _ => {}
        }
    }
    outer
}

/// Returns the texts of names with the fewest details that make all different.
fn distinct_texts(names: &[&str]) -> Vec<Vec<char>> {
    let by_detail: Vec<Vec<String>> = names.iter().map(|name| texts_by_detail(name)).collect();
    let details = by_detail.iter().map(Vec::len).min().unwrap_or(0);
    let all_differ = |&detail: &usize| {
        let mut texts: Vec<&str> = by_detail.iter().map(|texts| &*texts[detail]).collect();
        texts.sort_unstable();
        texts.windows(2).all(|pair| pair[0] != pair[1])
    };
    let detail = (0..details).find(all_differ).unwrap_or(details.saturating_sub(1));
    by_detail.iter().map(|texts| texts[detail].chars().collect()).collect()
}

/// Returns at most `width` characters of a text: its start, the part around the character `at`, and
/// its end.
fn excerpt(text: &[char], at: usize, width: usize) -> String {
    if text.len() <= width {
        return text.iter().collect();
    }
    // A third each for the start and the part that differs, and the rest for the end.
    let part = width.saturating_sub(2) / 3;
    // The characters before the difference show where it is.
    let before = part / 4;
    let middle = at.saturating_sub(before).min(text.len().saturating_sub(part));
    let middle = middle.max(part)..(middle.max(part) + part).min(text.len());
    let end = text.len().saturating_sub(part).max(middle.end);
    let gap = |from: usize, to: usize| if from < to { "…" } else { "" };
    let of = |range: std::ops::Range<usize>| text[range].iter().collect::<String>();
    // The start gets what the other parts leave.
    let others = middle.len() + (text.len() - end) + 2;
    let start = width.saturating_sub(others).min(middle.start);
    let (gap_before, gap_after) = (gap(start, middle.start), gap(middle.end, end));
    let start = of(0..start);
    format!("{start}{gap_before}{}{gap_after}{}", of(middle), of(end..text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARGUMENT: &str = "std::map<std::__cxx11::basic_string<char>, std::vector<int> >";

    #[test]
    fn short_names_of_different_functions_differ() {
        let of =
            |argument: &str| format!("void Table<{ARGUMENT}, {argument}>::insert_all_rows(int)");
        let names = [of("int"), of("long"), of("int"), "main".to_owned()];
        for width in [12, 16, 24, 30, 40, 64, 100] {
            let short = shorten_apart(&names, width);
            assert_ne!(short[0], short[1], "width {width}");
            assert_eq!((&short[0], &*short[3]), (&short[2], "main"), "width {width}");
            let widest = short.iter().map(|name| name.chars().count()).max();
            assert!(widest <= Some(width), "{short:?}");
        }
        let short = shorten_apart(&names, 40);
        assert_eq!(short[0], "Table<map<…>, int>::insert_all_rows(…)");
        assert_eq!(short[1], "Table<map<…>, long>::insert_all_rows(…)");
    }

    #[test]
    fn names_without_brackets_show_the_middle_in_which_they_differ() {
        let of = |word: &str| format!("compute_all_the_{word}_of_the_particles_in_the_next_cell");
        let expected = ["compute_al…e_energy_…next_cell", "compute_al…e_forces_…next_cell"];
        assert_eq!(shorten_apart(&[of("energy"), of("forces")], 30), expected);
    }

    #[test]
    fn outer_modules_are_dropped_before_what_differs() {
        let of = |last: &str| {
            format!("alloc::vec::Vec<T, A>::extend_desugared::<String, Global, {last}>")
        };
        let names = [of("Map<Split>"), of("Map<Lines>"), of("Map<Split, F>")];
        let expected = [
            "…::extend_desugared…p<Split>>",
            "…::extend_desugared…p<Lines>>",
            "…::extend_desugared…plit, F>>",
        ];
        assert_eq!(shorten_apart(&names, 30), expected);
    }

    #[test]
    fn what_is_usually_dropped_is_kept_where_only_that_differs() {
        let names = ["Row::at(int)", "Row::at(int) const", "cold", "cold [clone .cold]"];
        assert_eq!(shorten_apart(&names, 40), names);
    }

    #[test]
    fn names_that_no_excerpt_tells_apart_are_numbered() {
        let of = |a: char, b: char| format!("{a}{}{b}", "x".repeat(100));
        let names = [of('a', 'a'), of('a', 'b'), of('b', 'a'), of('b', 'b')];
        let mut short = shorten_apart(&names, 12);
        assert!(short.iter().all(|name| name.chars().count() <= 12), "{short:?}");
        short.sort_unstable();
        short.dedup();
        assert_eq!(short.len(), 4);
        // An excerpt has room for one difference only.
        let periodic = |n: usize| format!("f{}", "<a".repeat(n));
        let names: Vec<String> = (40..60).map(periodic).collect();
        let mut short = shorten_apart(&names, 12);
        short.sort_unstable();
        short.dedup();
        assert_eq!(short.len(), names.len(), "{short:?}");
    }
}
