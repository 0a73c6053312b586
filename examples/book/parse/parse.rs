//! Generates a table, parses it, and keeps a string for each cell.
//!
//!     rustc -g -O parse.rs

/// Returns a table of 2,000 rows with five cells.
fn make() -> String {
    (0..2000).map(|row| format!("{row},{},{},name {row},value\n", row * 2, row * 3)).collect()
}

fn parse(table: &str) -> Vec<Vec<String>> {
    table.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

fn main() {
    let table = make();
    let rows = parse(&table);
    let cells: usize = rows.iter().map(Vec::len).sum();
    eprintln!("{cells} cells in {} rows", rows.len());
}
