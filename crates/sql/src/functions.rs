//! SQL functions for recordings.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, ListArray, StringViewArray,
};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::DataFusionError;
use datafusion::common::cast::{as_list_array, as_struct_array};
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use datafusion::prelude::Expr;
use heaptide_render::shared::quantity;
use regex::Regex;
use rustc_hash::FxHashMap;

use crate::columns::{TEXT, list, scope_fields};

/// A function and its documentation.
pub struct Function {
    /// Its name and arguments.
    pub call: &'static str,
    /// A description of its result.
    pub says: &'static str,
    arguments: fn() -> Vec<DataType>,
    result: DataType,
    body: fn(&[ArrayRef]) -> Result<ArrayRef, DataFusionError>,
}

/// The function that searches a stack.
const STACK_CONTAINS: &str = "stack_contains(stack, regex)";

/// All functions.
pub const FUNCTIONS: [Function; 6] = [
    Function {
        call: STACK_CONTAINS,
        says: "true if a function of the stack matches",
        arguments: || vec![list(TEXT), TEXT],
        result: DataType::Boolean,
        body: stack_contains,
    },
    Function {
        call: "frame(stack, n)",
        says: "n-th function: 0 is the innermost, 1 its caller, -1 the outermost",
        arguments: || vec![list(TEXT), DataType::Int64],
        result: TEXT,
        body: frame,
    },
    Function {
        call: "stack_text(stack)",
        says: "functions from the outermost, separated by `;`, as in folded stacks",
        arguments: || vec![list(TEXT)],
        result: TEXT,
        body: stack_text,
    },
    Function {
        call: "scope(scopes, attribute)",
        says: "the value of the innermost scope with this attribute, such as 'region'",
        arguments: || vec![list(DataType::Struct(scope_fields())), TEXT],
        result: TEXT,
        body: scope,
    },
    Function {
        call: "human_bytes(n)",
        says: "formatted bytes: 1.50 MiB",
        arguments: || vec![DataType::Int64],
        result: TEXT,
        body: |arguments| Ok(human(arguments, quantity::bytes)),
    },
    Function {
        call: "human_time(ns)",
        says: "formatted nanoseconds: 1.50 ms",
        arguments: || vec![DataType::Int64],
        result: TEXT,
        body: |arguments| Ok(human(arguments, quantity::duration)),
    },
];

impl Function {
    /// Returns its name.
    pub fn name(&self) -> &'static str {
        self.call.split('(').next().unwrap_or(self.call)
    }

    /// Converts it to a function of the engine.
    pub fn udf(&self) -> ScalarUDF {
        let body = self.body;
        let call = move |values: &[ColumnarValue]| {
            let arrays = ColumnarValue::values_to_arrays(values)?;
            Ok(ColumnarValue::Array(body(&arrays)?))
        };
        let (arguments, result) = ((self.arguments)(), self.result.clone());
        create_udf(self.name(), arguments, result, Volatility::Immutable, Arc::new(call))
    }
}

/// Returns the texts in a row of lists; `None` if the list is NULL.
fn row(lists: &ListArray, row: usize) -> Option<ArrayRef> {
    lists.is_valid(row).then(|| lists.value(row))
}

fn stack_contains(arguments: &[ArrayRef]) -> Result<ArrayRef, DataFusionError> {
    let (stacks, patterns) = (as_list_array(&arguments[0])?, arguments[1].as_string_view());
    let (names, offsets) = (stacks.values().as_string_view(), stacks.value_offsets());
    let mut regexes: FxHashMap<&str, Regex> = FxHashMap::default();
    // Stacks share few functions, so each distinct one, identified by its view, is matched once.
    let mut known: FxHashMap<(&str, u128), bool> = FxHashMap::default();
    let mut found = Vec::with_capacity(stacks.len());
    for at in 0..stacks.len() {
        if !stacks.is_valid(at) || !patterns.is_valid(at) {
            found.push(None);
            continue;
        }
        let pattern = patterns.value(at);
        let regex = match regexes.entry(pattern) {
            Entry::Occupied(of) => of.into_mut(),
            Entry::Vacant(of) => of.insert(regex(pattern)?),
        };
        let mut functions = offsets[at] as usize..offsets[at + 1] as usize;
        let matches = functions.any(|i| {
            names.is_valid(i)
                && *known
                    .entry((pattern, names.views()[i]))
                    .or_insert_with(|| regex.is_match(names.value(i)))
        });
        found.push(Some(matches));
    }
    Ok(Arc::new(BooleanArray::from(found)))
}

