//! The two tiers of tests: the groups of the second tier, and which of them a slice selects. All
//! other tests are the fast tier.

use std::fmt::Write;

/// The package with the tests of programs. Only its tests are divided by name.
pub const GUESTS: &str = "heaptide-cli";
/// The package of the SQL engine, whose dependencies take longer to compile than everything else.
pub const SQL: &str = "heaptide-sql";
/// The parts into which a slice divides the second tier: as many slices contain all of it.
pub const QUARTERS: usize = 4;
/// A slice contains the groups that a change in this many commits could affect.
pub const COMMITS: usize = 40;

/// A named part of the second tier.
#[derive(PartialEq, Eq, Debug)]
pub struct Group {
    pub name: &'static str,
    work: Work,
    /// Files, and directories with `/` at the end, whose change selects the group. The sources of
    /// its tests in [`GUESTS`] select it without being listed.
    paths: &'static [&'static str],
    purpose: &'static str,
}

/// What a group runs.
#[derive(PartialEq, Eq, Debug)]
enum Work {
    /// Tests of [`GUESTS`]: those of a module if the text ends with `::`, otherwise one test.
    Tests(&'static [&'static str]),
    /// All tests of [`SQL`], which the fast tier does not compile.
    Engine,
    /// A program other than the test runner.
    Step(Step),
}

/// A program other than the test runner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Examples in the documentation of the crates.
    Documentation,
    /// Loom models of tables.
    Models,
    /// Fuzz targets.
    Fuzz,
    /// Instructions of the recorder, compared with their ceilings.
    Counts,
}

/// The second tier: what takes long, needs programs that few contributors have, or tests the
/// combination of parts whose own tests are in the fast tier. Slices take every fourth group, so
/// neighbours differ in cost.
pub const GROUPS: &[Group] = &[
    Group {
        name: "real",
        work: Work::Tests(&[
            "real::",
            "advise_table::",
            "answers::answers_about_a_compiler",
            "answers::answers_about_python",
            "diff::a_compiler_on_two_inputs",
            "filters::built_in_sets_on_real_programs",
            "folded::folded_stacks_of_python_add_up",
            "pictures::graphs_of_real_programs",
            "pictures::pages_of_real_programs",
            "pictures::speedscope_by_its_schema",
            "pictures::tables_add_up_to_the_totals",
        ]),
        paths: &["crates/preload/", "crates/recorder/", "crates/supervise/", "crates/unwind/"],
        purpose: "compilers, Python with its own tests, git, redis and sqlite, recorded",
    },
    Group {
        name: "book",
        work: Work::Tests(&["book::"]),
        paths: &["docs/", "examples/book/", "crates/command/", "crates/cli/src/"],
        purpose: "the commands of all pages of the book, with their outputs",
    },
    Group {
        name: "everything",
        work: Work::Tests(&["everything::"]),
        paths: &["crates/analysis/", "crates/query/", "crates/render/"],
        purpose: "all commands on large recordings: their totals agree",
    },
    Group {
        name: "engine",
        work: Work::Engine,
        // Neither the crates that it reads recordings with nor Cargo.lock: they change often, and
        // a quarter of all slices runs it in any case.
        paths: &["crates/sql/"],
        purpose: "the SQL engine and its cluster, which take minutes to compile",
    },
    Group {
        name: "browser",
        work: Work::Tests(&["page::"]),
        paths: &["crates/render/src/page/", "crates/view/"],
        purpose: "the page of a recording, used in Chromium",
    },
    Group {
        name: "readers",
        work: Work::Tests(&["foreign::", "documents::", "serve_otlp::"]),
        paths: &["crates/render/src/export/", "crates/serve/", "python/", "tests/readers/"],
        purpose: "exports, read by pprof, the Firefox Profiler, pandas and others",
    },
    Group {
        name: "kill",
        work: Work::Tests(&["kill::", "kill_points::", "killed_commands::"]),
        paths: &["crates/recorder/src/store/", "crates/trace/"],
        purpose: "programs killed while they record: their recordings stay readable",
    },
    Group {
        name: "instructions",
        work: Work::Tests(&["handlers::at_every_instruction::"]),
        paths: &["crates/recorder/src/event/", "crates/unwind/"],
        purpose: "signal handlers that allocate, at every instruction of the recorder",
    },
    Group {
        name: "soak",
        work: Work::Tests(&[
            "churn::",
            "dangers::seventy_thousand_threads",
            "interface::hundred_thousand_names",
            "interface::traced::hundred_thousand_names",
        ]),
        paths: &["crates/recorder/src/store/"],
        purpose: "threads, mappings, libraries and scopes that come and go in large numbers",
    },
    Group {
        name: "again",
        work: Work::Tests(&[
            "by_call::known_numbers_stay",
            "by_size::known_numbers_stay",
            "dangers::traced::",
            "sampled::known_numbers_hold_where_every_block_is_sampled",
        ]),
        paths: &["crates/recorder/src/event/", "crates/trace/"],
        purpose: "the programs with known numbers, recorded with other options",
    },
    Group {
        name: "languages",
        work: Work::Tests(&["languages::", "python_frames::", "python_objects::every_version::"]),
        paths: &["crates/heaptide/", "crates/macros/", "examples/rust/", "monitors/", "python/"],
        purpose: "every version of Python; programs in Rust and Python that use the interface",
    },
    Group {
        name: "documentation",
        work: Work::Step(Step::Documentation),
        paths: &["crates/fixtures/src/", "crates/heaptide/src/", "crates/macros/"],
        purpose: "the examples in the documentation of the crates",
    },
    Group {
        name: "models",
        work: Work::Step(Step::Models),
        paths: &["crates/unwind/"],
        purpose: "loom models of the insert-only tables, compiled separately",
    },
    Group {
        name: "fuzz",
        work: Work::Step(Step::Fuzz),
        paths: &["fuzz/", "crates/analysis/src/profile/", "crates/format/", "crates/trace/"],
        purpose: "fuzz targets, on changes of their corpora",
    },
    Group {
        name: "counts",
        work: Work::Step(Step::Counts),
        paths: &["benches/", "crates/preload/", "crates/recorder/", "crates/unwind/"],
        purpose: "instructions and cache misses of the recorder, below their ceilings",
    },
];

