//! The conditions of a query on values that are in paths, so that directories without matching rows
//! are not opened.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, Int64Array, RecordBatch, StringViewArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, DataFusionError};
use datafusion::datasource::listing::helpers::expr_applicable_for_cols;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::PhysicalExpr;
use datafusion::prelude::Expr;

use crate::columns::TEXT;
use crate::layout::{HOST, IN_PATHS, Known, Place, RANK, RUN};

/// Returns whether a condition depends only on values in paths.
pub fn is_about_paths(condition: &Expr) -> bool {
    expr_applicable_for_cols(&IN_PATHS, condition)
}

/// Conditions, all of which the rows of a query fulfil.
#[derive(Debug)]
pub struct PlaceFilter {
    schema: Arc<Schema>,
    conditions: Vec<Condition>,
}

#[derive(Debug)]
struct Condition {
    expression: Arc<dyn PhysicalExpr>,
    /// The values that it depends on.
    columns: Known,
}

impl PlaceFilter {
    /// Returns the filter that keeps everything.
    pub fn none() -> PlaceFilter {
        let fields = vec![
            Field::new(RUN, TEXT, true),
            Field::new(HOST, TEXT, true),
            Field::new(RANK, DataType::Int64, true),
        ];
        PlaceFilter { schema: Arc::new(Schema::new(fields)), conditions: Vec::new() }
    }

    /// Returns the filter for these conditions. Those that cannot be evaluated here are omitted.
    pub fn new(state: &dyn Session, conditions: &[Expr]) -> PlaceFilter {
        let mut filter = PlaceFilter::none();
        for condition in conditions.iter().filter(|condition| is_about_paths(condition)) {
            filter.conditions.extend(filter.condition(state, condition).ok());
        }
        filter
    }

    fn condition(&self, state: &dyn Session, of: &Expr) -> Result<Condition, DataFusionError> {
        let schema = DFSchema::try_from(self.schema.clone())?;
        let expression = state.create_physical_expr(of.clone(), &schema)?;
        let columns = collect_columns(&expression);
        let columns = columns.iter().fold(Known::default(), |all, of| all.with(of.name()));
        Ok(Condition { expression, columns })
    }

    /// Returns whether it keeps everything.
    pub fn is_none(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Returns for each place whether its rows can fulfil the conditions, as far as these depend
    /// only on values that are known. Conditions on values in `checked` were evaluated before.
    pub fn keeps(&self, places: &[(Place, Known)], checked: Known) -> Vec<bool> {
        let mut kept = vec![true; places.len()];
        let fits = |condition: &&Condition| {
            let known = |(_, known): &(Place, Known)| known.has(condition.columns);
            !checked.has(condition.columns) && places.iter().any(known)
        };
        for condition in self.conditions.iter().filter(fits) {
            let Ok(values) = self.evaluated(condition, places) else {
                continue; // the engine evaluates it again, for each row
            };
            for (at, (_, known)) in places.iter().enumerate() {
                kept[at] &= !known.has(condition.columns) || values[at];
            }
        }
        kept
    }

    fn evaluated(
        &self,
        condition: &Condition,
        places: &[(Place, Known)],
    ) -> Result<Vec<bool>, DataFusionError> {
        let text = |of: fn(&Place) -> &String| {
            Arc::new(StringViewArray::from_iter_values(places.iter().map(|(place, _)| of(place))))
        };
        let ranks = Arc::new(places.iter().map(|(place, _)| place.rank).collect::<Int64Array>());
        let columns = vec![text(|of| &of.run) as _, text(|of| &of.host) as _, ranks as _];
        let batch = RecordBatch::try_new(self.schema.clone(), columns)?;
        let values = condition.expression.evaluate(&batch)?.into_array(places.len())?;
        let values = values.as_boolean_opt();
        let values = values.ok_or_else(|| DataFusionError::Plan("no condition".to_owned()))?;
        Ok(values.iter().map(|value| value == Some(true)).collect())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::{SessionContext, col, lit};

    use super::*;

    fn place(run: &str, host: &str, rank: Option<i64>) -> Place {
        let rank = rank.unwrap_or(-1);
        Place::of_path(&format!("run={run}/host={host}/rank={rank}"))
    }

    #[test]
    fn conditions_are_evaluated_as_soon_as_their_values_are_known() {
        let state = SessionContext::new().state();
        let conditions =
            [col(RUN).not_eq(lit("c")), col(HOST).eq(lit("n1")).or(col(RANK).gt(lit(4)))];
        let filter = PlaceFilter::new(&state, &conditions);
        let runs = Known::default().with(RUN);
        let all = runs.with(HOST).with(RANK);
        let kept = |places: &[(&str, &str, Option<i64>)], known, checked| {
            let of =
                |(run, host, rank): &(&str, &str, Option<i64>)| (place(run, host, *rank), known);
            filter.keeps(&places.iter().map(of).collect::<Vec<_>>(), checked)
        };
        let places = [("a", "n1", None), ("c", "n1", Some(5)), ("b", "n2", Some(5))];
        assert_eq!(kept(&places, Known::default(), Known::default()), [true; 3]);
        assert_eq!(kept(&places, runs, Known::default()), [true, false, true]);
        assert_eq!(kept(&places, runs.with(HOST), runs), [true; 3]);
        assert_eq!(kept(&places, all, Known::default()), [true, false, true]);
        // A missing rank is NULL, for which no comparison is true.
        let others = [("a", "n2", None), ("a", "n2", Some(4)), ("a", "n2", Some(5))];
        assert_eq!(kept(&others, all, runs), [false, false, true]);
    }

    #[test]
    fn conditions_on_other_columns_and_volatile_ones_are_omitted() {
        let state = SessionContext::new().state();
        let random = datafusion::functions::math::expr_fn::random();
        let conditions = [col("live_bytes").gt(lit(0)), random.gt(lit(0.5))];
        assert!(conditions.iter().all(|condition| !is_about_paths(condition)));
        assert!(PlaceFilter::new(&state, &conditions).is_none());
        assert!(is_about_paths(&col(RANK).is_null()));
    }
}
