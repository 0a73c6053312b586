//! The result does not depend on how records are split into batches, nor on which threads process
//! them.

use heaptide_fixtures::Random;
use heaptide_query::stream::Stream;
use heaptide_query::table::{Form, Table};
use heaptide_query::value::{Bits, Kind};
use heaptide_query::{format, parse, parse_format, run};

/// Creates records with paths, stacks, and values of all kinds, some of which are missing.
fn table(random: &mut Random, rows: usize) -> Table {
    let mut table = Table::default();
    let function = table.attribute("function", Kind::Text, Form::Nested);
    let step = table.attribute("step", Kind::Int, Form::Nested);
    let stack = table.attribute("stack", Kind::Text, Form::Stack);
    let kinds = [
        ("n", Kind::Int),
        ("u", Kind::Uint),
        ("d", Kind::Double),
        ("b", Kind::Bool),
        ("a", Kind::Address),
        ("t", Kind::Text),
    ];
    let values = kinds.map(|(name, kind)| (table.attribute(name, kind, Form::Value), kind));
    let names: Vec<Bits> = ["x", "y", "", "été", "main"].map(|t| table.strings.bits(t)).into();
    for _ in 0..rows {
        let row = table.add_row();
        for _ in 0..random.below(4) {
            let name = random.one(&names);
            let [path, other] = [table.paths[row], table.others[row]];
            match random.below(4) {
                0 => table.paths[row] = table.node(path, step, Bits::int(name.0 as i64 - 2)),
                1 => table.paths[row] = table.node(path, function, name),
                2 => table.others[row] = table.node(other, stack, name),
                _ => {}
            }
        }
        for (id, kind) in values {
            let small = random.below(9) as i64;
            let value = match kind {
                _ if random.below(5) == 0 => continue,
                Kind::Int => Bits::int(small - 4),
                Kind::Double => Bits::double(random.below(1 << 20) as f64 / 3.0 - 1e5),
                Kind::Bool => Bits(small as u64 & 1),
                Kind::Text => random.one(&names),
                Kind::Uint | Kind::Address => Bits(random.below(1 << 30) >> small),
            };
            table.of_mut(id).column.set(row, value);
        }
    }
    table
}

const CLAUSES: [&str; 24] = [
    "SELECT * ",
    "SELECT path,count(),sum(n),sum(u),sum(d) ",
    "SELECT t,avg(n),avg(d),variance(n),variance(d) ",
    "AGGREGATE min(n),max(d),min(t),max(a),any(t),any(d),any(b) ",
    "AGGREGATE inclusive_sum(d),inclusive_min(n),inclusive_ratio(u,d),inclusive_scale(u,2) ",
    "AGGREGATE percent_total(u),inclusive_percent_total(u),ratio(d,n,3),scale_count(2) ",
    "GROUP BY path ",
    "GROUP BY function,t ",
    "GROUP BY stack ",
    "GROUP BY stack,b,function ",
    "GROUP BY n,b ",
    "GROUP BY d ",
    "GROUP BY none ",
    "WHERE n>0 ",
    "WHERE NOT t=x,d ",
    "WHERE function=~m|x OR stack LIKE %t% ",
    "WHERE step>0 AND NOT b ",
    "HAVING count>3 ",
    "ORDER BY t,n DESC ",
    "ORDER BY sum#u DESC,count ",
    "LIMIT 3 ",
    "LIMIT 100 ",
    "LET l=leaf(),r=ratio(u,n),n=truncate(n,3),s=sum(n,d,u) IF t SELECT l,s,count(),sum(r) ",
    "LET f=first(n,u),m=leaf(function) WHERE m=main,f>1 ",
];

#[test]
fn results_do_not_depend_on_batches() {
    let mut random = Random::new(5);
    let formats = ["json(separate-nested)", "tree", "expand"].map(parse_format);
    let formats = formats.map(|format| format.expect("a format"));
    let mut asked = 0;
    for _ in 0..250 {
        let rows = random.one(&[0, 1, 7, 300]);
        let table = table(&mut random, rows);
        let clauses = 1 + random.below(5);
        let text: String = (0..clauses).map(|_| random.one(&CLAUSES)).collect();
        let Ok(query) = parse(&text) else {
            continue;
        };
        asked += 1;
        let shown = |rows: usize| {
            let answer = run(&query, Stream::in_batches(table.clone(), rows));
            let mut out = Vec::new();
            for format in &formats {
                format::write(&mut out, &query, format, &answer).expect("memory takes it");
            }
            String::from_utf8(out).expect("text")
        };
        let whole = shown(usize::MAX);
        for rows in [1, 2 + random.index(5), 10 + random.index(100)] {
            assert_eq!(shown(rows), whole, "{text}, {rows} rows a batch");
        }
    }
    assert!(asked > 120, "{asked} good queries");
}