impl Group {
    /// Returns beginnings of the names of its tests.
    fn tests(&self) -> &'static [&'static str] {
        if let Work::Tests(names) = self.work { names } else { &[] }
    }

    /// Returns whether it tests the SQL engine.
    pub fn is_engine(&self) -> bool {
        self.work == Work::Engine
    }

    /// Returns the program that it runs, if that is not the test runner.
    pub fn step(&self) -> Option<Step> {
        if let Work::Step(step) = self.work { Some(step) } else { None }
    }

    /// Returns whether a change of this file selects the group.
    fn is_affected_by(&self, file: &str) -> bool {
        let is_listed = self
            .paths
            .iter()
            .any(|path| if path.ends_with('/') { file.starts_with(path) } else { file == *path });
        is_listed || self.tests().iter().any(|name| is_source(file, name))
    }
}

/// Returns whether a file has the sources of the module with these tests: `real.rs`, or a file
/// below `real`, in the directory of a test binary of [`GUESTS`].
fn is_source(file: &str, test: &str) -> bool {
    let module = test.split("::").next().unwrap_or(test);
    let below = file.strip_prefix("crates/cli/tests/").unwrap_or_default();
    let part = below.split('/').nth(1).unwrap_or_default();
    part.strip_suffix(".rs").unwrap_or(part) == module
}

/// Returns nextest's expression for the tests of these groups; `None` if they have no tests by
/// name.
pub fn expression<'a>(groups: impl IntoIterator<Item = &'a Group>) -> Option<String> {
    let names = groups.into_iter().flat_map(|group| group.tests());
    let names: Vec<String> = names.map(|name| pattern(name)).collect();
    let any = names.join("|");
    (!any.is_empty()).then(|| format!("package({GUESTS}) & kind(test) & test(/^(?:{any})/)"))
}

/// Returns the regular expression of a name in [`Work::Tests`].
fn pattern(name: &str) -> String {
    if name.ends_with("::") { name.to_owned() } else { format!("{name}$") }
}

/// Returns nextest's expression for the fast tier.
pub fn fast() -> String {
    expression(GROUPS).map_or_else(|| "all()".to_owned(), |second| format!("not ({second})"))
}

/// Returns names in the table that select none of the listed tests: they have been renamed or
/// removed, and other tests may have left their group unnoticed. A line of the listing is
/// `BINARY TEST`, as nextest writes it.
pub fn unmatched(listing: &str) -> Vec<&'static str> {
    let tests: Vec<&str> = listing.lines().filter_map(guest).collect();
    let names = GROUPS.iter().flat_map(|group| group.tests());
    let is_unmatched = |name: &&&str| !tests.iter().any(|test| selects(name, test));
    names.filter(is_unmatched).copied().collect()
}

