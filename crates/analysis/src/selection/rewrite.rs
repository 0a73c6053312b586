//! Applies rules to a process: to each function once, then to the stack tree in one pass.

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use regex::Regex;
use rustc_hash::{FxHashMap, FxHashSet};

use super::brackets::{without_argument, without_signature};
use super::rebuild_stacks::Stacks;
use super::rules::{Action, Name, Place, Rule, Rules};
use crate::model::{CodeKind, Frame, FrameId, ModuleId, Process, StackId};
use crate::threads;

impl Process {
    /// Rewrites names and stacks by rules; sums do not change.
    ///
    /// Rules are applied to each distinct function once, in order, each to the name that the
    /// previous rules produced. Changes of stacks are made afterwards, for all rules in one pass,
    /// from the outermost frame of a stack to the innermost. Stacks that rules ignore are not
    /// removed here (see [`Rules::ignored`]).
    ///
    /// Linear in the names for each rule, and in the stacks for all rules.
    ///
    /// ```
    /// use heaptide_analysis::selection::rules::Rules;
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # let mut process =
    /// #     heaptide_analysis::model::Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// let totals = process.totals;
    /// process.rewrite(&Rules::built_in("std").unwrap());
    /// assert_eq!(process.totals, totals);
    /// ```
    pub fn rewrite(&mut self, rules: &Rules) {
        let count = self.tables.frames.len();
        let (fates, fates_of_functions) = named(self, rules);
        if fates_of_functions.iter().all(Fate::keeps_stacks) {
            return;
        }
        let stand_ins =
            self.tables.frames[count..].iter().map(|frame| frame.function.clone()).collect();
        let mut tree = Rewriting { opened: Vec::new(), first: count as u32, stand_ins };
        self.restack(State::default(), |stacks, caller, frame| {
            let fate = fates.get(frame.0 as usize);
            let fate = fate.and_then(|&fate| fates_of_functions.get(fate as usize));
            match fate {
                Some(fate) => tree.step(stacks, caller, frame, fate),
                None => caller,
            }
        });
        self.settle();
    }
}

/// The effect of rules on the frames of a function.
#[derive(Default)]
struct Fate {
    /// Its new name, if it has one.
    name: Option<Arc<str>>,
    /// The frame that replaces it and others with the same name, if any.
    stands: Option<FrameId>,
    /// Whether adjacent equal frames are merged.
    folds: bool,
    drops: bool,
    cuts_below: bool,
    cuts_above: bool,
    /// Rules whose ranges begin here.
    opens: Vec<u32>,
    /// Rules whose ranges end here, and the frame that replaces the range.
    closes: Vec<(u32, FrameId)>,
}

impl Fate {
    fn keeps_stacks(&self) -> bool {
        let bends = self.drops || self.cuts_below || self.cuts_above || self.stands.is_some();
        !bends && self.opens.is_empty() && self.closes.is_empty()
    }
}

/// Renames the functions of a process by rules. Returns for each frame the index of its effect, and
/// the effects.
fn named(process: &mut Process, rules: &Rules) -> (Vec<u32>, Vec<Fate>) {
    let matching = Matching::of(rules, process);
    let (functions, fates) = matching.functions(process);
    let decide = |part: Range<usize>| -> Vec<Decision> {
        functions[part].iter().map(|&id| matching.decide(process, id)).collect()
    };
    let decisions = threads::in_parts(functions.len(), decide);
    let mut naming = Naming::default();
    let of_functions: Vec<Fate> = (functions.iter().zip(decisions.into_iter().flatten()))
        .map(|(&id, decision)| naming.fate(process, id, decision))
        .collect();
    for (frame, &fate) in process.tables.frames.iter_mut().zip(&fates) {
        if let Some(name) = &of_functions[fate as usize].name {
            frame.function = Some(name.clone());
        }
    }
    (fates, of_functions)
}

