//! Classifies a statement by its first keyword.
//!
//! SQLite's own `readonly` flag is not enough: ATTACH and COMMIT count as reads, and PRAGMA may
//! change everything that follows.

use crate::sql;

/// Whether a statement begins with a keyword that reads rows.
pub(super) fn is_read(sql: &str) -> bool {
    starts_with(sql, &["SELECT", "WITH", "VALUES"])
}

/// Whether a statement begins with a keyword that changes rows.
pub(super) fn is_write(sql: &str) -> bool {
    starts_with(sql, &["INSERT", "UPDATE", "DELETE", "REPLACE", "WITH"])
}

fn starts_with(sql: &str, keywords: &[&str]) -> bool {
    sql::verb(sql).is_some_and(|verb| keywords.contains(&verb.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_statements_about_rows_are_let_through() {
        for good in ["select 1", " -- why\n /* how */ With x AS (SELECT 1) SELECT 1", "VALUES (1)"] {
            assert!(is_read(good), "{good}");
        }
        for bad in ["PRAGMA query_only = 0", "/* SELECT */ ATTACH 'x' AS y", "", "--", "; COMMIT"] {
            assert!(!is_read(bad) && !is_write(bad), "{bad}");
        }
        assert!(is_write("/* a */ replace INTO t VALUES (1)") && !is_write("SELECT 1"));
    }
}