/// Returns the name of a test of programs in a line of nextest's listing.
fn guest(line: &str) -> Option<&str> {
    let (binary, test) = line.split_once(' ')?;
    has_guests(binary).then_some(test)
}

/// Returns whether a test binary, as nextest names it, has tests of programs: not unit tests, as in
/// `heaptide-cli::bin/heaptide`.
fn has_guests(binary: &str) -> bool {
    let target = binary.strip_prefix(GUESTS).and_then(|rest| rest.strip_prefix("::"));
    target.is_some_and(|target| !target.contains('/'))
}

/// Returns the group of a test; `None` if it is in the fast tier.
pub fn group_of(binary: &str, test: &str) -> Option<&'static Group> {
    let is_of = |group: &&Group| {
        if group.is_engine() {
            return binary.split("::").next() == Some(SQL);
        }
        has_guests(binary) && group.tests().iter().any(|name| selects(name, test))
    };
    GROUPS.iter().find(is_of)
}

/// Returns whether a name in [`Work::Tests`] selects a test.
fn selects(name: &str, test: &str) -> bool {
    if name.ends_with("::") { test.starts_with(name) } else { test == name }
}

/// A part of the second tier.
pub struct Slice {
    /// The number of its quarter.
    pub quarter: usize,
    /// Groups that a change may affect.
    pub affected: Vec<&'static Group>,
    /// Those of the others that are in this quarter.
    pub chosen: Vec<&'static Group>,
}

impl Slice {
    /// Selects the groups that a change of these files may affect, and a quarter of all others.
    pub fn new(changed: &[&str], quarter: usize) -> Slice {
        let is_affected = |group: &Group| changed.iter().any(|file| group.is_affected_by(file));
        let (affected, others): (Vec<_>, Vec<_>) =
            GROUPS.iter().enumerate().partition(|(_, group)| is_affected(group));
        // By the place in the whole table: the others of the next commit may be different ones.
        let chosen = others.into_iter().filter(|(place, _)| place % QUARTERS == quarter);
        let groups = |chosen: Vec<(usize, &'static Group)>| {
            chosen.into_iter().map(|(_, group)| group).collect()
        };
        Slice { quarter, affected: groups(affected), chosen: groups(chosen.collect()) }
    }

    /// Returns all groups of the slice.
    pub fn groups(&self) -> impl Iterator<Item = &'static Group> {
        self.affected.iter().chain(&self.chosen).copied()
    }
}

/// Returns the quarter of a commit, given the hexadecimal digits of its hash.
pub fn quarter_of(commit: &str) -> Option<usize> {
    let number = u32::from_str_radix(commit.get(..8)?, 16).ok()?;
    usize::try_from(number).ok().map(|number| number % QUARTERS)
}