/// The effect of rules on a function, as texts.
#[derive(Default)]
struct Decision {
    name: Option<String>,
    /// The name of the frame that replaces it and others.
    stands: Option<String>,
    folds: bool,
    drops: bool,
    cuts_below: bool,
    cuts_above: bool,
    opens: Vec<u32>,
    closes: Vec<(u32, String)>,
}

/// Rules, with the modules that they apply to.
struct Matching<'a> {
    rules: &'a Rules,
    /// For each rule, whether it applies to each module; empty if the rule is not restricted to
    /// modules.
    modules: Vec<Vec<bool>>,
    /// Whether any rule is restricted to files.
    by_file: bool,
}

impl<'a> Matching<'a> {
    fn of(rules: &'a Rules, process: &Process) -> Matching<'a> {
        let matching = |rule: &Rule| match &rule.place {
            Place::Module(regex) => {
                process.tables.modules.iter().map(|m| regex.is_match(&m.path)).collect()
            }
            Place::Any | Place::File(_) => Vec::new(),
        };
        Matching {
            rules,
            modules: rules.rules.iter().map(matching).collect(),
            by_file: rules.rules.iter().any(|rule| matches!(rule.place, Place::File(_))),
        }
    }

    /// Returns a frame of each function, and for each frame the index of its function. Frames of
    /// the same function share its name and file.
    fn functions(&self, process: &Process) -> (Vec<FrameId>, Vec<u32>) {
        let mut functions = Vec::new();
        let mut known = FxHashMap::default();
        let mut index_of = |(id, frame): (u32, &Frame)| {
            let Frame { function, module, file, .. } = frame;
            let file = file.as_ref().filter(|_| self.by_file).map(|file| file.as_ptr());
            let mut add = || {
                functions.push(FrameId(id));
                (functions.len() - 1) as u32
            };
            match function {
                Some(name) => *known.entry((name.as_ptr(), *module, file)).or_insert_with(add),
                None => add(),
            }
        };
        let indexes = (0..).zip(&process.tables.frames).map(&mut index_of).collect();
        (functions, indexes)
    }

    fn decide(&self, process: &Process, id: FrameId) -> Decision {
        let Frame { module, file, code, .. } = &process.tables.frames[id.0 as usize];
        // Names of Python functions can look like those of internals of a language.
        let keeps_name = self.rules.of_internals && *code == CodeKind::Python;
        let whole = process.label(id);
        let mut decision = Decision::default();
        let mut name = Name::new(&whole);
        let mut stands = false;
        for (index, rule) in self.rules.rules.iter().enumerate() {
            let fits = match &rule.place {
                Place::Any => !keeps_name,
                Place::Module(_) => {
                    let is_for = |id: ModuleId| self.modules[index].get(id.0 as usize);
                    module.and_then(is_for) == Some(&true)
                }
                Place::File(regex) => file.as_ref().is_some_and(|file| regex.is_match(file)),
            };
            if !fits {
                continue;
            }
            match &rule.action {
                Action::Shorten(regex, text) => {
                    if let Some(new) = replaced(name.whole(), regex, text) {
                        name.set(new);
                    }
                }
                Action::Signature(regex) => {
                    if regex.as_ref().is_none_or(|regex| regex.is_match(&name)) {
                        name.set(without_signature(name.whole()).to_owned());
                    }
                }
                Action::RemoveArgument(argument) => {
                    if let Cow::Owned(new) = without_argument(name.whole(), argument) {
                        name.set(new);
                    }
                }
                Action::Drop(regex) if regex.is_match(&name) => {
                    return Decision { drops: true, ..decision };
                }
                Action::Fold(regex, text) => {
                    if let Some(new) = regex.renamed(&name, text) {
                        name.set(new);
                        (stands, decision.folds) = (true, true);
                    }
                }
                Action::FoldRange(from, to, text) => {
                    if let Some(range) = to.renamed(&name, text) {
                        decision.closes.push((index as u32, range));
                    }
                    if from.is_match(&name) {
                        decision.opens.push(index as u32);
                    }
                }
                Action::CutBelow(regex, None) => decision.cuts_below |= regex.is_match(&name),
                Action::CutBelow(regex, Some(text)) => {
                    if let Some(new) = regex.renamed(&name, text) {
                        name.set(new);
                        (stands, decision.cuts_below) = (true, true);
                    }
                }
                Action::CutAbove(regex) => decision.cuts_above |= regex.is_match(&name),
                Action::Drop(_) => {}
            }
        }
        decision.stands = stands.then(|| name.whole().to_owned());
        decision.name = (name.whole() != whole).then(|| name.into_whole());
        decision
    }
}

/// New names without duplicates, and the frames that replace others.
#[derive(Default)]
struct Naming {
    names: FxHashSet<Arc<str>>,
    stand_ins: FxHashMap<(Arc<str>, Option<ModuleId>), FrameId>,
}

impl Naming {
    fn fate(&mut self, process: &mut Process, id: FrameId, decision: Decision) -> Fate {
        let module = process.tables.frames[id.0 as usize].module;
        let mut stand_in = |name: &str| self.stand_in(process, name, module);
        let closes = decision.closes.iter().map(|(rule, name)| (*rule, stand_in(name))).collect();
        let stands = decision.stands.as_deref().map(stand_in);
        Fate {
            name: decision.name.map(|name| self.name(&name)),
            stands,
            folds: decision.folds,
            drops: decision.drops,
            cuts_below: decision.cuts_below,
            cuts_above: decision.cuts_above,
            opens: decision.opens,
            closes,
        }
    }

