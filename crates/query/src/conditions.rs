//! Parses conditions: `a`, `a=v`, `a<v`, `NOT …`, and beyond CalQL `OR`, `AND`, parentheses, `!=`,
//! `<=`, `>=`, LIKE and `=~`.

use regex::RegexBuilder;

use crate::lexer::{SEPARATORS, Word};
use crate::parser_state::{Parsed, Parser};
use crate::query::{Condition, Relation, Test};

/// The deepest nesting of parentheses and NOTs.
const DEEPEST: usize = 100;
/// The most bytes of a compiled regex.
const LARGEST: usize = 1 << 20;

/// Parses conditions separated by commas, all of which must hold.
pub(crate) fn list(parser: &mut Parser) -> Parsed<Vec<Condition>> {
    let mut all = vec![either(parser, 0)?];
    while parser.cursor.takes(",") {
        all.push(either(parser, 0)?);
    }
    Ok(all)
}

/// Parses one condition.
pub(crate) fn one(parser: &mut Parser) -> Parsed<Condition> {
    either(parser, 0)
}

fn either(parser: &mut Parser, depth: usize) -> Parsed<Condition> {
    let mut parts = vec![both(parser, depth)?];
    while parser.keyword("or") {
        parts.push(both(parser, depth)?);
    }
    Ok(one_of(parts, Condition::Any))
}

fn both(parser: &mut Parser, depth: usize) -> Parsed<Condition> {
    let mut parts = vec![term(parser, depth)?];
    while parser.keyword("and") {
        parts.push(term(parser, depth)?);
    }
    Ok(one_of(parts, Condition::All))
}

fn one_of(mut parts: Vec<Condition>, many: fn(Vec<Condition>) -> Condition) -> Condition {
    match parts.len() {
        1 => parts.swap_remove(0),
        _ => many(parts),
    }
}

fn term(parser: &mut Parser, depth: usize) -> Parsed<Condition> {
    if depth > DEEPEST {
        return parser.fail(parser.cursor.at, "conditions nested too deeply");
    }
    if parser.keyword("not") {
        return Ok(match term(parser, depth + 1)? {
            Condition::Test(Test { attribute, relation }) => {
                Condition::Test(Test { attribute, relation: relation.negated() })
            }
            other => Condition::Not(Box::new(other)),
        });
    }
    if parser.cursor.takes("(") {
        let inside = one_of(group(parser, depth + 1)?, Condition::All);
        return if parser.cursor.takes(")") {
            Ok(inside)
        } else {
            parser.fail(parser.cursor.at, "expected `)`")
        };
    }
    let mut attribute = parser.word("a condition", SEPARATORS)?;
    // In `a!=v`, the word ends with `!`, because names may contain it.
    let differs = !attribute.quoted && attribute.text.ends_with('!') && attribute.text.len() > 1;
    let differs = differs && parser.cursor.takes("=");
    if differs {
        attribute.text.pop();
        return Ok(test(attribute, Relation::NotEqual(value(parser, "!=")?)));
    }
    let relation = relation(parser)?;
    Ok(test(attribute, relation))
}

fn group(parser: &mut Parser, depth: usize) -> Parsed<Vec<Condition>> {
    let mut all = vec![either(parser, depth)?];
    while parser.cursor.takes(",") {
        all.push(either(parser, depth)?);
    }
    Ok(all)
}

fn test(attribute: Word, relation: Relation) -> Condition {
    Condition::Test(Test { attribute, relation })
}

/// Parses the part after the attribute.
fn relation(parser: &mut Parser) -> Parsed<Relation> {
    type Sign = (&'static str, fn(String) -> Relation);
    const SIGNS: [Sign; 6] = [
        ("!=", Relation::NotEqual),
        ("<=", Relation::LessOrEqual),
        (">=", Relation::GreaterOrEqual),
        ("=", Relation::Equal),
        ("<", Relation::Less),
        (">", Relation::Greater),
    ];
    if parser.cursor.takes("=~") {
        let word = parser.word("a regular expression after `=~`", SEPARATORS)?;
        return regex(parser, &word, &word.text);
    }
    for (sign, relation) in SIGNS {
        if parser.cursor.takes(sign) {
            return Ok(relation(value(parser, sign)?));
        }
    }
    if parser.keyword("like") {
        let word = parser.word("a pattern after LIKE", SEPARATORS)?;
        return regex(parser, &word, &like(&word.text));
    }
    Ok(Relation::Exists)
}

fn value(parser: &mut Parser, sign: &str) -> Parsed<String> {
    Ok(parser.word(&format!("a value after `{sign}`"), SEPARATORS)?.text)
}

fn regex(parser: &Parser, word: &Word, text: &str) -> Parsed<Relation> {
    match RegexBuilder::new(text).size_limit(LARGEST).build() {
        Ok(regex) => Ok(Relation::Matches(regex)),
        Err(error) => {
            let why = error.to_string();
            let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
            parser.fail(word.at, format!("invalid regular expression `{text}`: {why}"))
        }
    }
}

/// Converts an SQL pattern to a regular expression: `%` is any text, `_` any character.
fn like(pattern: &str) -> String {
    let mut regex = "(?s)^".to_owned();
    for c in pattern.chars() {
        match c {
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            c => regex.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    regex.push('$');
    regex
}
