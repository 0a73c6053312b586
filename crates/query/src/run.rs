//! A query's answer: from table to table.

use crate::aggregate::aggregate;
use crate::derive::derive;
use crate::filter;
use crate::order::order;
use crate::query::Query;
use crate::table::Table;

/// Answers a query: derives attributes, leaves out records, joins the rest by what GROUP BY names,
/// and orders what comes out.
///
/// ```
/// use heaptide_query::{cali, parse, run, table::Table};
/// let mut table = Table::default();
/// let lines = "__rec=node,id=20,attr=10,data=2112,parent=2\n\
///              __rec=node,id=21,attr=8,data=size,parent=20\n\
///              __rec=ctx,attr=21,data=40\n__rec=ctx,attr=21,data=2\n";
/// cali::read(lines.as_bytes(), &mut table).unwrap();
/// let answer = run(&parse("SELECT sum(size)").unwrap(), table);
/// let sum = answer.named("sum#size").unwrap();
/// assert_eq!(answer.text(0, sum).as_deref(), Some("42"));
/// ```
pub fn run(query: &Query, mut table: Table) -> Table {
    query.lets.iter().for_each(|one| derive(&mut table, one));
    let rows = filter::rows(&query.filter, &table);
    let mut answer = if query.aggregations.is_empty() {
        table.keep(&rows);
        table
    } else {
        aggregate(query, table, &rows)
    };
    if !query.having.is_empty() {
        let rows = filter::rows(&query.having, &answer);
        answer.keep(&rows);
    }
    order(query, &mut answer);
    answer.settle_paths();
    answer
}