    fn name(&mut self, name: &str) -> Arc<str> {
        match self.names.get(name) {
            Some(name) => name.clone(),
            None => {
                let shared: Arc<str> = name.into();
                self.names.insert(shared.clone());
                shared
            }
        }
    }

    /// Returns a frame with this name that has no place in code.
    fn stand_in(&mut self, process: &mut Process, name: &str, module: Option<ModuleId>) -> FrameId {
        let name = self.name(name);
        *self.stand_ins.entry((name.clone(), module)).or_insert_with(|| {
            process.tables.frames.push(Frame { module, ..Frame::named(name) });
            FrameId((process.tables.frames.len() - 1) as u32)
        })
    }
}

/// Returns the name with all matches replaced; `None` if nothing matches or nothing would be left.
fn replaced(name: &str, regex: &Regex, text: &str) -> Option<String> {
    // As in `Match::renamed`, check first, because groups are allocated even without a match.
    match regex.is_match(name).then(|| regex.replace_all(name, text))? {
        Cow::Owned(new) if !new.trim().is_empty() => Some(new),
        _ => None,
    }
}

/// A range that has begun.
struct Opened {
    rule: u32,
    /// The caller of the range, and the position for its replacement.
    around: (StackId, State),
}

/// Index plus one into `opened`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct OpenedId(NonZeroU32);

/// The state at a position in a stack.
#[derive(Clone, Copy, Default)]
struct State {
    /// The innermost open range; its `around` links to the enclosing ones.
    opened: Option<OpenedId>,
    /// Whether the previous frame can be merged with an equal one.
    folds: bool,
    /// Whether deeper frames are cut.
    ended: bool,
}

struct Rewriting {
    opened: Vec<Opened>,
    /// The first replacement frame, and the names from there on.
    first: u32,
    stand_ins: Vec<Option<Arc<str>>>,
}

impl Rewriting {
    fn step(
        &mut self,
        stacks: &mut Stacks,
        caller: (StackId, State),
        frame: FrameId,
        fate: &Fate,
    ) -> (StackId, State) {
        let (mut stack, mut state) = caller;
        if state.ended || fate.drops {
            return caller;
        }
        if fate.cuts_above {
            (stack, state) = (StackId(0), State::default());
        }
        if let Some((range, (around, before))) = self.closed(state.opened, fate) {
            let stack = self.folded(stacks, (around, before), range);
            let mut state = State { folds: true, ended: fate.cuts_below, ..before };
            self.open(fate, (around, before), &mut state);
            return (stack, state);
        }
        let around = (stack, state);
        stack = match fate.stands {
            Some(frame) if fate.folds => self.folded(stacks, around, frame),
            stands => stacks.child(stack, stands.unwrap_or(frame)),
        };
        state = State { folds: fate.folds, ended: fate.cuts_below, ..state };
        self.open(fate, around, &mut state);
        (stack, state)
    }

