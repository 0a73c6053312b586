//! Random queries on random files: each ends with an error, or with a result that every formatter
//! can write.

use heaptide_fixtures::Random;
use heaptide_query::stream::Stream;
use heaptide_query::table::Table;
use heaptide_query::{cali, format, parse, parse_format, run};

const FILE: &str = include_str!("../../../tests/queries/numbers.cali");

/// Clauses from which many queries are valid.
const CLAUSES: [&str; 26] = [
    "SELECT * ",
    "SELECT function,x,sum(x),avg(f) AS \"m m\" ",
    "SELECT path,count(),ratio(x,y),variance(x) ",
    "AGGREGATE inclusive_sum(x),inclusive_ratio(x,y,2),inclusive_percent_total(f) ",
    "AGGREGATE any(name),min(name),inclusive_max(name),scale_count(-1) ",
    "AGGREGATE sum(name),avg(name),percent_total(y) ",
    "GROUP BY function ",
    "GROUP BY name,path ",
    "GROUP BY none ",
    "GROUP BY x,x,function ",
    "WHERE x ",
    "WHERE NOT x=9 OR name LIKE %o% ",
    "WHERE function=~\"^s|w\",f>1e-3 ",
    "WHERE x<nan,y>=-1 ",
    "WHERE path=solve AND (x>1 OR NOT f) ",
    "HAVING sum#x>0 ",
    "ORDER BY function,x DESC ",
    "ORDER BY sum#x,count ",
    "LIMIT 2 ",
    "LIMIT 0 ",
    "LET a=ratio(x,y),b=first(a,x,name),c=leaf(),d=leaf(function) IF x ",
    "LET x=scale(y,1e300),count=sum(x,y,f),t=truncate(x,0) ",
    "LET function=leaf(),name=truncate(f,-2) ",
    "SELECT a,b,c,d,t ",
    "SELECT nowhere,count#x ",
    "WHERE b=one ",
];

const FORMATS: [&str; 15] = [
    "table",
    "table(1)",
    "table(0,print-globals)",
    "tree",
    "tree(column-width=2)",
    "tree(\"name,function,x\")",
    "json",
    "json(object,pretty)",
    "json(split,quote-all,separate-nested)",
    "json-split",
    "csv",
    "expand",
    "cali",
    "format(\"%[99999999999,r]x%%%[c]name%[\")",
    "format(%)",
];

#[test]
fn every_query_ends_with_a_result_or_an_error() {
    let mut random = Random::new(11);
    let mut asked = 0;
    for round in 0..2000 {
        let mut bytes = FILE.as_bytes().to_vec();
        for _ in 0..round % 4 {
            let at = random.index(bytes.len());
            bytes[at] = random.one(b"0123456789=,\\\n_refctxd-.");
        }
        let mut table = Table::default();
        let _ = cali::read(&bytes[..], &mut table);
        let clauses = 1 + random.below(6);
        let text: String = (0..clauses).map(|_| random.one(&CLAUSES)).collect();
        let Ok(query) = parse(&text) else {
            continue;
        };
        asked += 1;
        let answer = run(&query, Stream::of(table));
        for name in FORMATS {
            let shown = parse_format(name).expect(name);
            let mut out = Vec::new();
            format::write(&mut out, &query, &shown, &answer).expect("memory takes it");
            assert!(name != "cali" || again(&out, answer.rows()), "{text}");
        }
    }
    assert!(asked > 1900, "{asked} of 2000 queries were evaluated");
}

/// Returns whether output in Caliper's format can be read again; empty records are not written.
fn again(out: &[u8], rows: usize) -> bool {
    let mut table = Table::default();
    cali::read(out, &mut table).is_ok() && table.rows() <= rows
}
