//! Compares CalQL queries with equivalent SQL queries: two evaluators without common code check
//! each other, on recordings and on a dataset of them.

use crate::harness::{heaptide, output, recordings, scratch};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// A table: columns to group by, columns to sum, and conditions that are valid in both languages.
struct Asked {
    table: &'static str,
    groups: &'static [&'static str],
    numbers: &'static [&'static str],
    conditions: &'static [(&'static str, &'static str)],
}

const ASKED: &[Asked] = &[
    Asked {
        table: "sites",
        groups: &["label", "frame", "owner", "lane", "process", "module", "mem.alloc", "line"],
        numbers: &[
            "allocations",
            "live_bytes",
            "usable_bytes",
            "largest_bytes",
            "line",
            "slack_bytes",
        ],
        conditions: &[
            ("usable_bytes>1000", "usable_bytes > 1000"),
            ("kind=heap", "kind = 'heap'"),
            ("label", "label IS NOT NULL"),
            ("frame=~^[a-e]", "regexp_like(frame, '^[a-e]')"),
            ("not label", "label IS NULL"),
            ("allocations>=10", "allocations >= 10"),
        ],
    },
    Asked {
        table: "stacks",
        groups: &["frame", "depth", "process"],
        numbers: &["depth", "allocations", "temporary"],
        conditions: &[("depth<8", "depth < 8"), ("temporary!=0", "temporary <> 0")],
    },
    Asked {
        table: "modules",
        groups: &["module", "unloaded", "program"],
        numbers: &["allocations", "frees", "at_peak_bytes"],
        conditions: &[("allocations>0", "allocations > 0"), ("build_id", "build_id IS NOT NULL")],
    },
    Asked {
        table: "frames",
        groups: &["module", "file", "inlined"],
        numbers: &["line"],
        conditions: &[("line>100", "line > 100"), ("file", "file IS NOT NULL")],
    },
    Asked {
        table: "timeline",
        groups: &["process"],
        numbers: &["live_bytes", "peak_bytes", "allocations"],
        conditions: &[("live_bytes>4096", "live_bytes > 4096")],
    },
    Asked {
        table: "histogram",
        groups: &["process", "size_max"],
        numbers: &["requested", "usable", "freed", "size_min"],
        conditions: &[("size_max<=64", "size_max <= 64")],
    },
];

/// Tables that need a trace.
const TRACED: &[Asked] = &[
    Asked {
        table: "events",
        groups: &["operation", "label", "frame", "temporary"],
        numbers: &["size", "usable_bytes", "lifetime_ns", "number"],
        conditions: &[("operation=free", "operation = 'free'"), ("size>100", "size > 100")],
    },
    Asked {
        table: "lifetimes",
        groups: &["label", "freed", "frame"],
        numbers: &["size", "lifetime_ns", "lifetime_events"],
        conditions: &[("freed=true", "freed"), ("size<=8000", "size <= 8000")],
    },
];

/// Results by group.
type Answer = BTreeMap<String, Vec<Option<i64>>>;

/// A query in both languages.
struct Pair {
    calql: String,
    sql: String,
    group: &'static str,
    number: &'static str,
}

/// Combines grouping columns with numbers; every second pair has up to two conditions.
fn pairs(asked: &'static Asked) -> Vec<Pair> {
    let all = asked.groups.iter().flat_map(|group| asked.numbers.iter().map(move |n| (group, n)));
    let pair = |(turn, (&group, &number)): (usize, (&&'static str, &&'static str))| {
        let conditions = asked.conditions.len();
        let some: Vec<_> =
            (0..turn % 3).map(|more| &asked.conditions[(turn + more) % conditions]).collect();
        let both = |of: fn(&&(&'static str, &'static str)) -> &'static str,
                    word: &str,
                    and: &str| {
            let texts: Vec<&str> = some.iter().map(of).collect();
            if texts.is_empty() { String::new() } else { format!(" {word} {}", texts.join(and)) }
        };
        let calql = format!(
            "SELECT {group},count(),sum({number}),min({number}),max({number}),avg({number}) \
             FROM {} GROUP BY {group}{} FORMAT json",
            asked.table,
            both(|pair| pair.0, "WHERE", ","),
        );
        // The count of a site is its number of allocations; a mean of integers is an integer.
        let count = if asked.table == "sites" { "sum(allocations)" } else { "count(*)" };
        let sql = format!(
            "SELECT \"{group}\" AS g, {count} AS c, sum({number}) AS s, min({number}) AS i, \
             max({number}) AS x, sum({number}) / count({number}) AS a FROM {}{} GROUP BY 1;",
            asked.table,
            both(|pair| pair.1, "WHERE", " AND "),
        );
        Pair { calql, sql, group, number }
    };
    all.enumerate().step_by(2).map(pair).collect()
}

fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

fn answer(rows: &Value, names: [&str; 6]) -> Answer {
    let row = |row: &Map<String, Value>| {
        // CalQL omits counts of 0.
        let count = row.get(names[1]).and_then(Value::as_i64).unwrap_or(0);
        let others = names[2..].iter().map(|name| row.get(*name).and_then(Value::as_i64));
        let values = std::iter::once(Some(count)).chain(others);
        (text(row.get(names[0])), values.collect::<Vec<_>>())
    };
    let rows = rows.as_array().expect("rows");
    let mut answer: Answer = rows.iter().map(|of| row(of.as_object().expect("a row"))).collect();
    // CalQL omits records without values.
    let is_nothing = |value: &Option<i64>| value.unwrap_or(0) == 0;
    answer.retain(|group, values| !(group.is_empty() && values.iter().all(is_nothing)));
    answer
}

/// Runs all queries of a table in both languages.
fn judge(asked: &'static Asked, calql: &[&Path], sql: &[&Path]) {
    let pairs = pairs(asked);
    let statements: String = pairs.iter().map(|pair| &*pair.sql).collect();
    let text = output(heaptide().args(["sql", "--format", "json", &statements]).args(sql));
    let answers: Vec<&str> = text.lines().collect();
    assert_eq!(answers.len(), pairs.len());
    for (pair, judged) in pairs.iter().zip(answers) {
        let text = output(heaptide().args(["query", &pair.calql]).args(calql));
        let own: Value = serde_json::from_str(&text).expect("JSON");
        let judged: Value = serde_json::from_str(judged).expect("JSON");
        let [sum, min, max, avg] =
            ["sum", "min", "max", "avg"].map(|operator| format!("{operator}#{}", pair.number));
        let own = answer(&own, [pair.group, "count", &sum, &min, &max, &avg]);
        let judged = answer(&judged, ["g", "c", "s", "i", "x", "a"]);
        assert_eq!(own, judged, "{}\n{}", pair.calql, pair.sql);
    }
}

#[test]
fn calql_and_sql_agree_on_a_program_with_scopes_and_labels() {
    let [steps, _] = recordings();
    ASKED.iter().chain(TRACED).for_each(|asked| judge(asked, &[steps], &[steps]));
}

#[test]
fn calql_and_sql_agree_on_a_compiler_with_its_processes() {
    let [_, compiler] = recordings();
    ASKED.iter().for_each(|asked| judge(asked, &[compiler], &[compiler]));
}

#[test]
fn a_dataset_has_the_results_of_its_recordings() {
    let place = scratch("dataset");
    let all = recordings();
    for recording in all {
        let mut export = heaptide();
        export.args(["export", "--format", "parquet", "-o"]).arg(&place);
        output(export.arg(recording));
    }
    let dataset = [Path::new("--dataset"), &place];
    let [steps, compiler] = [&*all[0], &*all[1]];
    let [sites, stacks, ..] = ASKED else { unreachable!("two tables") };
    judge(sites, &dataset, &[steps, compiler]);
    judge(stacks, &[steps, compiler], &dataset);
    TRACED.iter().for_each(|asked| judge(asked, &dataset, &[steps]));
    let tree = "SELECT function,count(),inclusive_sum(usable_bytes) GROUP BY function FORMAT tree";
    let of = |words: &[&Path]| output(heaptide().args(["query", tree]).args(words));
    assert_eq!(of(&dataset), of(&[steps, compiler]));
}