    /// Opens the ranges that begin at a frame, unless they are already open.
    fn open(&mut self, fate: &Fate, around: (StackId, State), state: &mut State) {
        for &rule in &fate.opens {
            if self.chain(state.opened).all(|opened| opened.rule != rule) {
                let around = (around.0, State { opened: state.opened, ..around.1 });
                self.opened.push(Opened { rule, around });
                state.opened = NonZeroU32::new(self.opened.len() as u32).map(OpenedId);
            }
        }
    }

    /// Returns the outermost open range that ends at a frame: its replacement frame and its
    /// position.
    fn closed(&self, opened: Option<OpenedId>, fate: &Fate) -> Option<(FrameId, (StackId, State))> {
        let ends = |opened: &Opened| {
            let range = fate.closes.iter().find(|(rule, _)| *rule == opened.rule)?;
            Some((range.1, opened.around))
        };
        if fate.closes.is_empty() {
            return None;
        }
        self.chain(opened).filter_map(ends).last()
    }

    /// Returns the open ranges, innermost first; at most one per rule.
    fn chain(&self, opened: Option<OpenedId>) -> impl Iterator<Item = &Opened> {
        let mut at = opened;
        std::iter::from_fn(move || {
            let opened = &self.opened[at?.0.get() as usize - 1];
            at = opened.around.1.opened;
            Some(opened)
        })
    }

