//! Folds recursive scopes: a scope nested in another with the same name is merged with it.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::{Process, Scope, ScopeId};

impl Process {
    /// Folds recursion: a scope nested in another with the same name is merged with it, so `A > B >
    /// A > B` becomes `A > B`.
    pub fn fold_scopes(&mut self) {
        let mut folding = Folding::of(&self.tables.scopes);
        folding.run();
        let Folding { folded, new, .. } = folding;
        self.replace_scopes(folded, &new);
    }
}

/// Scope paths while they are folded.
struct Folding<'a> {
    scopes: &'a [Scope],
    children: Vec<Vec<u32>>,
    folded: Vec<Scope>,
    /// New ids by old id.
    new: Vec<ScopeId>,
    /// Ids of folded scopes by parent and name.
    ids: FxHashMap<(ScopeId, Name), ScopeId>,
    /// The names on the path to the current scope.
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

    /// Walks the tree in the order in which a program enters and leaves scopes.
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

    /// Enters a scope, and returns its name unless that was already open.
    fn enter(&mut self, id: u32) -> Option<Name> {
        let scope = &self.scopes[id as usize];
        let name = (scope.attribute.clone(), scope.value.clone());
        let parent = self.new[scope.parent.0 as usize];
        let folded = &mut self.folded;
        let open = self.open.get(&name).copied();
        let at = open.unwrap_or_else(|| {
            *self.ids.entry((parent, name.clone())).or_insert_with(|| {
                folded.push(Scope { parent, ..scope.without_counts() });
                ScopeId((folded.len() - 1) as u32)
            })
        });
        folded[at.0 as usize].absorb(scope);
        self.new[id as usize] = at;
        if open.is_some() {
            return None;
        }
        self.open.insert(name.clone(), at);
        Some(name)
    }
}
