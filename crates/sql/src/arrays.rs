//! Converts records of a table to Arrow arrays.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::builder::StringViewBuilder;
use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, ListArray, RecordBatch, RecordBatchOptions,
    StringViewArray, StructArray,
};
use datafusion::arrow::buffer::{Buffer, NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::arrow::error::ArrowError;
use heaptide_query::table::{AttributeId, Form, NodeId, Table};
use heaptide_query::value::{Bits, Kind};
use rustc_hash::FxHashMap;

use crate::columns::{ITERATION, PATH, RUN, SCOPES, TEXT, scope_fields};

/// Converts some records of a table of one recording to a batch with the columns of the schema.
///
/// Errors: those of Arrow, for batches with more than 4 GB of text.
pub fn batch(
    table: &Table,
    run: &str,
    schema: &SchemaRef,
    rows: Range<usize>,
) -> Result<RecordBatch, ArrowError> {
    let part = Part { table, rows };
    let columns = schema.fields().iter().map(|field| match &**field.name() {
        RUN => part.constant(run),
        PATH => part.paths(),
        SCOPES => part.scopes(),
        name => match table.named(name) {
            Some(id) if table.of(id).form != Form::Value => part.lists(id),
            Some(id) => part.values(id, field.data_type()),
            None => Ok(datafusion::arrow::array::new_null_array(field.data_type(), part.len())),
        },
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(part.len()));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
}

/// Some rows of a table.
struct Part<'a> {
    table: &'a Table,
    rows: Range<usize>,
}

impl Part<'_> {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn constant(&self, text: &str) -> Result<ArrayRef, ArrowError> {
        let texts = std::iter::repeat_n(Some(text), self.len());
        Ok(Arc::new(texts.collect::<StringViewArray>()))
    }

    /// Converts a column with a value in each record.
    fn values(&self, id: AttributeId, data: &DataType) -> Result<ArrayRef, ArrowError> {
        let attribute = self.table.of(id);
        let bits = self.rows.clone().map(|row| attribute.column.get(row));
        Ok(match data {
            DataType::Boolean => {
                Arc::new(bits.map(|bits| bits.map(|b| b.0 != 0)).collect::<BooleanArray>())
            }
            DataType::Float64 => {
                let value = |b: Bits| b.to_double(attribute.kind);
                Arc::new(bits.map(|bits| bits.map(value)).collect::<Float64Array>())
            }
            DataType::Int64 => {
                let value = |b: Bits| integer(b, attribute.kind);
                Arc::new(bits.map(|bits| bits.map(value)).collect::<Int64Array>())
            }
            _ => {
                let mut texts = Texts::default();
                bits.for_each(|bits| texts.add(self.table, attribute.kind, bits));
                texts.array()?
            }
        })
    }

    /// Converts a hierarchy, outermost first.
    fn lists(&self, id: AttributeId) -> Result<ArrayRef, ArrowError> {
        let table = self.table;
        let places = |row| {
            let mut places = [NodeId(0); 3];
            places.iter_mut().zip(table.places(row, id)).for_each(|(place, node)| *place = node);
            places
        };
        self.chains(places, |chain, places| {
            for node in places {
                let of = table.chain(node).filter(|node| node.attribute == id);
                chain.extend(of.map(|node| (node.attribute, node.value)));
                if !chain.is_empty() {
                    break;
                }
            }
        })
        .texts(table)
    }

    /// Converts the values of nested scopes.
    fn paths(&self) -> Result<ArrayRef, ArrowError> {
        let table = self.table;
        self.chains(|row| table.paths[row], |chain, path| above(table, chain, path)).texts(table)
    }

    /// Converts the attributes and values of all scopes: nested ones, then iterations.
    fn scopes(&self) -> Result<ArrayRef, ArrowError> {
        let table = self.table;
        let all = (0..).zip(&table.attributes);
        let iterations: Vec<AttributeId> = all
            .filter(|(_, of)| of.name.starts_with(ITERATION) && !of.column.is_empty())
            .map(|(id, _)| AttributeId(id))
            .collect();
        let of_row = |row: usize| -> Vec<Option<Bits>> {
            iterations.iter().map(|id| table.of(*id).column.get(row)).collect()
        };
        self.chains(
            |row| (table.paths[row], of_row(row)),
            |chain, (path, values)| {
                let there = iterations.iter().zip(values).rev();
                chain.extend(there.filter_map(|(id, value)| Some((*id, value?))));
                above(table, chain, path);
            },
        )
        .scopes(table)
    }

    /// Builds a list for each row from the output of `fill`, which is innermost first. Rows with
    /// the same node share it.
    fn chains<K: Clone + PartialEq>(
        &self,
        place: impl Fn(usize) -> K,
        fill: impl Fn(&mut Vec<(AttributeId, Bits)>, K),
    ) -> Chains {
        let mut chains = Chains { lengths: Vec::with_capacity(self.len()), nodes: Vec::new() };
        let (mut last, mut chain) = (None, Vec::new());
        for row in self.rows.clone() {
            let at = place(row);
            if last.as_ref() != Some(&at) {
                last = Some(at.clone());
                chain.clear();
                fill(&mut chain, at);
                chain.reverse();
            }
            chains.nodes.extend_from_slice(&chain);
            chains.lengths.push(chain.len());
        }
        chains
    }
}