/// Returns the names of groups, separated by commas.
pub fn names<'a>(groups: impl IntoIterator<Item = &'a Group>) -> String {
    let names: Vec<&str> = groups.into_iter().map(|group| group.name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Returns the table of groups, for readers.
pub fn table() -> String {
    let mut table = "second tier, all other tests are the fast tier:\n".to_owned();
    for (place, group) in GROUPS.iter().enumerate() {
        let quarter = place % QUARTERS;
        let work = match group.work {
            Work::Tests(names) => format!("tests {}", names.join(" ")),
            Work::Engine => format!("package {SQL}"),
            Work::Step(step) => format!("step {step:?}").to_lowercase(),
        };
        let (name, purpose, paths) = (group.name, group.purpose, group.paths.join(" "));
        let _ = write!(
            table,
            "\n{name} (quarter {quarter}): {purpose}\n  {work}\n  selected by {paths}\n"
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::root;

    /// A listing in which each name of the table selects one test.
    fn listing() -> String {
        let names = GROUPS.iter().flat_map(|group| group.tests());
        let test = |name: &&str| {
            let end = if name.ends_with("::") { "a_test" } else { "" };
            format!("heaptide-cli::slow {name}{end}\n")
        };
        names.map(test).collect()
    }

    #[test]
    fn no_test_is_in_two_groups() {
        let names: Vec<&str> = GROUPS.iter().flat_map(|group| group.tests()).copied().collect();
        for (place, name) in names.iter().enumerate() {
            for other in &names[place + 1..] {
                assert!(!name.starts_with(other) && !other.starts_with(name), "{name} {other}");
            }
        }
    }

    #[test]
    fn names_need_no_escape_in_expressions() {
        let of_a_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c);
        for name in GROUPS.iter().flat_map(|group| group.tests()) {
            assert!(!name.is_empty() && name.chars().all(of_a_name), "{name}");
        }
    }

    #[test]
    fn groups_have_different_names_and_a_sentence() {
        let names: BTreeSet<&str> = GROUPS.iter().map(|group| group.name).collect();
        assert_eq!(names.len(), GROUPS.len());
        assert!(GROUPS.iter().all(|group| !group.purpose.is_empty() && !group.paths.is_empty()));
    }

    #[test]
    fn paths_of_groups_exist() {
        for path in GROUPS.iter().flat_map(|group| group.paths) {
            assert!(root().join(path).exists(), "{path}");
        }
    }

    #[test]
    fn expressions_contain_modules_and_whole_names() {
        let group = |name: &str| GROUPS.iter().find(|group| group.name == name).unwrap();
        assert_eq!(
            expression([group("browser"), group("fuzz"), group("again")]).unwrap(),
            "package(heaptide-cli) & kind(test) & \
             test(/^(?:page::|by_call::known_numbers_stay$|by_size::known_numbers_stay$|\
             dangers::traced::|\
             sampled::known_numbers_hold_where_every_block_is_sampled$)/)"
        );
        assert_eq!(expression([group("fuzz"), group("engine")]), None);
        assert!(fast().starts_with("not (package(heaptide-cli) & "));
    }

    #[test]
    fn a_name_without_a_test_is_found() {
        assert_eq!(unmatched(&listing()), [""; 0]);
        let without = listing().replace("kill::a_test", "killing::a_test");
        assert_eq!(unmatched(&without), ["kill::"]);
        // Unit tests are not divided.
        let elsewhere = listing().replace("slow kill::", "bin/heaptide kill::");
        assert_eq!(unmatched(&elsewhere), ["kill::"]);
    }

    #[test]
    fn a_test_is_in_one_group_or_the_fast_tier() {
        let of = |binary, test| group_of(binary, test).map(|group| group.name);
        assert_eq!(of("heaptide-cli::slow", "kill::killed_at_any_moment"), Some("kill"));
        assert_eq!(of("heaptide-cli::slow", "killing::x"), None);
        assert_eq!(of("heaptide-cli::bin/heaptide", "kill::x"), None);
        assert_eq!(of("heaptide-sql::sql", "x"), Some("engine"));
        assert_eq!(of("heaptide-render", "page::tests::x"), None);
    }

    #[test]
    fn four_slices_contain_all_groups_once() {
        let slices = (0..QUARTERS).map(|quarter| Slice::new(&[], quarter));
        let mut all: Vec<&str> = slices
            .flat_map(|slice| slice.groups().map(|group| group.name).collect::<Vec<_>>())
            .collect();
        all.sort_unstable();
        let mut expected: Vec<&str> = GROUPS.iter().map(|group| group.name).collect();
        expected.sort_unstable();
        assert_eq!(all, expected);
    }

    #[test]
    fn a_change_selects_groups_in_every_quarter() {
        for quarter in 0..QUARTERS {
            let slice = Slice::new(&["crates/view/src/lib.rs", "README.md"], quarter);
            assert_eq!(names(slice.affected), "browser");
        }
        let of = |file: &str| names(Slice::new(&[file], 0).affected);
        assert_eq!(of("crates/cli/tests/slow/kill.rs"), "kill");
        assert_eq!(of("crates/cli/tests/slow/book/page.rs"), "book");
        assert_eq!(of("crates/cli/tests/slow/booking.rs"), "none");
        assert_eq!(of("xtask/src/tiers.rs"), "none");
        assert_eq!(of("crates/sql/src/main.rs"), "engine");
    }

    #[test]
    fn quarters_are_those_of_hashes() {
        assert_eq!(quarter_of("00000007d4ba4900"), Some(3));
        assert_eq!(quarter_of("d4ba4900de9e5846"), Some(0));
        assert_eq!(quarter_of("d4ba"), None);
        assert_eq!(quarter_of("a commit"), None);
    }

    #[test]
    fn the_table_has_every_group() {
        let table = table();
        for group in GROUPS {
            assert!(table.contains(&format!("\n{} (", group.name)), "{}", group.name);
        }
    }
}
