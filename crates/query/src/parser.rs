//! Parses queries.

use std::collections::BTreeMap;

use crate::conditions;
use crate::error::QueryError;
use crate::lexer::{Cursor, OF_ARGUMENTS, OF_UNITS, SEPARATORS, Word};
use crate::parser_state::{Parsed, Parser};
use crate::query::{
    Aggregation, Call, Derivation, First, Format, Item, Layout, Let, Order, Query, Signature,
};
use crate::services::{Service, Services};

/// Parses a query.
///
/// ```
/// let query = heaptide_query::parse("SELECT function,count() GROUP BY function").unwrap();
/// assert_eq!(query.aggregations[0].result(), "count");
/// let error = heaptide_query::parse("SELECT a GROUP a").unwrap_err();
/// assert_eq!(error.message, "expected BY after GROUP");
/// ```
///
/// Errors: the problem and its location.
pub fn parse(text: &str) -> Result<Query, QueryError> {
    let mut parser = Parser { cursor: Cursor::new(text), query: Query::default() };
    while let Some(next) = parser.cursor.peek() {
        if SEPARATORS.contains(next) {
            return parser.fail(parser.cursor.at, format!("expected a clause, got `{next}`"));
        }
        parser.clause()?;
    }
    Ok(parser.query)
}

/// Parses a formatter with its arguments, the part after FORMAT.
///
/// ```
/// use heaptide_query::query::Layout;
/// assert_eq!(heaptide_query::parse_format("json(pretty)").unwrap().layout, Layout::Json);
/// ```
///
/// Errors: the problem and its location.
pub fn parse_format(text: &str) -> Result<Format, QueryError> {
    let mut parser = Parser { cursor: Cursor::new(text), query: Query::default() };
    let format = parser.format()?;
    match parser.cursor.peek() {
        Some(next) => parser.fail(parser.cursor.at, format!("expected the end, got `{next}`")),
        None => Ok(format),
    }
}

