//! The tables of recordings: their columns, and how they are filled.

use crate::lexer::Word;
use crate::query::Query;
use crate::table::Table;

mod caliper;
mod dimensions;
mod info;
mod live;
mod moments;
mod retained;
mod sites;
mod source;
mod traced;

pub use info::Info;
pub use source::{Error, Source, Wanted};

const SOURCES: [Source; 17] = [
    sites::SITES,
    traced::EVENTS,
    traced::LIFETIMES,
    dimensions::STACKS,
    dimensions::FRAMES,
    dimensions::SCOPES,
    dimensions::LABELS,
    dimensions::SHAPES,
    dimensions::LANES,
    moments::WINDOWS,
    moments::SNAPSHOTS,
    moments::TIMELINE,
    moments::HISTOGRAM,
    retained::RETAINED,
    retained::KEEPERS,
    dimensions::PROCESSES,
    dimensions::MODULES,
];

/// Tables of queries alone.
const OF_QUERIES: [Source; 1] = [caliper::CALIPER];

impl Source {
    /// Returns the tables that only queries have, because their records are those of other tables
    /// in another form.
    pub const fn of_queries() -> &'static [Source] {
        &OF_QUERIES
    }

    /// Returns all tables; the first is the default of FROM.
    pub const fn all() -> &'static [Source] {
        &SOURCES
    }

    /// Returns the table with a name.
    ///
    /// ```
    /// use heaptide_query::tables::Source;
    /// assert!(Source::named("marks").is_some_and(|table| table.name == "snapshots"));
    /// assert!(Source::named("threads").is_some_and(|table| table.name == "lanes"));
    /// ```
    pub fn named(name: &str) -> Option<&'static Source> {
        let name = name.to_ascii_lowercase();
        let name = match &*name {
            "marks" => "snapshots",
            "threads" => "lanes",
            name => name,
        };
        SOURCES.iter().chain(&OF_QUERIES).find(|source| source.name == name)
    }
}

/// Returns the names in a query that a table does not have.
pub fn unknown<'a>(query: &'a Query, table: &Table) -> Vec<&'a Word> {
    let results: Vec<String> = query.aggregations.iter().map(|call| call.result()).collect();
    let is_part = |name: &str| {
        let end = format!("#{name}");
        table.attributes.iter().any(|attribute| attribute.name.ends_with(&end))
    };
    let mut unknown = query.names().unwrap_or_else(|| query.read_names());
    unknown.retain(|word| {
        let name = &word.text;
        table.named(name).is_none()
            && !matches!(&**name, "path" | "prop:nested" | "none")
            && !results.contains(name)
            && !is_part(name)
            && !query.lets.iter().any(|derived| derived.target.text == *name)
            && !query.aliases.values().any(|alias| alias == name)
    });
    unknown.sort_by(|a, b| a.text.cmp(&b.text));
    unknown.dedup_by(|a, b| a.text == b.text);
    unknown
}

#[cfg(test)]
mod tests {
    use rustc_hash::FxHashSet;

    use super::*;

    #[test]
    fn column_names_are_unique() {
        for source in Source::all().iter().chain(Source::of_queries()) {
            let mut names = FxHashSet::default();
            for info in source.columns() {
                assert!(names.insert(info.name), "{} {}", source.name, info.name);
                assert!(info.also.is_none_or(|also| names.insert(also)), "{}", info.name);
            }
        }
    }
}
