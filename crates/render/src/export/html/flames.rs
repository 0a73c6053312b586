//! The flame graphs of the page as columns of numbers, and the names they share with its tables.

use std::collections::HashMap;

use heaptide_analysis::attribution::{FunctionId, Functions, Owners, is_own};
use heaptide_analysis::model::{FrameId, Measure, Process, ScopeId};
use serde::Serialize;

use crate::shared::branches::{Branches, What};
use crate::shared::frames;
use crate::shared::names::elide_middle;

/// The measures that the page can show.
pub(super) const MEASURES: [Measure; 5] = [
    Measure::AtPeakBytes,
    Measure::LiveBytes,
    Measure::UsableBytes,
    Measure::Allocations,
    Measure::Temporary,
];
/// A branch below this part of the whole by all of them is narrower than a tenth of a pixel.
const PARTS: u64 = 20_000;
/// The same of callers, which come out by parts alone.
const PARTS_OF_CALLERS: u64 = 6_000;
/// Branches of a flame graph.
const BRANCHES: usize = 25_000;
/// Characters of a name in a box or table, and of the whole name.
const NAME: usize = 120;
const WHOLE_NAME: usize = 1500;

/// A value of each measure.
pub(super) type Values = [u64; MEASURES.len()];

/// A flame graph: of each branch the one it grows from, its name, and what ends there.
#[derive(Serialize)]
pub(super) struct Flame {
    parent: Vec<u32>,
    /// Index into the names; or less than none, so many branches too small to see.
    name: Vec<i64>,
    own: [Vec<u64>; MEASURES.len()],
}

impl Flame {
    fn of(tree: &Branches<{ MEASURES.len() }>, names: &mut Names) -> Flame {
        let name = |what| match what {
            What::Root => i64::from(names.plain("everything")),
            What::Call(frame) => i64::from(names.function(frame)),
            What::Scope(scope) => i64::from(names.scope(scope)),
            What::Smaller(branches) => -i64::from(branches),
        };
        Flame {
            name: tree.all.iter().map(|branch| branch.what).map(name).collect(),
            parent: tree.all.iter().map(|branch| branch.parent).collect(),
            own: std::array::from_fn(|m| tree.all.iter().map(|branch| branch.own[m]).collect()),
        }
    }
}

/// The flame graphs of a process.
#[derive(Serialize)]
pub(super) struct Flames {
    calls: Flame,
    callers: Flame,
    scopes: Flame,
}

impl Flames {
    pub(super) fn of(process: &Process, owners: &Owners, names: &mut Names) -> Flames {
        let calls = Branches::calls(process, &owners.functions, None, MEASURES);
        let callers = calls.callers(owners, PARTS_OF_CALLERS);
        let scopes = Branches::scopes(process, None, usize::MAX, MEASURES);
        Flames {
            calls: Flame::of(&calls.cut(PARTS, BRANCHES), names),
            callers: Flame::of(&callers.cut(PARTS_OF_CALLERS, BRANCHES), names),
            scopes: Flame::of(&scopes.cut(PARTS, BRANCHES), names),
        }
    }
}

/// A name as the page shows it.
#[derive(Serialize)]
pub(super) struct Name {
    short: String,
    /// Where it is longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    whole: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "str::is_empty")]
    module: String,
    /// Whether it is of the program's own code.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    own: bool,
}

#[derive(PartialEq, Eq, Hash)]
enum Key {
    Function(FunctionId),
    Scope(ScopeId),
    Plain(String),
}

/// The names that something on the page has.
pub(super) struct Names<'a> {
    process: &'a Process,
    functions: &'a Functions,
    known: HashMap<Key, u32>,
    list: Vec<Name>,
}

impl<'a> Names<'a> {
    pub(super) fn new(process: &'a Process, functions: &'a Functions) -> Names<'a> {
        Names { process, functions, known: HashMap::new(), list: Vec::new() }
    }

    /// Of the function of a frame.
    pub(super) fn function(&mut self, frame: FrameId) -> u32 {
        let function = self.functions.of_frame(frame);
        let (process, functions) = (self.process, self.functions);
        self.number(Key::Function(function), || {
            let id = functions.first_frame(function);
            let frame = &process.tables.frames[id.0 as usize];
            let (short, whole) = (frames::label(process, frame, NAME), process.label(id));
            let whole = elide_middle(&whole, WHOLE_NAME);
            Name {
                whole: (whole != short).then_some(whole),
                short,
                file: frame.file.as_deref().map(|file| elide_middle(file, WHOLE_NAME)),
                line: frame.line,
                module: elide_middle(frames::module_path(process, frame), WHOLE_NAME),
                own: is_own(process, frame),
            }
        })
    }

    /// Of a scope, without those around it.
    pub(super) fn scope(&mut self, scope: ScopeId) -> u32 {
        let process = self.process;
        self.number(Key::Scope(scope), || {
            plain_name(&process.tables.scopes[scope.0 as usize].name())
        })
    }

    /// Of anything else.
    pub(super) fn plain(&mut self, name: &str) -> u32 {
        self.number(Key::Plain(name.to_owned()), || plain_name(name))
    }

    fn number(&mut self, key: Key, name: impl FnOnce() -> Name) -> u32 {
        let list = &mut self.list;
        *self.known.entry(key).or_insert_with(|| {
            list.push(name());
            (list.len() - 1) as u32
        })
    }

    /// All, by their numbers.
    pub(super) fn into_list(self) -> Vec<Name> {
        self.list
    }
}

fn plain_name(name: &str) -> Name {
    let (short, whole) = (elide_middle(name, NAME), elide_middle(name, WHOLE_NAME));
    let whole = (whole != short).then_some(whole);
    Name { short, whole, file: None, line: None, module: String::new(), own: false }
}
