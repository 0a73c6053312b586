//! A query as it was understood.

use std::collections::BTreeMap;

use regex::Regex;

use crate::lexer::Word;

/// A parsed query; [`crate::parse`] makes it.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// The table of `FROM`.
    pub from: Option<Word>,
    /// Derived attributes, in order.
    pub lets: Vec<Let>,
    /// What is shown; none for everything.
    pub select: Option<Vec<Item>>,
    /// Whether `*` is among what is shown.
    pub all: bool,
    /// Aggregations, those of SELECT among them.
    pub aggregations: Vec<Call<Aggregation>>,
    /// Attributes of GROUP BY; none if there is no such clause.
    pub group_by: Option<Vec<Word>>,
    /// Records that count.
    pub filter: Vec<Condition>,
    /// Results that are shown.
    pub having: Vec<Condition>,
    /// How results are ordered, first key first.
    pub order: Vec<Order>,
    /// How many results are shown at most.
    pub limit: Option<usize>,
    /// How they are shown.
    pub format: Option<Format>,
    /// Titles by attribute.
    pub aliases: BTreeMap<String, String>,
    /// Units by attribute.
    pub units: BTreeMap<String, String>,
}

impl Query {
    /// The title of an attribute.
    pub fn title<'a>(&'a self, name: &'a str) -> &'a str {
        self.aliases.get(name).map_or(name, |alias| alias)
    }

    /// Every attribute that the query names, with its place in it; none if it shows everything.
    pub fn names(&self) -> Option<Vec<&Word>> {
        let select = self.select.as_ref().filter(|_| !self.all)?;
        let mut names: Vec<&Word> = select.iter().filter_map(|item| item.attribute()).collect();
        names.extend(self.read_names());
        Some(names)
    }

    /// Whether its conditions leave nothing but memory with a label.
    pub fn is_labelled(&self) -> bool {
        self.filter.iter().any(Condition::needs_label)
    }

    /// Those that it computes with.
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

/// Something that is shown.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its attribute.
    pub name: Word,
    /// Whether that is the result of an operator.
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
    /// What it is called.
    pub target: Word,
    /// What it is.
    pub call: Call<Derivation>,
    /// The records that get it.
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

/// What operators are like: name, least and most arguments, and which of them is a factor.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    /// Its name.
    pub name: &'static str,
    /// Least arguments.
    pub least: usize,
    /// Most arguments.
    pub most: usize,
    /// The argument that is a number.
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

/// How the records of a group become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aggregation {
    /// Records, or the sum of their `count`.
    Count,
    /// The sum.
    Sum,
    /// The least.
    Min,
    /// The largest.
    Max,
    /// The mean, an integer of integers.
    Avg,
    /// The population's variance.
    Variance,
    /// The first there is.
    Any,
    /// The sum as a part of that of all records.
    PercentTotal,
    /// A sum divided by another one.
    Ratio,
    /// The sum times a factor.
    Scale,
    /// The count times a factor.
    ScaleCount,
    /// The sum over the path and all below it.
    InclusiveSum,
    /// The least of those.
    InclusiveMin,
    /// The largest of those.
    InclusiveMax,
    /// Their sum times a factor.
    InclusiveScale,
    /// Their sum divided by another one.
    InclusiveRatio,
    /// Their sum as a part of that of all records.
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

    /// Whether the result is in the unit of what it is computed from.
    pub const fn keeps_unit(self) -> bool {
        use Aggregation::{Any, Avg, InclusiveMax, InclusiveMin, InclusiveSum, Max, Min, Sum};
        matches!(self, Any | Avg | InclusiveMax | InclusiveMin | InclusiveSum | Max | Min | Sum)
    }

    /// Whether what is below a path counts for it.
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

    /// What its result's name begins with.
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
    /// The attribute of its result.
    pub fn result(&self) -> String {
        let names: Vec<&str> = self.arguments.iter().map(|word| word.text.as_str()).collect();
        format!("{}{}", self.operator.prefix(), names.join("/"))
    }
}

/// How a record gets an attribute more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Derivation {
    /// One divided by another.
    Ratio,
    /// One times a factor.
    Scale,
    /// One less what is left when divided by a factor.
    Truncate,
    /// The first that is there.
    First,
    /// The sum of those that are there.
    Sum,
    /// The innermost of a hierarchy, or of the path.
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

/// What a record must be.
#[derive(Clone, Debug)]
pub enum Condition {
    /// All of these.
    All(Vec<Condition>),
    /// One of these.
    Any(Vec<Condition>),
    /// Not this.
    Not(Box<Condition>),
    /// This.
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

    /// Whether nothing without a label holds it, as far as its form tells.
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

/// What values of an attribute must be.
#[derive(Clone, Debug)]
pub struct Test {
    /// The attribute; `path` is every nested one.
    pub attribute: Word,
    /// How a value must be; one is enough.
    pub relation: Relation,
}

/// How a value must be.
#[derive(Clone, Debug)]
pub enum Relation {
    /// There.
    Exists,
    /// Not there.
    Missing,
    /// This.
    Equal(String),
    /// Nowhere this.
    NotEqual(String),
    /// Less than this.
    Less(String),
    /// Not more than this.
    LessOrEqual(String),
    /// More than this.
    Greater(String),
    /// Not less than this.
    GreaterOrEqual(String),
    /// Matched by this.
    Matches(Regex),
    /// Nowhere matched by this.
    MatchesNot(Regex),
}

impl Relation {
    /// What NOT makes of it.
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

/// A key that results are ordered by.
#[derive(Clone, Debug)]
pub struct Order {
    /// Its attribute.
    pub attribute: Word,
    /// Which values come first.
    pub first: First,
}

/// Which values come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum First {
    /// The least.
    Least,
    /// The largest.
    Largest,
}

/// The argument of formats for people that has them show numbers in full.
pub const EXACT: &str = "exact";

/// How results are shown.
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
    /// Caliper's own records.
    Cali,
    /// Comma-separated values.
    Csv,
    /// `name=value,…` lines.
    Expand,
    /// An object for each record.
    Json,
    /// A list of rows, with their columns and a tree.
    JsonSplit,
    /// A table.
    Table,
    /// A tree of paths.
    Tree,
    /// Lines as the query says.
    Format,
}

impl Layout {
    /// Every formatter: name, arguments in order, and how many must be given.
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
