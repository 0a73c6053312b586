//! The parsed form of a query.

use std::collections::BTreeMap;

use regex::Regex;

use crate::lexer::Word;
use crate::services::Services;

/// A parsed query; see [`crate::parse`].
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// The table of `FROM`.
    pub from: Option<Word>,
    /// The services in the arguments of the table; `None` without arguments.
    pub services: Option<Services>,
    /// Derived attributes, in order.
    pub lets: Vec<Let>,
    /// The columns to show; `None` for all.
    pub select: Option<Vec<Item>>,
    /// Whether SELECT contains `*`.
    pub all: bool,
    /// Aggregations, including those of SELECT.
    pub aggregations: Vec<Call<Aggregation>>,
    /// Attributes of GROUP BY; `None` without the clause.
    pub group_by: Option<Vec<Word>>,
    /// Conditions on records.
    pub filter: Vec<Condition>,
    /// Conditions on results.
    pub having: Vec<Condition>,
    /// Sort keys of results, most significant first.
    pub order: Vec<Order>,
    /// The most results to show.
    pub limit: Option<usize>,
    /// The output format.
    pub format: Option<Format>,
    /// Titles by attribute.
    pub aliases: BTreeMap<String, String>,
    /// Units by attribute.
    pub units: BTreeMap<String, String>,
}

impl Query {
    /// Returns the title of an attribute.
    pub fn title<'a>(&'a self, name: &'a str) -> &'a str {
        self.aliases.get(name).map_or(name, |alias| alias)
    }

    /// Returns all attributes that the query uses, with their locations; `None` if it shows all.
    pub fn names(&self) -> Option<Vec<&Word>> {
        let select = self.select.as_ref().filter(|_| !self.all)?;
        let mut names: Vec<&Word> = select.iter().filter_map(|item| item.attribute()).collect();
        names.extend(self.read_names());
        Some(names)
    }

    /// Returns whether its conditions admit only labelled memory.
    pub fn is_labelled(&self) -> bool {
        self.filter.iter().any(Condition::needs_label)
    }

    /// Returns the attributes that it reads for computations.
    pub fn read_names(&self) -> Vec<&Word> {
        let mut names: Vec<&Word> = self.group_by.iter().flatten().collect();
        for derived in &self.lets {
            names.extend(derived.call.attributes());
            derived.condition.iter().for_each(|condition| condition.names(&mut names));
        }
        self.aggregations.iter().for_each(|call| names.extend(call.attributes()));
        let conditions = self.filter.iter().chain(&self.having);
        conditions.for_each(|condition| condition.names(&mut names));
        names.extend(self.order.iter().map(|order| &order.attribute));
        names
    }
}

/// An element of SELECT.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its attribute.
    pub name: Word,
    /// Whether the attribute is the result of an operator.
    pub computed: bool,
}

impl Item {
    fn attribute(&self) -> Option<&Word> {
        (!self.computed).then_some(&self.name)
    }
}

/// A derived attribute.
#[derive(Clone, Debug)]
pub struct Let {
    /// The name of the new attribute.
    pub target: Word,
    /// Its definition.
    pub call: Call<Derivation>,
    /// The records that receive it.
    pub condition: Option<Condition>,
}

/// An operator and its arguments.
#[derive(Clone, Debug)]
pub struct Call<Operator> {
    /// The operator.
    pub operator: Operator,
    /// Its arguments that are attributes.
    pub arguments: Vec<Word>,
    /// Its factor.
    pub scale: f64,
}

impl<Operator> Call<Operator> {
    fn attributes(&self) -> impl Iterator<Item = &Word> {
        self.arguments.iter()
    }
}

/// The name of an operator, its minimal and maximal number of arguments, and which is a factor.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    /// Its name.
    pub name: &'static str,
    /// Minimal number of arguments.
    pub least: usize,
    /// Maximal number of arguments.
    pub most: usize,
    /// The index of the numeric argument.
    pub factor: Option<usize>,
}

const fn signature(
    name: &'static str,
    least: usize,
    most: usize,
    factor: Option<usize>,
) -> Signature {
    Signature { name, least, most, factor }
}

/// An operator that merges the records of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aggregation {
    /// The number of records, or the sum of their `count`.
    Count,
    /// The sum.
    Sum,
    /// The minimum.
    Min,
    /// The maximum.
    Max,
    /// The mean; an integer for integers.
    Avg,
    /// The population variance.
    Variance,
    /// The first value.
    Any,
    /// The sum as a percentage of the sum of all records.
    PercentTotal,
    /// The ratio of two sums.
    Ratio,
    /// The sum times a factor.
    Scale,
    /// The count times a factor.
    ScaleCount,
    /// The sum over the path and everything below it.
    InclusiveSum,
    /// The minimum over the path and everything below it.
    InclusiveMin,
    /// The maximum over the path and everything below it.
    InclusiveMax,
    /// The inclusive sum times a factor.
    InclusiveScale,
    /// The ratio of two inclusive sums.
    InclusiveRatio,
    /// The inclusive sum as a percentage of the sum of all records.
    InclusivePercentTotal,
}

