//! Folds scopes of numeric attributes: siblings `iteration=0` to `iteration=99` become one scope.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::{Process, Scope, ScopeId};

/// Maximum number of values of an attribute that are kept separate, such as `level=1` and
/// `level=2`.
const VALUES_MAX: usize = 10;
/// The attribute of regions, whose values are names.
const REGION: &str = "region";

impl Process {
    /// Folds numeric attributes: more than ten siblings with the same attribute and numeric values
    /// become one scope, `iteration=0…99, 100 values`, and their children are merged by name. The
    /// attribute `kept` is not folded.
    pub fn fold_values(&mut self, kept: Option<&str>) {
        let groups = Groups::of(&self.tables.scopes, kept);
        if groups.list.len() < self.tables.scopes.len() {
            let (scopes, new) = groups.finish(&self.tables.scopes);
            self.replace_scopes(scopes, &new);
        }
    }

    /// Replaces the scopes; `new` has the new id by the old one.
    pub(super) fn replace_scopes(&mut self, scopes: Vec<Scope>, new: &[ScopeId]) {
        for site in &mut self.tables.sites {
            site.scope = new[site.scope.0 as usize];
        }
        for entered in &mut self.tables.entered {
            entered.scope = new[entered.scope.0 as usize];
        }
        for trace in &mut self.time.traces {
            trace.move_scopes(|scope| new[scope.0 as usize]);
        }
        self.tables.scopes = scopes;
    }
}

impl Scope {
    /// Adds the counters of another scope, which is merged into this one.
    pub(super) fn absorb(&mut self, other: &Scope) {
        self.entered = self.entered.saturating_add(other.entered);
        self.frees_here = self.frees_here.saturating_add(other.frees_here);
        self.freed_here_bytes = self.freed_here_bytes.saturating_add(other.freed_here_bytes);
        self.live_as(other);
    }
}

/// Scopes to be merged.
struct Group {
    /// The parent group, as index into the list.
    parent: usize,
    /// Its scopes in order of their ids.
    members: Vec<u32>,
    /// The range of values, if they were folded.
    folded: Option<Arc<str>>,
}

struct Groups {
    list: Vec<Group>,
}

impl Groups {
    fn of(scopes: &[Scope], kept: Option<&str>) -> Groups {
        let mut children = vec![Vec::new(); scopes.len()];
        for (scope, id) in scopes.iter().zip(0..).skip(1) {
            children[scope.parent.0 as usize].push(id);
        }
        let first = scopes.first().map(|_| 0).into_iter().collect();
        let mut list = vec![Group { parent: 0, members: first, folded: None }];
        let mut at = 0;
        while at < list.len() {
            let inside = list[at].members.iter().flat_map(|&id| &children[id as usize]);
            let mut inside: Vec<u32> = inside.copied().collect();
            inside.sort_unstable();
            list.extend(Groups::below(at, scopes, inside, kept));
            at += 1;
        }
        Groups { list }
    }

    /// Returns the groups below another one: scopes with the same name, or with the same attribute
    /// and many numbers.
    fn below(parent: usize, scopes: &[Scope], ids: Vec<u32>, kept: Option<&str>) -> Vec<Group> {
        let mut numbers: FxHashMap<&str, FxHashMap<i64, ()>> = FxHashMap::default();
        let number = |scope: &Scope| -> Option<i64> {
            let may_fold = &*scope.attribute != REGION && kept != Some(&*scope.attribute);
            may_fold.then(|| scope.value.parse().ok())?
        };
        for scope in ids.iter().map(|&id| &scopes[id as usize]) {
            if let Some(number) = number(scope) {
                numbers.entry(&scope.attribute).or_default().insert(number, ());
            }
        }
        numbers.retain(|_, values| values.len() > VALUES_MAX);
        let mut places: FxHashMap<(&str, Option<&str>), usize> = FxHashMap::default();
        let mut groups: Vec<Group> = Vec::new();
        for id in ids {
            let scope = &scopes[id as usize];
            let values = number(scope).and_then(|_| numbers.get(&*scope.attribute));
            let value = values.is_none().then_some(&*scope.value);
            let place = *places.entry((&scope.attribute, value)).or_insert_with(|| {
                let folded = values.map(|values| range(values.keys().copied()));
                groups.push(Group { parent, members: Vec::new(), folded });
                groups.len() - 1
            });
            groups[place].members.push(id);
        }
        groups
    }

