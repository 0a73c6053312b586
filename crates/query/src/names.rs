//! Names of other tools for columns: a query may use them, and its result has them.

use crate::lexer::Word;
use crate::query::{Condition, Item, Query};

/// The tool whose names a query uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Names {
    /// The names of the tables.
    #[default]
    Own,
    /// The attributes of Caliper: the table `caliper`.
    Caliper,
    /// The keys of malloc-tag's JSON, for scopes.
    MallocTag,
    /// The columns of MallocProfiler, for stacks.
    MallocProfiler,
}

/// The table of a tool, and the tool's names of its columns, in the order of `SELECT *`.
struct Table {
    name: &'static str,
    columns: &'static [(&'static str, &'static str)],
}

const CALIPER: Table = Table { name: "caliper", columns: &[] };

const MALLOC_TAG: Table = Table {
    name: "scopes",
    columns: &[
        ("scope", "path"),
        ("nBytesSelfAllocated", "requested_bytes"),
        ("nBytesSelfFreed", "freed_bytes"),
        ("nBytesSelfLive", "live_requested_bytes"),
        ("nTimesEnteredAndExited", "entered"),
        ("nAllocations", "allocations"),
        ("nFreed", "frees"),
    ],
};

const MALLOC_PROFILER: Table = Table {
    name: "stacks",
    columns: &[
        ("stacktrace", "stack"),
        ("ncalls", "allocations"),
        ("memtot", "requested_bytes"),
        ("memlive", "live_requested_bytes"),
        ("max-memlive", "max_live_requested_bytes"),
    ],
};

impl Names {
    const fn table(self) -> Option<&'static Table> {
        match self {
            Names::Own => None,
            Names::Caliper => Some(&CALIPER),
            Names::MallocTag => Some(&MALLOC_TAG),
            Names::MallocProfiler => Some(&MALLOC_PROFILER),
        }
    }

    /// Changes a query with the tool's names to one of the tables; its result keeps the tool's
    /// names. Without FROM, it reads the tool's table.
    ///
    /// ```
    /// use heaptide_query::{names::Names, parse};
    /// let mut query = parse("SELECT stacktrace,sum(memtot) GROUP BY stacktrace").unwrap();
    /// Names::MallocProfiler.apply(&mut query);
    /// assert_eq!(query.from.as_ref().unwrap().text, "stacks");
    /// assert_eq!(query.aggregations[0].result(), "sum#requested_bytes");
    /// assert_eq!(query.title("sum#requested_bytes"), "sum#memtot");
    /// ```
    pub fn apply(self, query: &mut Query) {
        let Some(table) = self.table() else { return };
        if query.from.is_none() {
            query.from = Some(word(table.name));
        }
        if table.columns.is_empty() {
            return;
        }
        let has_all = query.all || query.select.is_none() && query.aggregations.is_empty();
        if has_all {
            let item = |(name, _): &(&str, &str)| Item { name: word(name), computed: false };
            let listed = query.select.take().unwrap_or_default();
            let computed = listed.into_iter().filter(|item| item.computed);
            query.select = Some(table.columns.iter().map(item).chain(computed).collect());
            query.all = false;
        }
        table.rename(query);
    }
}

fn word(text: &str) -> Word {
    Word { text: text.to_owned(), ..Word::default() }
}

impl Table {
    fn own(&self, name: &str) -> Option<&'static str> {
        self.columns.iter().find(|(tool, _)| *tool == name).map(|(_, own)| *own)
    }

    fn set(&self, word: &mut Word) {
        if let Some(own) = self.own(&word.text) {
            own.clone_into(&mut word.text);
        }
    }

    fn rename(&self, query: &mut Query) {
        let mut titles: Vec<(String, String)> = Vec::new();
        for call in &mut query.aggregations {
            let before = call.result();
            call.arguments.iter_mut().for_each(|word| self.set(word));
            titles.push((before, call.result()));
        }
        titles.extend(self.columns.iter().map(|&(tool, own)| (tool.to_owned(), own.to_owned())));
        let renamed = |text: &str| titles.iter().find(|(before, _)| before == text);
        for item in query.select.iter_mut().flatten() {
            if let Some((before, after)) = renamed(&item.name.text) {
                let alias = query.aliases.remove(before).unwrap_or_else(|| before.clone());
                query.aliases.insert(after.clone(), alias);
                item.name.text.clone_from(after);
            }
        }
        for order in &mut query.order {
            if let Some((_, after)) = renamed(&order.attribute.text) {
                order.attribute.text.clone_from(after);
            }
        }
        query.group_by.iter_mut().flatten().for_each(|word| self.set(word));
        for derived in &mut query.lets {
            derived.call.arguments.iter_mut().for_each(|word| self.set(word));
            derived.condition.iter_mut().for_each(|condition| self.set_in(condition));
        }
        query.filter.iter_mut().for_each(|condition| self.set_in(condition));
        for condition in &mut query.having {
            self.set_in(condition);
        }
    }

    fn set_in(&self, condition: &mut Condition) {
        match condition {
            Condition::All(parts) | Condition::Any(parts) => {
                parts.iter_mut().for_each(|part| self.set_in(part));
            }
            Condition::Not(part) => self.set_in(part),
            Condition::Test(test) => self.set(&mut test.attribute),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn selected(text: &str, names: Names) -> (Vec<String>, Vec<String>) {
        let mut query = parse(text).unwrap();
        names.apply(&mut query);
        let items = query.select.iter().flatten();
        let titles = items.clone().map(|item| query.title(&item.name.text).to_owned()).collect();
        (items.map(|item| item.name.text.clone()).collect(), titles)
    }

    #[test]
    fn all_columns_are_those_of_the_tool() {
        let (own, shown) = selected("SELECT *", Names::MallocProfiler);
        assert_eq!(own[1..3], ["allocations", "requested_bytes"]);
        assert_eq!(shown, ["stacktrace", "ncalls", "memtot", "memlive", "max-memlive"]);
    }

    #[test]
    fn aliases_of_the_query_take_precedence() {
        let text = "SELECT memtot AS total,ncalls WHERE NOT memlive=0 ORDER BY memtot";
        let (own, shown) = selected(text, Names::MallocProfiler);
        assert_eq!(own, ["requested_bytes", "allocations"]);
        assert_eq!(shown, ["total", "ncalls"]);
    }

    #[test]
    fn the_table_of_caliper_has_its_names() {
        let mut query = parse("SELECT mem.alloc").unwrap();
        Names::Caliper.apply(&mut query);
        assert_eq!(query.from.unwrap().text, "caliper");
        let mut query = parse("SELECT label FROM labels").unwrap();
        Names::Caliper.apply(&mut query);
        assert_eq!(query.from.unwrap().text, "labels");
    }
}
