//! Just enough SQL parsing: the first word, and whether a statement can only read. Both are
//! conservative.

/// First words of reading statements.
const READ_VERBS: [&str; 5] = ["SELECT", "WITH", "VALUES", "SHOW", "TABLE"];
/// Words that make a read suspicious, wherever they occur: also in a string, since databases do not
/// agree on where a string ends. `FOR UPDATE` locks, `INTO` creates a table or a file.
const WRITE_WORDS: [&str; 14] = [
    "INSERT",
    "UPDATE",
    "DELETE",
    "MERGE",
    "UPSERT",
    "INTO",
    "CALL",
    "EXEC",
    "EXECUTE",
    "NEXTVAL",
    "SETVAL",
    "SET_CONFIG",
    "SHARE",
    "DBLINK",
];
/// First words of statements that begin or end a transaction.
const TRANSACTION_VERBS: [&str; 9] =
    ["BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE", "XA"];

/// The first word in capitals: the kind of statement.
pub fn verb(sql: &str) -> String {
    let rest = after_comments(sql);
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
    rest[..end].to_uppercase()
}

/// Whether a statement can be repeated, as far as its words tell. A function that it calls may
/// still write; such a function has to be called by `db.do`.
pub fn is_read_only(sql: &str) -> bool {
    let words = sql.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    let mut words = words.map(str::to_uppercase);
    READ_VERBS.contains(&verb(sql).as_str()) && !words.any(|word| WRITE_WORDS.contains(&word.as_str()))
}

/// Whether a statement changes rows, as far as its words tell.
pub fn modifies_rows(sql: &str) -> bool {
    match verb(sql).as_str() {
        "INSERT" | "UPDATE" | "DELETE" | "MERGE" | "REPLACE" => true,
        "WITH" => !is_read_only(sql),
        _ => false,
    }
}

/// Whether a statement begins or ends a transaction. Connections are reused: an open transaction
/// would include the statements of the next caller.
pub fn controls_transaction(sql: &str) -> bool {
    TRANSACTION_VERBS.contains(&verb(sql).as_str()) || is_executable_comment(sql) || sets_autocommit(sql)
}

/// MySQL executes the content of comments of this form.
fn is_executable_comment(sql: &str) -> bool {
    let sql = sql.trim_start();
    sql.starts_with("/*!") || sql.starts_with("/*M!")
}

fn sets_autocommit(sql: &str) -> bool {
    verb(sql) == "SET" && sql.to_uppercase().contains("AUTOCOMMIT")
}

fn after_comments(sql: &str) -> &str {
    let mut rest = sql;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '(' || c == ';');
        rest = match rest {
            _ if rest.starts_with("--") => rest.split_once('\n').map_or("", |(_, rest)| rest),
            _ if rest.starts_with('#') => rest.split_once('\n').map_or("", |(_, rest)| rest),
            _ if rest.starts_with("/*") => rest.split_once("*/").map_or("", |(_, rest)| rest),
            _ => return rest,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_is_found_behind_comments() {
        for sql in ["select 1", " -- insert\n /* x */ (SELECT 1)", "# a\nSelect 1", ";;SELECT"] {
            assert_eq!(verb(sql), "SELECT", "{sql}");
        }
        for sql in ["", "--", "/* ", "'SELECT'"] {
            assert_eq!(verb(sql), "", "{sql}");
        }
    }

    #[test]
    fn only_what_surely_reads_may_be_run_twice() {
        for read in ["SELECT a FROM t", "WITH x AS (SELECT 1) SELECT * FROM x", "VALUES (1)"] {
            assert!(is_read_only(read), "{read}");
        }
        for other in [
            "INSERT INTO t VALUES (1) RETURNING id",
            "WITH x AS (DELETE FROM t RETURNING a) SELECT * FROM x",
            "SELECT a INTO b FROM t",
            "SELECT a FROM t FOR UPDATE",
            "SELECT nextval('s')",
            "SELECT 'it\\' , insert",
            "PRAGMA journal_mode = wal",
            "EXPLAIN ANALYZE UPDATE t SET a = 1",
            "",
        ] {
            assert!(!is_read_only(other), "{other}");
        }
        assert!(
            modifies_rows("/* */ replace INTO t VALUES (1)") && modifies_rows("WITH x AS (DELETE …) SELECT")
        );
        assert!(
            !modifies_rows("WITH x AS (SELECT 1) SELECT")
                && !modifies_rows("VACUUM")
                && !modifies_rows("SELECT 1")
        );
    }

    #[test]
    fn what_begins_or_ends_a_transaction_is_seen() {
        for sql in [
            "begin",
            "/* x */ COMMIT",
            "START TRANSACTION",
            "rollback to a",
            "SET autocommit = 0",
            "/*!50000 BEGIN */",
            "-- a\nSAVEPOINT b",
        ] {
            assert!(controls_transaction(sql), "{sql}");
        }
        for sql in ["SELECT 'BEGIN'", "SET names utf8mb4", "UPDATE t SET a = 'COMMIT'"] {
            assert!(!controls_transaction(sql), "{sql}");
        }
    }
}