    /// Returns the caller if it has the same name and both can be merged, else a child.
    fn folded(&self, stacks: &mut Stacks, caller: (StackId, State), frame: FrameId) -> StackId {
        let (stack, state) = caller;
        let name = |frame: FrameId| {
            let index = frame.0.checked_sub(self.first)?;
            self.stand_ins.get(index as usize)
        };
        let before = stacks.frame(stack).filter(|_| state.folds);
        if before.is_some_and(|before| name(before) == name(frame)) {
            stack
        } else {
            stacks.child(stack, frame)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{lines, with_stacks};
    use crate::model::Sum;

    fn rewritten(rules: &str, stacks: &[&str]) -> Vec<String> {
        let mut process = with_stacks(stacks);
        let totals = process.totals;
        process.rewrite(&Rules::parse(rules).expect("rules"));
        let peak_bytes = totals.peak_bytes;
        let sum = crate::model::Measures { peak_bytes, ..Sum::over(&process.tables.sites) };
        assert_eq!(sum, totals);
        lines(&process)
    }

    #[test]
    fn names() {
        let rules = "shorten ^std::(\\w+) => $1!\nshorten vector! => V\nsignature ^f\n\
                     shorten ^gone$ =>";
        let stacks = ["std::vector<std::x>;f(int);g(int)", "gone"];
        assert_eq!(rewritten(rules, &stacks), ["V<std::x>;f;g(int) 1", "gone 2"]);
    }

    #[test]
    fn dropped_and_cut_frames() {
        let stacks = ["main;a;b;a;c", "main;a", "b;c", "malloc"];
        assert_eq!(rewritten("drop ^a$", &stacks), ["b;c 4", "main 2", "main;b;c 1", "malloc 8"]);
        assert_eq!(rewritten("drop malloc", &stacks)[0], " 8");
        let cut = rewritten("cut-below ^a$", &stacks);
        assert_eq!(cut, ["b;c 4", "main;a 3", "malloc 8"]);
        let cut = rewritten("cut-below ^(a|m.*c) => [$1]", &stacks);
        assert_eq!(cut, ["[malloc] 8", "b;c 4", "main;[a] 3"]);
        let cut = rewritten("cut-above ^a$", &stacks);
        assert_eq!(cut, ["a 2", "a;c 1", "b;c 4", "malloc 8"]);
    }

    #[test]
    fn runs_of_frames_are_one() {
        let stacks = ["main;p1;p2;f;p1;p1;x", "p2;glue;p1", "main;p2"];
        let runs = rewritten("fold ^p => [p]", &stacks);
        assert_eq!(runs, ["[p];glue;[p] 2", "main;[p] 4", "main;[p];f;[p];x 1"]);
        let runs = rewritten("drop glue\nfold ^p1$ => [p]\nfold ^p2$ => [p]", &stacks);
        assert_eq!(runs, ["[p] 2", "main;[p] 4", "main;[p];f;[p];x 1"]);
        let names = rewritten("fold ^p(\\d) => q$1", &stacks);
        assert_eq!(names, ["main;q1;q2;f;q1;x 1", "main;q2 4", "q2;glue;q1 2"]);
    }

    #[test]
    fn ranges_are_one_if_they_end() {
        let rule = "fold ^from$ .. ^to$ => [range]";
        let stacks = ["main;from;a;to;x", "main;from;a;b", "main;from;a;from;to;to;y", "to;from"];
        let expected = ["main;[range];to;y 4", "main;[range];x 1", "main;from;a;b 2", "to;from 8"];
        assert_eq!(rewritten(rule, &stacks), expected);
        let chain = ["a;eval;b;eval;c;eval;d", "eval"];
        assert_eq!(rewritten("fold ^eval$ .. ^eval$ => E", &chain), ["a;E;d 1", "eval 2"]);
        let inside = ["o;i;x;I;y;O;z", "o;i;x;I;y"];
        let both = "fold ^o$ .. ^O$ => [o]\nfold ^i$ .. ^I$ => [i]";
        assert_eq!(rewritten(both, &inside), ["[o];z 1", "o;[i];y 2"]);
        let cut = "fold ^o$ .. ^O$ => [o]\ncut-above ^x$";
        assert_eq!(rewritten(cut, &inside), ["x;I;y 2", "x;I;y;O;z 1"]);
    }

    /// The functions of a file, including Python functions, whose names built-in sets do not
    /// change.
    #[test]
    fn rules_for_one_file() {
        let rewritten = |rules: &str, of_internals: bool| {
            let mut process = with_stacks(&["main;load;f", "main;f"]);
            for frame in &mut process.tables.frames {
                let is_load = frame.function.as_deref() == Some("load");
                let file = if is_load { "<frozen importlib._bootstrap>" } else { "a.py" };
                (frame.file, frame.code) = (Some(file.into()), CodeKind::Python);
            }
            let mut rules = Rules::parse(rules).expect("rules");
            rules.of_internals = of_internals;
            process.rewrite(&rules);
            lines(&process)
        };
        for of_internals in [false, true] {
            assert_eq!(rewritten("drop . in file:^<frozen importlib", of_internals), ["main;f 3"]);
        }
        assert_eq!(rewritten("drop load", true), ["main;f 2", "main;load;f 1"]);
        assert_eq!(rewritten("drop load", false), ["main;f 3"]);
    }

    #[test]
    fn rules_for_one_module() {
        let stacks = ["main;@f;f;@g"];
        assert_eq!(rewritten("drop f in module:libc", &stacks), ["main;f;g 1"]);
        assert_eq!(rewritten("shorten f => F in module:/bin", &stacks), ["main;f;F;g 1"]);
        assert_eq!(
            rewritten("fold . => [libc] in module:libc", &stacks),
            ["main;[libc];f;[libc] 1"]
        );
        // A run of equal frames can cover several modules.
        assert_eq!(rewritten("fold ^f|^g => [f]", &stacks), ["main;[f] 1"]);
    }
}
