//! Any text as a query, asked of any bytes as a `.cali` file: it ends with an error or an answer.
//!
//! `cargo fuzz run --sanitizer none query -- -max_len=4096`; the query is the first line.

#![no_main]

use heaptide_query::table::Table;
use heaptide_query::{cali, format, parse, parse_format, run};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let end = input.iter().position(|&byte| byte == b'\n').unwrap_or(input.len());
    let (first, rest) = input.split_at(end);
    let Ok(query) = parse(&String::from_utf8_lossy(first)) else {
        return;
    };
    let mut table = Table::default();
    let _ = cali::read(rest, &mut table);
    let answer = run(&query, table);
    let tree = parse_format("tree").expect("a formatter");
    let format = query.format.as_ref().unwrap_or(&tree);
    let _ = format::write(&mut std::io::sink(), &query, format, &answer);
});
