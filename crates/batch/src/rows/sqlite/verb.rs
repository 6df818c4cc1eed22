//! What a statement may do at all, by its first word.
//!
//! SQLite's own word on whether a statement only reads is not enough: to it, ATTACH and COMMIT
//! change no row, and PRAGMA may change everything that follows.

use crate::sql;

/// Whether a statement begins as one that reads rows.
pub(super) fn reads(sql: &str) -> bool {
    begins(sql, &["SELECT", "WITH", "VALUES"])
}

/// Whether a statement begins as one that changes rows.
pub(super) fn changes(sql: &str) -> bool {
    begins(sql, &["INSERT", "UPDATE", "DELETE", "REPLACE", "WITH"])
}

fn begins(sql: &str, words: &[&str]) -> bool {
    sql::verb(sql).is_some_and(|verb| words.contains(&verb.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_statements_about_rows_are_let_through() {
        for good in ["select 1", " -- why\n /* how */ With x AS (SELECT 1) SELECT 1", "VALUES (1)"]
        {
            assert!(reads(good), "{good}");
        }
        for bad in ["PRAGMA query_only = 0", "/* SELECT */ ATTACH 'x' AS y", "", "--", "; COMMIT"] {
            assert!(!reads(bad) && !changes(bad), "{bad}");
        }
        assert!(changes("/* a */ replace INTO t VALUES (1)") && !changes("SELECT 1"));
    }
}