impl Aggregation {
    /// Every operator and its signature.
    pub const ALL: [(Aggregation, Signature); 17] = [
        (Aggregation::Count, signature("count", 0, 0, None)),
        (Aggregation::Sum, signature("sum", 1, 1, None)),
        (Aggregation::Min, signature("min", 1, 1, None)),
        (Aggregation::Max, signature("max", 1, 1, None)),
        (Aggregation::Avg, signature("avg", 1, 1, None)),
        (Aggregation::Variance, signature("variance", 1, 1, None)),
        (Aggregation::Any, signature("any", 1, 1, None)),
        (Aggregation::PercentTotal, signature("percent_total", 1, 1, None)),
        (Aggregation::Ratio, signature("ratio", 2, 3, Some(2))),
        (Aggregation::Scale, signature("scale", 2, 2, Some(1))),
        (Aggregation::ScaleCount, signature("scale_count", 1, 1, Some(0))),
        (Aggregation::InclusiveSum, signature("inclusive_sum", 1, 1, None)),
        (Aggregation::InclusiveMin, signature("inclusive_min", 1, 1, None)),
        (Aggregation::InclusiveMax, signature("inclusive_max", 1, 1, None)),
        (Aggregation::InclusiveScale, signature("inclusive_scale", 2, 2, Some(1))),
        (Aggregation::InclusiveRatio, signature("inclusive_ratio", 2, 3, Some(2))),
        (Aggregation::InclusivePercentTotal, signature("inclusive_percent_total", 1, 1, None)),
    ];

    /// Returns whether the result has the unit of its operand.
    pub const fn keeps_unit(self) -> bool {
        use Aggregation::{Any, Avg, InclusiveMax, InclusiveMin, InclusiveSum, Max, Min, Sum};
        matches!(self, Any | Avg | InclusiveMax | InclusiveMin | InclusiveSum | Max | Min | Sum)
    }

    /// Returns whether it includes values below a path.
    pub const fn is_inclusive(self) -> bool {
        matches!(
            self,
            Aggregation::InclusiveSum
                | Aggregation::InclusiveMin
                | Aggregation::InclusiveMax
                | Aggregation::InclusiveScale
                | Aggregation::InclusiveRatio
                | Aggregation::InclusivePercentTotal
        )
    }

    /// Returns the prefix of its result's name.
    pub const fn prefix(self) -> &'static str {
        match self {
            Aggregation::Count => "count",
            Aggregation::Sum => "sum#",
            Aggregation::Min => "min#",
            Aggregation::Max => "max#",
            Aggregation::Avg => "avg#",
            Aggregation::Variance => "variance#",
            Aggregation::Any => "any#",
            Aggregation::PercentTotal => "percent_total#",
            Aggregation::Ratio => "ratio#",
            Aggregation::Scale => "scale#",
            Aggregation::ScaleCount => "scount",
            Aggregation::InclusiveSum => "inclusive#",
            Aggregation::InclusiveMin => "imin#",
            Aggregation::InclusiveMax => "imax#",
            Aggregation::InclusiveScale => "iscale#",
            Aggregation::InclusiveRatio => "iratio#",
            Aggregation::InclusivePercentTotal => "ipercent_total#",
        }
    }
}

impl Call<Aggregation> {
    /// Returns the attribute of its result.
    pub fn result(&self) -> String {
        let names: Vec<&str> = self.arguments.iter().map(|word| word.text.as_str()).collect();
        format!("{}{}", self.operator.prefix(), names.join("/"))
    }
}

/// An operator that computes an attribute of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Derivation {
    /// The ratio of two attributes.
    Ratio,
    /// An attribute times a factor.
    Scale,
    /// An attribute rounded toward zero to a multiple of a number.
    Truncate,
    /// The first attribute that has a value.
    First,
    /// The sum of the attributes that have values.
    Sum,
    /// The innermost value of a hierarchy, or of the path.
    Leaf,
}

impl Derivation {
    /// Every operator and its signature.
    pub const ALL: [(Derivation, Signature); 6] = [
        (Derivation::Ratio, signature("ratio", 2, 3, Some(2))),
        (Derivation::Scale, signature("scale", 2, 2, Some(1))),
        (Derivation::Truncate, signature("truncate", 1, 2, Some(1))),
        (Derivation::First, signature("first", 1, 8, None)),
        (Derivation::Sum, signature("sum", 1, 8, None)),
        (Derivation::Leaf, signature("leaf", 0, 1, None)),
    ];
}