    /// Returns the scopes, in the order of the first of each group, and the new id of each.
    fn finish(self, scopes: &[Scope]) -> (Vec<Scope>, Vec<ScopeId>) {
        let mut order: Vec<usize> = (0..self.list.len()).collect();
        // The first scope of a group has an ancestor in the parent group, which therefore comes
        // before.
        order.sort_by_key(|&group| self.list[group].members.first());
        let mut place = vec![ScopeId(0); self.list.len()];
        let mut new = vec![ScopeId(0); scopes.len()];
        let mut all = Vec::with_capacity(order.len());
        for (&group, id) in order.iter().zip(0..) {
            let Group { parent, members, folded } = &self.list[group];
            let Some((&first, rest)) = members.split_first() else { continue };
            place[group] = ScopeId(id);
            let first = &scopes[first as usize];
            let value = folded.as_ref().unwrap_or(&first.value).clone();
            let mut scope = Scope { parent: place[*parent], value, ..first.clone() };
            rest.iter().for_each(|&id| scope.absorb(&scopes[id as usize]));
            members.iter().for_each(|&old| new[old as usize] = ScopeId(id));
            all.push(scope);
        }
        (all, new)
    }
}

/// Returns the value of a folded scope: `0…99, 100 values`.
fn range(values: impl ExactSizeIterator<Item = i64> + Clone) -> Arc<str> {
    let count = values.len();
    let (least, most) = (values.clone().min(), values.max());
    format!("{}…{}, {count} values", least.unwrap_or(0), most.unwrap_or(0)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use crate::model::{Entered, LaneId};

    /// `loop` with scopes of an attribute for each value, `work` in each; a site in each `work`.
    fn process(attribute: &str, values: &[&str]) -> Process {
        let scope = |parent, attribute: &str, value: &str, entered| Scope {
            parent: ScopeId(parent),
            attribute: attribute.into(),
            value: value.into(),
            entered,
            frees_here: 1,
            freed_here_bytes: 10,
            peak_bytes: None,
            active_bytes: None,
        };
        let mut scopes = vec![scope(0, "", "", 0), scope(0, "region", "loop", 1)];
        let mut sites = Vec::new();
        for value in values {
            let id = scopes.len() as u32;
            scopes.push(scope(1, attribute, value, 2));
            scopes.push(scope(id, "region", "work", 3));
            sites.push(fixtures::site(2, id + 1, 100));
        }
        let mut process = fixtures::process();
        process.tables.sites = sites;
        let entered = |id| Entered { scope: ScopeId(id), lane: LaneId(0), times: 3 };
        process.tables.entered = (1..scopes.len() as u32).map(entered).collect();
        process.tables.scopes = scopes;
        process
    }

    fn names(process: &Process) -> Vec<(String, u32, u64)> {
        let row = |scope: &Scope| (scope.name(), scope.parent.0, scope.entered);
        process.tables.scopes.iter().skip(1).map(row).collect()
    }

    const MANY: [&str; 12] = ["3", "1", "2", "0", "4", "5", "6", "7", "8", "9", "10", "-1"];

    #[test]
    fn many_numbers_are_one_scope_and_what_is_inside_is_joined() {
        let mut process = process("step", &MANY);
        process.fold_values(None);
        let expected = [
            ("loop".to_owned(), 0, 1),
            ("step=-1…10, 12 values".to_owned(), 1, 24),
            ("work".to_owned(), 2, 36),
        ];
        assert_eq!(names(&process), expected);
        assert!(process.tables.sites.iter().all(|site| site.scope == ScopeId(3)));
        assert_eq!(process.tables.scopes[2].freed_here_bytes, 120);
        let of_work = process.tables.entered.iter().filter(|row| row.scope == ScopeId(3));
        assert_eq!(of_work.map(|row| row.times).sum::<u64>(), 36);
    }

    #[test]
    fn few_numbers_names_and_what_is_kept_stay() {
        for (attribute, values, kept) in [
            ("step", &MANY[..10], None),
            ("region", &MANY[..], None),
            ("rank", &MANY[..], Some("rank")),
        ] {
            let mut process = process(attribute, values);
            let before = names(&process);
            process.fold_values(kept);
            assert_eq!(names(&process), before, "{attribute}");
        }
    }

    #[test]
    fn names_among_numbers_stay() {
        let mut values = MANY.to_vec();
        values.insert(0, "last");
        let mut process = process("step", &values);
        process.fold_values(None);
        let names: Vec<_> = names(&process).into_iter().map(|row| row.0).collect();
        assert_eq!(names, ["loop", "step=last", "work", "step=-1…10, 12 values", "work"]);
    }
}
