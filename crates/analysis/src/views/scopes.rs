//! Sites by scope path, over all lanes or of one; and scope paths without recursion.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::{LaneId, Measures, Process, Scope, ScopeId};
use crate::views::aggregate::Sum;

/// The sums of a scope path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScopeSums {
    /// Over sites of just this path.
    pub own: Measures,
    /// Of paths inside it too.
    pub inclusive: Measures,
}

/// The sums of every scope path, by its id: over all lanes, or of one.
///
/// ```
/// use heaptide_analysis::views::scopes;
/// # let mut bytes = vec![0; 4096];
/// # bytes[..8].copy_from_slice(b"HEAPTIDE");
/// # (bytes[8], bytes[12], bytes[65]) = (2, 3, 16);
/// # let process = heaptide_analysis::model::Process::from_bytes(&bytes, "x".as_ref()).unwrap();
/// let all = scopes::sums(&process, None);
/// assert_eq!(all[0].inclusive.live_bytes, process.totals.live_bytes);
/// ```
pub fn sums(process: &Process, lane: Option<LaneId>) -> Vec<ScopeSums> {
    let mut own = vec![Sum::default(); process.scopes.len()];
    for site in process.sites.iter().filter(|site| lane.is_none_or(|lane| lane == site.lane)) {
        own[site.scope.0 as usize].add(site);
    }
    let own = own.into_iter().map(|sum| sum.total());
    let mut sums: Vec<_> = own.map(|own| ScopeSums { own, inclusive: own }).collect();
    for index in (1..sums.len()).rev() {
        let inclusive = sums[index].inclusive;
        sums[process.scopes[index].parent.0 as usize].inclusive.add(&inclusive);
    }
    sums
}

impl Process {
    /// The scopes of a path, innermost first.
    pub fn scopes_of(&self, scope: ScopeId) -> impl Iterator<Item = &Scope> {
        let mut at = scope;
        std::iter::from_fn(move || {
            let scope = self.scopes.get(at.0 as usize).filter(|_| at != ScopeId(0))?;
            at = scope.parent;
            Some(scope)
        })
    }

    /// The scopes of a path, outermost first.
    pub fn scope_path(&self, scope: ScopeId) -> Vec<&Scope> {
        let mut path: Vec<_> = self.scopes_of(scope).collect();
        path.reverse();
        path
    }

    /// Folds recursion: a scope inside one of the same name is that one, so `A > B > A > B` becomes
    /// `A > B`.
    pub fn fold_scopes(&mut self) {
        let mut folding = Folding::of(&self.scopes);
        folding.run();
        for site in &mut self.sites {
            site.scope = folding.new[site.scope.0 as usize];
        }
        for entered in &mut self.entered {
            entered.scope = folding.new[entered.scope.0 as usize];
        }
        for trace in &mut self.traces {
            trace.move_scopes(|scope| folding.new[scope.0 as usize]);
        }
        self.scopes = folding.folded;
    }
}

/// Scope paths as they are folded.
struct Folding<'a> {
    scopes: &'a [Scope],
    children: Vec<Vec<u32>>,
    folded: Vec<Scope>,
    /// By old id.
    new: Vec<ScopeId>,
    /// Of folded scopes: the names below each.
    ids: FxHashMap<(ScopeId, Name), ScopeId>,
    /// The names on the path to where the walk is.
    open: FxHashMap<Name, ScopeId>,
}

type Name = (Arc<str>, Arc<str>);

impl<'a> Folding<'a> {
    fn of(scopes: &'a [Scope]) -> Folding<'a> {
        let mut children = vec![Vec::new(); scopes.len()];
        for (scope, id) in scopes.iter().zip(0..).skip(1) {
            children[scope.parent.0 as usize].push(id);
        }
        Folding {
            scopes,
            children,
            folded: scopes.first().cloned().into_iter().collect(),
            new: vec![ScopeId(0); scopes.len()],
            ids: FxHashMap::default(),
            open: FxHashMap::default(),
        }
    }

    /// Walks the tree, in the same way a program enters and leaves.
    fn run(&mut self) {
        enum Step {
            Enter(u32),
            Leave(Name),
        }
        let below = |children: &[u32]| -> Vec<Step> {
            children.iter().rev().map(|&child| Step::Enter(child)).collect()
        };
        let mut todo = self.children.first().map(|c| below(c)).unwrap_or_default();
        while let Some(step) = todo.pop() {
            match step {
                Step::Leave(name) => {
                    self.open.remove(&name);
                }
                Step::Enter(id) => {
                    todo.extend(self.enter(id).map(Step::Leave));
                    todo.extend(below(&self.children[id as usize]));
                }
            }
        }
    }

    /// The name, if it was not open before.
    fn enter(&mut self, id: u32) -> Option<Name> {
        let scope = &self.scopes[id as usize];
        let name = (scope.attribute.clone(), scope.value.clone());
        let parent = self.new[scope.parent.0 as usize];
        let folded = &mut self.folded;
        let open = self.open.get(&name).copied();
        let at = open.unwrap_or_else(|| {
            *self.ids.entry((parent, name.clone())).or_insert_with(|| {
                let sums =
                    Scope { entered: 0, frees_here: 0, freed_here_bytes: 0, ..scope.clone() };
                folded.push(Scope { parent, ..sums });
                ScopeId((folded.len() - 1) as u32)
            })
        });
        let sums = &mut folded[at.0 as usize];
        sums.entered = sums.entered.saturating_add(scope.entered);
        sums.frees_here = sums.frees_here.saturating_add(scope.frees_here);
        sums.freed_here_bytes = sums.freed_here_bytes.saturating_add(scope.freed_here_bytes);
        self.new[id as usize] = at;
        if open.is_some() {
            return None;
        }
        self.open.insert(name.clone(), at);
        Some(name)
    }
}
