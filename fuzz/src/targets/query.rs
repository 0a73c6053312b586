//! Any text as a query, on any bytes as a `.cali` file: it ends with an error or a result.
//!
//! The query is the first line.

use heaptide_query::stream::Stream;
use heaptide_query::table::Table;
use heaptide_query::{cali, format, parse, parse_format, run};

/// Runs the query and writes the result.
pub fn query(input: &[u8]) -> bool {
    let end = input.iter().position(|&byte| byte == b'\n').unwrap_or(input.len());
    let (first, rest) = input.split_at(end);
    let Ok(query) = parse(&String::from_utf8_lossy(first)) else {
        return false;
    };
    let mut table = Table::default();
    let _ = cali::read(rest, &mut table);
    let answer = run(&query, Stream::of(table));
    let tree = parse_format("tree").expect("a formatter");
    let format = query.format.as_ref().unwrap_or(&tree);
    format::write(&mut std::io::sink(), &query, format, &answer).expect("a sink takes everything");
    true
}
