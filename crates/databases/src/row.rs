//! Rows: columns keep their order, in Rust and in JSON.

use std::sync::Arc;

use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::value::Value;

/// A row: names and values, in the order of the statement. In JSON it is an object; if two columns
/// have the same name, both are written, and most parsers keep the last.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResultRow {
    columns: Vec<(String, Value)>,
}

impl ResultRow {
    /// The value of a column by name; the first, if several have it.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.columns.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// The columns in order.
    pub fn columns(&self) -> &[(String, Value)] {
        &self.columns
    }

    /// The values in order.
    pub fn into_values(self) -> impl Iterator<Item = Value> {
        self.columns.into_iter().map(|(_, value)| value)
    }

    /// Deserialises the row into `T`: a struct with a field per column.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::to_value(self).and_then(serde_json::from_value)
    }
}

impl Serialize for ResultRow {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.columns.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for ResultRow {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(RowVisitor)
    }
}

struct RowVisitor;

impl<'de> Visitor<'de> for RowVisitor {
    type Value = ResultRow;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a row: an object with a value per column")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ResultRow, A::Error> {
        let mut columns = Vec::with_capacity(map.size_hint().unwrap_or(8).min(1024));
        while let Some(column) = map.next_entry()? {
            columns.push(column);
        }
        Ok(ResultRow { columns })
    }
}

/// Rows as they come from a database: the names once, and the values of each row.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ResultTable {
    /// The columns' names.
    pub names: Arc<[String]>,
    /// The values of each row.
    pub rows: Vec<Vec<Value>>,
}

impl ResultTable {
    /// The rows as objects, for serialisation.
    pub fn objects(&self) -> impl Iterator<Item = RowObject<'_>> {
        self.rows.iter().map(|values| RowObject { names: &self.names, values })
    }

    /// Approximate memory use.
    pub fn size(&self) -> usize {
        self.rows.iter().flatten().map(Value::size).sum()
    }

    /// The first column of each row.
    pub fn first_column(self) -> impl Iterator<Item = Value> {
        self.rows.into_iter().map(|row| row.into_iter().next().unwrap_or_default())
    }

    /// The first value of the first row.
    pub fn first_value(self) -> Option<Value> {
        self.first_column().next()
    }
}

/// One row, serialised as an object.
pub struct RowObject<'t> {
    names: &'t [String],
    values: &'t [Value],
}

impl Serialize for RowObject<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.values.len()))?;
        for (name, value) in self.names.iter().zip(self.values) {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_keep_their_order_and_can_be_read_as_a_type() {
        let json = r#"{"z":1,"a":"x","m":null}"#;
        let row: ResultRow = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&row).unwrap(), json);
        assert_eq!((row.get("a"), row.get("b")), (Some(&Value::from("x")), None));
        #[derive(serde::Deserialize, PartialEq, Debug)]
        struct OrderLine {
            a: String,
            m: Option<i64>,
            z: u8,
        }
        assert_eq!(row.read::<OrderLine>().unwrap(), OrderLine { a: "x".to_owned(), m: None, z: 1 });
    }

    #[test]
    fn a_table_is_written_row_by_row() {
        let table = ResultTable {
            names: ["b".to_owned(), "a".to_owned()].into(),
            rows: vec![vec![1.into(), 2.into()], vec![3.into(), Value::Null]],
        };
        let objects: Vec<_> = table.objects().collect();
        assert_eq!(serde_json::to_string(&objects).unwrap(), r#"[{"b":1,"a":2},{"b":3,"a":null}]"#);
        assert_eq!(table.first_column().collect::<Vec<_>>(), [Value::Int(1), Value::Int(3)]);
    }
}
