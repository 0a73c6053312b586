//! The grammar: input that Caliper's parser accepts and rejects, extensions of it, and error
//! locations.

use heaptide_query::query::{First, Layout, Query};
use heaptide_query::{Word, parse};

fn good(text: &str) -> Query {
    parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Checks the message of an error, and the text at its caret.
#[track_caller]
fn bad(text: &str, message: &str, at: &str) {
    let error = parse(text).expect_err(text);
    assert!(error.message.contains(message), "{text}: {error}");
    let shown = error.to_string();
    let lines: Vec<&str> = shown.lines().collect();
    let column = lines[2].len() - 1;
    let rest: String = lines[1].chars().skip(column).collect();
    assert!(rest.starts_with(at) && (!at.is_empty() || rest.is_empty()), "{error}");
}

fn texts(words: &[Word]) -> Vec<&str> {
    words.iter().map(|word| word.text.as_str()).collect()
}

fn selected(query: &Query) -> Vec<&str> {
    let items = query.select.iter().flatten();
    items.map(|item| item.name.text.as_str()).collect()
}

#[test]
fn select() {
    let query = good("  SELECT a, a.a ,b,c ");
    assert_eq!((selected(&query), query.all), (vec!["a", "a.a", "b", "c"], false));
    let query = good("select aa,count(),sum(bb)");
    assert_eq!(selected(&query), ["aa", "count", "sum#bb"]);
    let query = good("SELECT count(),* ");
    assert!(query.all && query.aggregations.len() == 1);
}

#[test]
fn repeated_lists_are_joined_and_the_last_format_applies() {
    let query = good("select a format table where b select c where d format expand group by a");
    assert_eq!(selected(&query), ["a", "c"]);
    assert_eq!(query.filter.len(), 2);
    assert_eq!(query.format.map(|format| format.layout), Some(Layout::Expand));
}

#[test]
fn titles_and_units() {
    let query = good("select x,ratio(a,b,1e-6) As \"Read BW\" uNiT \"MB/s\" format table");
    assert_eq!(query.aliases["ratio#a/b"], "Read BW");
    assert_eq!(query.units["ratio#a/b"], "MB/s");
    let query =
        good("select x,scale(a,1e-6) unit sec, percent_total(a) as \"my (%)\" format table");
    assert_eq!(query.units["scale#a"], "sec");
    assert_eq!(query.aliases["percent_total#a"], "my (%)");
    bad("select a unit b as c", "expected a clause keyword, got `as`", "as c");
    bad("select a as b as c", "expected a clause keyword, got `as`", "as c");
}

#[test]
fn group_and_order() {
    let query =
        good("GROUP   By   aa,b, ccc order by x, y desc , z   asc, \"b with space\" limit 3");
    assert_eq!(texts(&query.group_by.unwrap_or_default()), ["aa", "b", "ccc"]);
    let order: Vec<_> = query.order.iter().map(|o| (o.attribute.text.as_str(), o.first)).collect();
    let (up, down) = (First::Least, First::Largest);
    assert_eq!(order, [("x", up), ("y", down), ("z", up), ("b with space", up)]);
    assert_eq!(query.limit, Some(3));
}

#[test]
fn operators() {
    let query = good(" Aggregate SUM ( aaaa ), Count(  ), Percent_Total ( a.b:c )");
    let names: Vec<String> = query.aggregations.iter().map(|call| call.result()).collect();
    assert_eq!(names, ["sum#aaaa", "count", "percent_total#a.b:c"]);
    let results = [
        ("count()", "count"),
        ("sum(a)", "sum#a"),
        ("min(a)", "min#a"),
        ("max(a)", "max#a"),
        ("avg(a)", "avg#a"),
        ("variance(a)", "variance#a"),
        ("any(a)", "any#a"),
        ("percent_total(a)", "percent_total#a"),
        ("ratio(a,b)", "ratio#a/b"),
        ("scale(a,2)", "scale#a"),
        ("scale_count(2)", "scount"),
        ("inclusive_sum(a)", "inclusive#a"),
        ("inclusive_min(a)", "imin#a"),
        ("inclusive_max(a)", "imax#a"),
        ("inclusive_scale(a,2)", "iscale#a"),
        ("inclusive_ratio(a,b)", "iratio#a/b"),
        ("inclusive_percent_total(a)", "ipercent_total#a"),
    ];
    for (call, name) in results {
        assert_eq!(selected(&good(&format!("SELECT {call}"))), [name]);
    }
}

#[test]
fn formats() {
    let arguments = |text: &str| good(text).format.expect("a format").arguments;
    assert_eq!(arguments("FORMAT tree(\"a,bb,ccc\")")["path-attributes"], "a,bb,ccc");
    assert_eq!(arguments("FORMAT tree(column-width=42)")["column-width"], "42");
    assert_eq!(arguments("format JSON(object, pretty)").len(), 2);
    assert_eq!(arguments("format format(\"%a=b%\",title=\"x y\")")["format"], "%a=b%");
    bad("FORMAT tree(a,1,c,d,e)", "takes 0 to 4 arguments, got 5", "tree");
    bad("FORMAT tree(glorb=glurb)", "unknown argument `glorb`", "glorb");
    bad("FORMAT table(x)", "column-width takes a number", "x");
    bad("FORMAT format", "takes 1 to 2", "format");
    bad("FORMAT nice", "unknown formatter `nice`; expected one of cali", "nice");
}

#[test]
fn conditions() {
    let query = good("where a,bbb<17, NOT cc , dd = 5, not eee = foo, ff>42");
    assert_eq!(query.filter.len(), 6);
    let query = good(r#"where d="foo,"\ bar format table"#);
    assert!(format!("{:?}", query.filter[0]).contains(r#"Equal("foo, bar")"#));
    assert!(query.format.is_some());
    bad("where a=", "expected a value after `=`", "");
    bad("where aa=bb,NOT", "expected a condition", "");
    bad("where a =~ \"(\"", "invalid regular expression", "\"(\"");
    bad("where (a or b", "expected `)`", "");
    bad("where a b", "expected a clause keyword, got `b`", "b");
}

#[test]
fn errors_have_a_location() {
    bad("select bla,", "expected an attribute or an operator", "");
    bad("select ", "expected an attribute or an operator", "");
    bad("select sum()", "sum takes 1 argument, got 0", "sum");
    bad("select count(a)", "count takes 0 arguments, got 1", "count");
    bad("select sum(a,b,c)", "sum takes 1 argument, got 3", "sum");
    bad("select summ(a)", "unknown aggregation operator `summ`", "summ");
    bad("aggregate sum(aa), count(", "expected `)`", "");
    bad("aggregate sum(aa),", "expected an aggregation operator", "");
    bad("select scale(a,b)", "expected a number, got `b`", "b)");
    bad("select a group a", "expected BY after GROUP", "a");
    bad("select a bogus", "expected a clause keyword, got `bogus`", "bogus");
    bad("select a)", "expected a clause, got `)`", ")");
    bad("let a=scale(x,10.0), a =scale(y,5)", "`a` is defined twice", "a =");
    bad("let a scale(x)", "expected `=` after `a`", "scale");
    bad("let a=nope(x)", "unknown operator `nope`", "nope");
    bad("limit x", "LIMIT takes a number", "x");
    bad("select a\nwhere\nb=", "expected a value", "");
}

#[test]
fn it_does_not_panic_on_any_text() {
    const WORDS: [&str; 36] = [
        "select",
        "count()",
        "sum(",
        "a",
        "b",
        ",",
        "where",
        "not",
        "=",
        "<",
        ">",
        "=~",
        "like",
        "or",
        "and",
        "(",
        ")",
        "group",
        "by",
        "order",
        "desc",
        "format",
        "table",
        "tree(",
        "json(pretty)",
        "let",
        "ratio(a,b)",
        "limit",
        "3",
        "\"",
        "\\",
        "ü",
        "\n",
        "from",
        "having",
        "*",
    ];
    let mut state = 7u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    for _ in 0..20_000 {
        let count = next(14);
        let space = ["", " "];
        let text: String =
            (0..count).map(|_| format!("{}{}", WORDS[next(WORDS.len())], space[next(2)])).collect();
        if let Err(error) = parse(&text) {
            assert!(!error.to_string().is_empty());
        }
    }
    let deep = format!("where {}a{}", "(".repeat(5000), ")".repeat(5000));
    assert!(parse(&deep).is_err());
    assert!(parse(&format!("where {}a", "not ".repeat(5000))).is_err());
}