/// Adds a node and its ancestors.
fn above(table: &Table, chain: &mut Vec<(AttributeId, Bits)>, node: NodeId) {
    chain.extend(table.chain(node).map(|node| (node.attribute, node.value)));
}

fn integer(bits: Bits, kind: Kind) -> i64 {
    match kind {
        Kind::Int => bits.0.cast_signed(),
        _ => i64::try_from(bits.0).unwrap_or(i64::MAX),
    }
}

/// Lists of values of attributes.
struct Chains {
    lengths: Vec<usize>,
    nodes: Vec<(AttributeId, Bits)>,
}

impl Chains {
    fn texts(self, table: &Table) -> Result<ArrayRef, ArrowError> {
        let mut texts = Texts::default();
        for &(attribute, value) in &self.nodes {
            texts.add(table, table.of(attribute).kind, Some(value));
        }
        let texts = texts.array()?;
        self.list(TEXT, texts)
    }

    fn scopes(self, table: &Table) -> Result<ArrayRef, ArrowError> {
        let (mut attributes, mut values) = (Texts::default(), Texts::default());
        for &(attribute, value) in &self.nodes {
            let of = table.of(attribute);
            attributes.add_text((Kind::Uint, attribute.0.into()), || scope_name(&of.name));
            values.add(table, of.kind, Some(value));
        }
        let fields = scope_fields();
        let columns = vec![attributes.array()?, values.array()?];
        let scopes =
            StructArray::try_new_with_length(fields.clone(), columns, None, self.nodes.len())?;
        self.list(DataType::Struct(fields), Arc::new(scopes))
    }

    /// Builds the array; an empty list becomes NULL.
    fn list(&self, item: DataType, items: ArrayRef) -> Result<ArrayRef, ArrowError> {
        let there = NullBuffer::from_iter(self.lengths.iter().map(|&length| length > 0));
        let offsets = OffsetBuffer::from_lengths(self.lengths.iter().copied());
        let field = Arc::new(Field::new_list_field(item, true));
        Ok(Arc::new(ListArray::try_new(field, offsets, items, Some(there))?))
    }
}

/// Returns the program's name of the attribute: CalQL prefixes `scope.` if a column has the same
/// name.
fn scope_name(name: &str) -> String {
    name.strip_prefix("scope.").unwrap_or(name).to_owned()
}

/// Builds an array of texts that stores each distinct one once.
#[derive(Default)]
struct Texts {
    block: Vec<u8>,
    places: FxHashMap<(Kind, u64), (u32, u32)>,
    views: Vec<Option<(u32, u32)>>,
}

impl Texts {
    fn add(&mut self, table: &Table, kind: Kind, bits: Option<Bits>) {
        match bits {
            Some(bits) => self.add_text((kind, bits.0), || bits.show(kind, &table.strings)),
            None => self.views.push(None),
        }
    }

    fn add_text(&mut self, key: (Kind, u64), text: impl FnOnce() -> String) {
        let block = &mut self.block;
        let place = *self.places.entry(key).or_insert_with(|| {
            let (start, text) = (block.len() as u32, text());
            block.extend_from_slice(text.as_bytes());
            (start, text.len() as u32)
        });
        self.views.push(Some(place));
    }

    fn array(self) -> Result<ArrayRef, ArrowError> {
        if u32::try_from(self.block.len()).is_err() {
            let what = "more than 4 GB of distinct texts in a batch".to_owned();
            return Err(ArrowError::InvalidArgumentError(what));
        }
        let mut builder = StringViewBuilder::with_capacity(self.views.len());
        let block = builder.append_block(Buffer::from_vec(self.block));
        for view in self.views {
            match view {
                Some((start, length)) => builder.try_append_view(block, start, length)?,
                None => builder.append_null(),
            }
        }
        Ok(Arc::new(builder.finish()))
    }
}
