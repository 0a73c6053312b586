//! Compacted datasets: they have the rows of their files, and a query reads only row groups with
//! its rank, owner, label or function.

use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::{heaptide, job_and_dataset, output, recordings, scratch};

/// Ranks of the dataset with known rows.
const RANKS: usize = 12;
/// Rows of each rank: two ranks have as many rows as a row group.
const ROWS: usize = 1 << 16;

fn export(dataset: &Path, recording: &Path) {
    let mut command = heaptide();
    output(command.args(["export", "--format", "parquet", "-o"]).arg(dataset).arg(recording));
}

fn compact(dataset: &Path) {
    output(heaptide().args(["dataset", "compact"]).arg(dataset));
}

fn ask(dataset: &Path, sql: &str) -> String {
    output(heaptide().args(["sql", "--format", "csv", sql, "--dataset"]).arg(dataset))
}

/// Returns all rows of each table that has some, sorted, and the number of tables.
fn all_rows(dataset: &Path) -> (Vec<String>, usize) {
    let (mut rows, mut tables) = (Vec::new(), 0);
    for entry in fs::read_dir(dataset).expect("a directory").flatten() {
        let name = entry.file_name().into_string().expect("UTF-8");
        if entry.path().is_dir() {
            let text = ask(dataset, &format!("SELECT * FROM \"{name}\""));
            rows.extend(text.lines().map(|row| format!("{name}: {row}")));
            tables += 1;
        }
    }
    rows.sort();
    (rows, tables)
}

#[test]
fn every_table_has_the_same_rows_after_a_compaction() {
    let place = scratch("same rows");
    let [_, dataset] = job_and_dataset(&place, 3);
    recordings().iter().for_each(|recording| export(&dataset, recording));
    let (before, tables) = all_rows(&dataset);
    assert!(before.len() > 2000 && tables >= 12, "{} rows, {tables} tables", before.len());
    compact(&dataset);
    assert!(all_rows(&dataset).0 == before);
    // A second compaction merges compacted rows with others.
    let other = place.join("other.heaptide");
    output(std::process::Command::new("cp").arg("-r").arg(&recordings()[0]).arg(&other));
    export(&dataset, &other);
    let (before, _) = all_rows(&dataset);
    compact(&dataset);
    assert!(all_rows(&dataset).0 == before);
}

/// Writes a dataset in which each rank has 64 owners, `o10` to `o73`, with 1024 rows each. The rows
/// of rank 3 have the label `l3`, and so on. The stack of each row is `main` and the owner. Ranks
/// alternate between two hosts.
fn known(place: &Path) -> PathBuf {
    let dataset = place.join("heap");
    for rank in 0..RANKS {
        let (host, end) = (rank % 2, ROWS - 1);
        let to = dataset.join(format!("sites/run=job/host=n{host}/rank={rank}/pid=1"));
        fs::create_dir_all(&to).expect("a directory");
        let sql = format!(
            "SELECT 'o' || (10 + i % 64) AS owner, 'l{rank}' AS label, i AS live_bytes, \
             make_array('main', 'o' || (10 + i % 64)) AS stack \
             FROM (SELECT unnest(generate_series(0, {end})) AS i)"
        );
        let mut write = heaptide();
        write.args(["sql", &sql]).arg(&recordings()[0]).arg("-o").arg(to.join("image-0.parquet"));
        output(&mut write);
    }
    fs::write(dataset.join("heaptide-dataset"), "schema 1\n").expect("a file");
    dataset
}

/// Returns the numbers of row groups that are left by a condition: those that files are searched
/// for, then those with its values in their ranges, then those that bloom filters leave.
fn groups(dataset: &Path, condition: &str) -> [usize; 3] {
    let sql = format!("EXPLAIN ANALYZE SELECT sum(live_bytes) FROM sites WHERE {condition}");
    let plan = ask(dataset, &sql);
    let numbers = |metric: &str| {
        let (_, after) = plan.split_once(metric).unwrap_or(("", "0 total → 0 matched"));
        let mut numbers = after.split([' ', ',']).filter_map(|word| word.parse().ok());
        [(); 2].map(|()| numbers.next().expect("a number"))
    };
    let [all, in_range] = numbers("row_groups_pruned_statistics=");
    [all, in_range, numbers("row_groups_pruned_bloom_filter=")[1]]
}

#[test]
fn queries_read_only_row_groups_of_their_rank_owner_label_or_function() {
    let place = scratch("row groups");
    let dataset = known(&place);
    let check = |condition: &str, expected: [usize; 3], rows: usize| {
        assert_eq!(groups(&dataset, condition), expected, "{condition}");
        let sql = format!("SELECT count(*) AS n FROM sites WHERE {condition}");
        assert_eq!(ask(&dataset, &sql), format!("n\n{rows}\n"), "{condition}");
    };
    check("live_bytes >= 0", [RANKS; 3], RANKS * ROWS);
    check("stack_contains(stack, '^o10$')", [RANKS; 3], RANKS * 1024);
    compact(&dataset);
    // Ranks 0 to 7 have four row groups, with 16 owners each; ranks 8 to 11 have two.
    check("live_bytes >= 0", [6; 3], RANKS * ROWS);
    check("rank = 7", [6, 4, 4], ROWS);
    check("rank = 8", [6, 2, 2], ROWS);
    check("rank = 8 AND owner = 'o10'", [6, 1, 1], 1024);
    check("owner = 'o73'", [6, 2, 2], RANKS * 1024);
    check("owner IN ('o10', 'o73')", [6, 4, 4], 2 * RANKS * 1024);
    // In the ranges of some row groups, but in none of them.
    check("owner = 'o105'", [6, 2, 0], 0);
    // `l3` is between `l10` and `l9`.
    check("label = 'l3'", [6, 6, 4], ROWS);
    check("stack_contains(stack, '^o(10|11)$')", [2, 2, 2], 2 * RANKS * 1024);
    check("stack_contains(stack, 'o1.') AND owner <> 'o10'", [2, 2, 2], 9 * RANKS * 1024);
    check("stack_contains(stack, '3$') AND stack_contains(stack, '^o7')", [2; 3], RANKS * 1024);
    check("stack_contains(stack, 'main')", [6; 3], RANKS * ROWS);
    // Other expressions are evaluated for each row.
    check("NOT stack_contains(stack, 'o1.')", [6; 3], 54 * RANKS * 1024);
    check("stack_contains(stack, 'o1.') OR rank = 8", [6; 3], (10 * 11 + 64) * 1024);
    check("stack_contains(stack, 'o1.') IS NOT NULL", [6; 3], RANKS * ROWS);
    check("stack_contains(stack, owner)", [6; 3], RANKS * ROWS);
    // A function that no file has: nothing is read.
    check("stack_contains(stack, 'nothing')", [0; 3], 0);
    check("stack_contains(path, 'main')", [0; 3], 0);
}
