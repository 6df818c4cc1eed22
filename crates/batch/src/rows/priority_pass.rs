//! Selects the candidates of one priority level, so that a batch is filled in the order of priority
//! over all of its candidates and not only over those in the store.
//!
//! The levels are read one after the other, each in key order, and the rows without a valid priority
//! last. A level is a filter around the candidates' SQL, which every database understands.

use serde::{Deserialize, Serialize};

use crate::definition::Candidates;
use crate::sql;

/// The names of levels, as in [`longshore::Priority`].
const NAMES: [(u8, &str); 3] = [(1, "high"), (5, "normal"), (9, "low")];

/// One pass over the candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PriorityPass(u8);

impl PriorityPass {
    /// The pass over the rows that go first.
    pub const FIRST: Self = Self(1);
    /// The pass over the rows without a valid priority.
    const OTHERS: Self = Self(10);

    /// The pass after this one.
    pub fn next(self) -> Option<Self> {
        (self != Self::OTHERS).then_some(Self(self.0 + 1))
    }

    /// The candidates of this pass; `column` is the quoted name of the priority's column.
    pub(super) fn select(self, candidates: &Candidates, column: &str) -> Candidates {
        let level = format!("lower(trim(CAST({column} AS CHAR(20))))");
        let is_level = |level_of: u8| {
            let names = NAMES.iter().filter(|(own, _)| *own == level_of).map(|(_, name)| *name);
            let texts = [format!("'{level_of}'"), format!("'{level_of}.0'")].into_iter();
            texts.chain(names.map(|name| format!("'{name}'"))).collect::<Vec<_>>().join(", ")
        };
        let condition = match self {
            Self::OTHERS => {
                let all: Vec<String> = (1..=9).map(is_level).collect();
                format!("{column} IS NOT NULL AND {level} NOT IN ({})", all.join(", "))
            }
            // A row without a priority has the normal one.
            Self(5) => format!("({column} IS NULL OR {level} IN ({}))", is_level(5)),
            Self(own) => format!("{level} IN ({})", is_level(own)),
        };
        let own = sql::split(&candidates.sql);
        let own = own.first().map_or(candidates.sql.as_str(), |statement| statement.sql);
        let sql = format!("SELECT * FROM (\n{own}\n) longshore_pass WHERE {condition}");
        Candidates { sql, ..candidates.clone() }
    }
}

/// The name in double quotes, as standard SQL has it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
