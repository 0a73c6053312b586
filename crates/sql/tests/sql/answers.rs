//! Statements with known results, and messages for invalid ones.

use crate::harness::{heaptide, output, recordings, refused, rows, scratch};
use serde_json::json;
use std::fs;
use std::io::Write;
use std::process::Stdio;

#[test]
fn labels_and_scopes_have_the_known_numbers() {
    let [steps, _] = recordings();
    let labels = "SELECT label, sum(allocations) AS n, sum(requested_bytes) AS bytes FROM sites \
                  WHERE label IS NOT NULL GROUP BY label ORDER BY label";
    assert_eq!(
        rows(steps, labels),
        [
            json!({"label": "delv_xi", "n": 50, "bytes": 400_000}),
            json!({"label": "dxx", "n": 50, "bytes": 320_000}),
            json!({"label": "nodelist", "n": 1, "bytes": 24_000}),
            json!({"label": "x", "n": 1, "bytes": 8_000}),
        ]
    );
    let scopes = "SELECT scope(scopes, 'function') AS f, sum(allocations) AS n, path FROM sites \
                  WHERE path[1] = 'main' GROUP BY f, path HAVING f LIKE 'E%'";
    let path = json!(["main", "LagrangeElements", "EvalEOSForElems"]);
    assert_eq!(rows(steps, scopes), [json!({"f": "EvalEOSForElems", "n": 150, "path": path})]);
}

#[test]
fn functions_work_on_stacks() {
    let [steps, compiler] = recordings();
    let ends = "SELECT DISTINCT frame(stack, 0) = frame AS innermost, \
                frame(stack, -1) = stack[1] AS outermost, frame(stack, 1000) AS none, \
                stack_text(stack) = array_to_string(stack, ';') AS joined FROM sites \
                WHERE stack IS NOT NULL";
    let all = json!({"innermost": true, "outermost": true, "none": null, "joined": true});
    assert_eq!(rows(compiler, ends), [all]);
    let inside = "SELECT sum(allocations) AS n FROM sites \
                  WHERE stack_contains(stack, '^TimeIncrement$|^EvalEOSForElems$')";
    assert_eq!(rows(steps, inside), [json!({"n": 200})]);
    let human = "SELECT human_bytes(1536) AS b, human_bytes(-1536) AS m, human_time(1500000) AS t";
    assert_eq!(rows(steps, human), [json!({"b": "1.50 KiB", "m": "-1.50 KiB", "t": "1.50 ms"})]);
}

#[test]
fn a_trace_is_a_table_of_events_in_order() {
    let [steps, compiler] = recordings();
    let counts = "SELECT operation, count(*) AS n FROM events WHERE label = 'dxx' \
                  GROUP BY operation HAVING operation IN ('free', 'relabel') ORDER BY operation";
    let counts = rows(steps, counts);
    assert_eq!(counts[0], json!({"operation": "free", "n": 50}));
    let first = "SELECT number FROM events WHERE number > 0 LIMIT 3";
    assert_eq!(rows(steps, first), [1, 2, 3].map(|n| json!({"number": n})));
    // Begins and ends of scopes are in the order, too, but have no number.
    let first = "SELECT operation, number FROM events LIMIT 1";
    assert_eq!(rows(steps, first), [json!({"operation": "begin", "number": null})]);
    let lifetimes = "SELECT count(*) AS n FROM lifetimes WHERE label = 'delv_xi' AND freed";
    assert_eq!(rows(steps, lifetimes), [json!({"n": 50})]);
    let said = refused(heaptide().args(["sql", "SELECT count(*) FROM events"]).arg(compiler));
    assert!(said.contains("--mode trace") && said.lines().count() == 1, "{said}");
}

#[test]
fn errors_have_a_caret() {
    let [steps, _] = recordings();
    let said = |sql: &str| refused(heaptide().args(["sql", sql]).arg(steps));
    let unknown = said("SELECT lane,\n  threds FROM lanes");
    let lines: Vec<&str> = unknown.lines().collect();
    assert!(lines[0].starts_with("heaptide: query: unknown column `threds`; available: "));
    assert_eq!(lines[1..], ["    threds FROM lanes", "    ^"], "{unknown}");
    assert!(said("SELECT lane FRM lanes").ends_with(&format!("\n{:18}^\n", "")));
    assert!(said("SELECT * FROM nowhere").contains("unknown table `nowhere`; available: sites "));
    assert!(said("COPY lanes TO 'lanes.csv'").contains("COPY"));
    assert!(said("SELECT stack_contains(stack, '(') FROM sites").contains("regex `(`"));
    assert!(said(" -- nothing").contains("empty query"));
}

#[test]
fn results_can_be_tables_csv_json_and_parquet() {
    let [steps, _] = recordings();
    let place = scratch("formats");
    let sql = "SELECT path, sum(allocations) AS n FROM sites WHERE label = 'x' GROUP BY path";
    let shown = |format: &str| output(heaptide().args(["sql", "--format", format, sql]).arg(steps));
    assert_eq!(shown("table"), "path        n\nmain;build  1\n");
    assert_eq!(shown("csv"), "path,n\nmain;build,1\n");
    assert_eq!(shown("json"), "[{\"path\":[\"main\",\"build\"],\"n\":1}]\n");
    let file = place.join("x.parquet");
    let write = || {
        let mut command = heaptide();
        command.args(["sql", sql, "-o"]).arg(&file).arg(steps);
        command
    };
    assert_eq!(output(&mut write()), "");
    assert!(fs::read(&file).expect("a file").starts_with(b"PAR1"));
    assert!(refused(&mut write()).contains("exists; replace it with --force"));
    output(write().arg("--force"));
    let empty =
        output(heaptide().args(["sql", "SELECT lane FROM lanes WHERE threads < 0"]).arg(steps));
    assert_eq!(empty, "lane\n");
}

#[test]
fn statements_are_read_from_standard_input() {
    let [steps, _] = recordings();
    let mut command = heaptide();
    command.arg("sql").arg(steps).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("a program");
    let text = b"SELECT 1 AS a; -- and\nSELECT ';' AS b;";
    child.stdin.take().expect("a pipe").write_all(text).expect("written");
    let done = child.wait_with_output().expect("an end");
    assert_eq!(String::from_utf8_lossy(&done.stdout), "a\n1\nb\n;\n");
}