/// A condition on records.
#[derive(Clone, Debug)]
pub enum Condition {
    /// All of these hold.
    All(Vec<Condition>),
    /// At least one of these holds.
    Any(Vec<Condition>),
    /// This does not hold.
    Not(Box<Condition>),
    /// A test of an attribute.
    Test(Test),
}

impl Condition {
    fn names<'a>(&'a self, names: &mut Vec<&'a Word>) {
        match self {
            Condition::All(parts) | Condition::Any(parts) => {
                parts.iter().for_each(|part| part.names(names));
            }
            Condition::Not(part) => part.names(names),
            Condition::Test(test) => names.push(&test.attribute),
        }
    }

    /// Returns whether unlabelled memory cannot satisfy it, judging by its form.
    fn needs_label(&self) -> bool {
        match self {
            Condition::All(parts) => parts.iter().any(Condition::needs_label),
            Condition::Any(parts) => parts.iter().all(Condition::needs_label),
            Condition::Not(_) => false,
            Condition::Test(test) => {
                let is_of_value = matches!(
                    test.relation,
                    Relation::Exists | Relation::Equal(_) | Relation::Matches(_)
                );
                test.attribute.text == "label" && is_of_value
            }
        }
    }
}

/// A test of an attribute's values.
#[derive(Clone, Debug)]
pub struct Test {
    /// The attribute; `path` means every nested one.
    pub attribute: Word,
    /// The relation that at least one value must satisfy.
    pub relation: Relation,
}

/// A relation of a value.
#[derive(Clone, Debug)]
pub enum Relation {
    /// It exists.
    Exists,
    /// It does not exist.
    Missing,
    /// Equal to this.
    Equal(String),
    /// No value is equal to this.
    NotEqual(String),
    /// Less than this.
    Less(String),
    /// At most this.
    LessOrEqual(String),
    /// Greater than this.
    Greater(String),
    /// At least this.
    GreaterOrEqual(String),
    /// Matched by this regex.
    Matches(Regex),
    /// No value is matched by this regex.
    MatchesNot(Regex),
}

impl Relation {
    /// Returns its negation.
    pub fn negated(self) -> Relation {
        match self {
            Relation::Exists => Relation::Missing,
            Relation::Missing => Relation::Exists,
            Relation::Equal(value) => Relation::NotEqual(value),
            Relation::NotEqual(value) => Relation::Equal(value),
            Relation::Less(value) => Relation::GreaterOrEqual(value),
            Relation::LessOrEqual(value) => Relation::Greater(value),
            Relation::Greater(value) => Relation::LessOrEqual(value),
            Relation::GreaterOrEqual(value) => Relation::Less(value),
            Relation::Matches(regex) => Relation::MatchesNot(regex),
            Relation::MatchesNot(regex) => Relation::Matches(regex),
        }
    }
}

/// A sort key of results.
#[derive(Clone, Debug)]
pub struct Order {
    /// Its attribute.
    pub attribute: Word,
    /// Ascending or descending.
    pub first: First,
}

/// The order of values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum First {
    /// Ascending.
    Least,
    /// Descending.
    Largest,
}

/// The argument of formats for people that shows all digits of numbers.
pub const EXACT: &str = "exact";

/// How results are formatted.
#[derive(Clone, Debug)]
pub struct Format {
    /// The formatter.
    pub layout: Layout,
    /// Its arguments; flags are `true`.
    pub arguments: BTreeMap<&'static str, String>,
}

/// The formatters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Caliper's record format.
    Cali,
    /// Comma-separated values.
    Csv,
    /// `name=value,…` lines.
    Expand,
    /// An object for each record.
    Json,
    /// A list of rows, with columns and a tree.
    JsonSplit,
    /// A table.
    Table,
    /// A tree of paths.
    Tree,
    /// Lines with a template from the query.
    Format,
}

impl Layout {
    /// Every formatter: name, arguments in order, and the number of required ones.
    pub const ALL: [(Layout, &'static str, &'static [&'static str], usize); 8] = [
        (Layout::Cali, "cali", &[], 0),
        (
            Layout::Json,
            "json",
            &["object", "pretty", "quote-all", "separate-nested", "records", "split"],
            0,
        ),
        (Layout::Expand, "expand", &[], 0),
        (Layout::Format, "format", &["format", "title"], 1),
        (Layout::Table, "table", &["column-width", "print-globals", EXACT], 0),
        (Layout::Tree, "tree", &["path-attributes", "column-width", "print-globals", EXACT], 0),
        (Layout::JsonSplit, "json-split", &[], 0),
        (Layout::Csv, "csv", &[], 0),
    ];
}