/// Returns the column and the regex of a condition that is a call of `stack_contains` for a column,
/// with a constant.
pub fn stack_condition(condition: &Expr) -> Option<(&str, Regex)> {
    let Expr::ScalarFunction(call) = condition else {
        return None;
    };
    match &*call.args {
        [Expr::Column(column), Expr::Literal(pattern, _)]
            if STACK_CONTAINS.split('(').next() == Some(call.name()) =>
        {
            // An invalid regex is reported when the condition is evaluated.
            Some((column.name(), Regex::new(pattern.try_as_str()??).ok()?))
        }
        _ => None,
    }
}

fn regex(pattern: &str) -> Result<Regex, DataFusionError> {
    Regex::new(pattern).map_err(|error| {
        let why = error.to_string();
        let why = why.lines().last().unwrap_or("").trim_start_matches("error: ").to_owned();
        DataFusionError::Execution(format!("stack_contains: regex `{pattern}`: {why}"))
    })
}

fn frame(arguments: &[ArrayRef]) -> Result<ArrayRef, DataFusionError> {
    let stacks = as_list_array(&arguments[0])?;
    let numbers = arguments[1].as_primitive::<Int64Type>();
    let one = |at: usize| {
        let stack = row(stacks, at).filter(|_| numbers.is_valid(at))?;
        let (number, length) = (numbers.value(at), stack.len() as i64);
        let place = if number < 0 { -1 - number } else { length - 1 - number };
        let place = usize::try_from(place).ok().filter(|&place| place < stack.len())?;
        let stack = stack.as_string_view();
        stack.is_valid(place).then(|| stack.value(place).to_owned())
    };
    Ok(Arc::new((0..stacks.len()).map(one).collect::<StringViewArray>()))
}

fn stack_text(arguments: &[ArrayRef]) -> Result<ArrayRef, DataFusionError> {
    let stacks = as_list_array(&arguments[0])?;
    let one = |at| {
        let stack = row(stacks, at)?;
        Some(stack.as_string_view().iter().flatten().collect::<Vec<_>>().join(";"))
    };
    Ok(Arc::new((0..stacks.len()).map(one).collect::<StringViewArray>()))
}

fn scope(arguments: &[ArrayRef]) -> Result<ArrayRef, DataFusionError> {
    let (lists, wanted) = (as_list_array(&arguments[0])?, arguments[1].as_string_view());
    let all = as_struct_array(lists.values())?;
    let (attributes, values) = (all.column(0).as_string_view(), all.column(1).as_string_view());
    let offsets = lists.value_offsets();
    let one = |at: usize| {
        let (from, to) = (offsets[at] as usize, offsets[at + 1] as usize);
        let there = lists.is_valid(at) && wanted.is_valid(at);
        let found = (from..to).rev().find(|&i| there && attributes.value(i) == wanted.value(at));
        found.map(|place| values.value(place))
    };
    Ok(Arc::new((0..lists.len()).map(one).collect::<StringViewArray>()))
}

/// Formats numbers for people, with a minus sign for negative ones.
fn human(arguments: &[ArrayRef], show: fn(u64) -> String) -> ArrayRef {
    let numbers: &Int64Array = arguments[0].as_primitive::<Int64Type>();
    let shown = numbers.iter().map(|number| {
        let sign = if number? < 0 { "-" } else { "" };
        Some(format!("{sign}{}", show(number?.unsigned_abs())))
    });
    Arc::new(shown.collect::<StringViewArray>())
}