impl Parser<'_> {
    fn clause(&mut self) -> Parsed<()> {
        let word = self.cursor.word(SEPARATORS);
        match &*word.keyword() {
            "select" => self.list(Parser::item),
            "aggregate" => self.list(Parser::aggregation),
            "group" => {
                self.by("GROUP")?;
                self.query.group_by.get_or_insert_default();
                self.list(Parser::key)
            }
            "where" => {
                let conditions = conditions::list(self)?;
                self.query.filter.extend(conditions);
                Ok(())
            }
            "having" => {
                let conditions = conditions::list(self)?;
                self.query.having.extend(conditions);
                Ok(())
            }
            "order" => {
                self.by("ORDER")?;
                self.list(Parser::order)
            }
            "let" => self.list(Parser::derived),
            "format" => {
                self.query.format = Some(self.format()?);
                Ok(())
            }
            "from" => {
                let table = self.word("a table after FROM", SEPARATORS)?;
                self.query.services = self.services(&table)?;
                self.query.from = Some(table);
                Ok(())
            }
            "limit" => self.limit(),
            _ => {
                let what = format!("expected a clause keyword, got `{}`", word.text);
                self.fail(word.at, what)
            }
        }
    }

    /// Parses the arguments of a table, if there are any.
    fn services(&mut self, table: &Word) -> Parsed<Option<Services>> {
        let at = self.cursor.at;
        if !self.cursor.takes("(") {
            return Ok(None);
        }
        if !table.text.eq_ignore_ascii_case("caliper") {
            return self.fail(at, format!("the table {} has no arguments", table.text));
        }
        let mut services = Services::none();
        while !self.cursor.takes(")") {
            let word = self.word("a service", SEPARATORS)?;
            let Some(service) = Service::named(&word.text) else {
                let names: Vec<&str> = Service::names().collect();
                let what = format!("unknown service `{}`; expected {}", word.text, names.join(" "));
                return self.fail(word.at, what);
            };
            services = services.with(service);
            self.cursor.takes(",");
        }
        Ok(Some(services))
    }

    fn by(&mut self, clause: &str) -> Parsed<()> {
        let word = self.cursor.next_word();
        if self.keyword("by") {
            Ok(())
        } else {
            self.fail(word.at, format!("expected BY after {clause}"))
        }
    }

    /// Parses one or more elements, separated by commas.
    fn list(&mut self, one: fn(&mut Self) -> Parsed<()>) -> Parsed<()> {
        one(self)?;
        while self.cursor.takes(",") {
            one(self)?;
        }
        Ok(())
    }

    fn key(&mut self) -> Parsed<()> {
        let word = self.word("an attribute to group by", SEPARATORS)?;
        self.query.group_by.get_or_insert_default().push(word);
        Ok(())
    }

    fn item(&mut self) -> Parsed<()> {
        let all = self.cursor.takes("*");
        if all {
            self.query.all = true;
            self.query.select.get_or_insert_default();
            return Ok(());
        }
        let word = self.word("an attribute or an operator", SEPARATORS)?;
        let (name, computed) = match self.cursor.peek() {
            Some('(') => {
                let call = self.call(&word, &Aggregation::ALL, "aggregation operator")?;
                let name = Word { text: call.result(), ..word };
                self.query.aggregations.push(call);
                (name, true)
            }
            _ => (word, false),
        };
        if self.keyword("as") {
            let alias = self.word("a title after AS", SEPARATORS)?.text;
            self.query.aliases.insert(name.text.clone(), alias);
        }
        if self.keyword("unit") {
            let unit = self.word("a unit after UNIT", OF_UNITS)?.text;
            self.query.units.insert(name.text.clone(), unit);
        }
        self.query.select.get_or_insert_default().push(Item { name, computed });
        Ok(())
    }

    fn aggregation(&mut self) -> Parsed<()> {
        let word = self.word("an aggregation operator", SEPARATORS)?;
        let call = self.call(&word, &Aggregation::ALL, "aggregation operator")?;
        self.query.aggregations.push(call);
        Ok(())
    }

    fn derived(&mut self) -> Parsed<()> {
        let target = self.word("an attribute to define", SEPARATORS)?;
        if !self.cursor.takes("=") {
            return self.fail(self.cursor.at, format!("expected `=` after `{}`", target.text));
        }
        let word = self.word("an operator", SEPARATORS)?;
        let call = self.call(&word, &Derivation::ALL, "operator")?;
        if self.query.lets.iter().any(|other| other.target.text == target.text) {
            return self.fail(target.at, format!("`{}` is defined twice", target.text));
        }
        let condition = if self.keyword("if") { Some(conditions::one(self)?) } else { None };
        self.query.lets.push(Let { target, call, condition });
        Ok(())
    }

    fn order(&mut self) -> Parsed<()> {
        let attribute = self.word("an attribute to order by", SEPARATORS)?;
        let first = if self.keyword("desc") {
            First::Largest
        } else {
            self.keyword("asc");
            First::Least
        };
        self.query.order.push(Order { attribute, first });
        Ok(())
    }

    fn limit(&mut self) -> Parsed<()> {
        let word = self.word("a number after LIMIT", SEPARATORS)?;
        let Ok(limit) = word.text.parse() else {
            return self.fail(word.at, format!("LIMIT takes a number, got `{}`", word.text));
        };
        self.query.limit = Some(limit);
        Ok(())
    }

    /// Parses the operator named by a word, and the arguments that follow.
    fn call<O: Copy>(
        &mut self,
        word: &Word,
        all: &[(O, Signature)],
        what: &str,
    ) -> Parsed<Call<O>> {
        let name = word.text.to_ascii_lowercase();
        let Some(&(operator, signature)) = all.iter().find(|(_, one)| one.name == name) else {
            let names: Vec<&str> = all.iter().map(|(_, one)| one.name).collect();
            let what = format!("unknown {what} `{}`; expected one of", word.text);
            return self.fail(word.at, format!("{what} {}", names.join(" ")));
        };
        let mut arguments = self.arguments()?;
        let count = arguments.len();
        let (least, most) = (signature.least, signature.most);
        if !(least..=most).contains(&count) {
            let takes = match (least, most) {
                (a, b) if a == b => a.to_string(),
                (a, b) => format!("{a} to {b}"),
            };
            let plural = if most == 1 { "" } else { "s" };
            let what = format!("{} takes {takes} argument{plural}, got {count}", signature.name);
            return self.fail(word.at, what);
        }
        let factor = signature.factor.filter(|&at| at < count).map(|at| arguments.remove(at));
        let mut scale = 1.0;
        if let Some(word) = factor {
            match word.text.parse::<f64>() {
                Ok(number) if number.is_finite() => scale = number,
                _ => return self.fail(word.at, format!("expected a number, got `{}`", word.text)),
            }
        }
        Ok(Call { operator, arguments, scale })
    }

    /// Parses `(a, b, …)`; may be absent.
    fn arguments(&mut self) -> Parsed<Vec<Word>> {
        let mut arguments = Vec::new();
        if !self.cursor.takes("(") {
            return Ok(arguments);
        }
        loop {
            let word = self.cursor.word(OF_ARGUMENTS);
            if !word.is_empty() {
                arguments.push(word);
            }
            if self.cursor.takes(")") {
                return Ok(arguments);
            }
            if !self.cursor.takes(",") {
                return self.fail(self.cursor.at, "expected `)`");
            }
        }
    }

    fn format(&mut self) -> Parsed<Format> {
        let word = self.word("a formatter after FORMAT", SEPARATORS)?;
        let name = word.text.to_ascii_lowercase();
        let Some(&(layout, _, names, least)) = Layout::ALL.iter().find(|one| one.1 == name) else {
            let all: Vec<&str> = Layout::ALL.iter().map(|one| one.1).collect();
            let what = format!("unknown formatter `{}`; expected one of", word.text);
            return self.fail(word.at, format!("{what} {}", all.join(" ")));
        };
        let given = self.arguments()?;
        if given.len() < least || given.len() > names.len() {
            let what = format!("{name} takes {least} to {} arguments", names.len());
            return self.fail(word.at, format!("{what}, got {}", given.len()));
        }
        let mut arguments = BTreeMap::new();
        for (place, argument) in given.into_iter().enumerate() {
            let (key, value) = self.format_argument(&argument, names, place)?;
            arguments.insert(key, value);
        }
        Ok(Format { layout, arguments })
    }

    /// Parses an argument: `name=value`, a flag, or a positional value.
    fn format_argument(
        &self,
        argument: &Word,
        names: &[&'static str],
        place: usize,
    ) -> Parsed<(&'static str, String)> {
        let flag = names.iter().find(|name| **name == argument.text);
        let (key, value) = match (argument.equals, flag) {
            (Some(at), _) => {
                let (name, value) = argument.text.split_at(at);
                let Some(key) = names.iter().find(|key| **key == name) else {
                    let what = format!("unknown argument `{name}`; expected one of");
                    return self.fail(argument.at, format!("{what} {}", names.join(" ")));
                };
                (*key, value[1..].to_owned())
            }
            (None, Some(flag)) => (*flag, "true".to_owned()),
            (None, None) => (names[place], argument.text.clone()),
        };
        if key == "column-width" && value.parse::<i32>().is_err() {
            return self.fail(argument.at, format!("column-width takes a number, got `{value}`"));
        }
        Ok((key, value))
    }
}
