//! Rewriting of statements, and the original offsets of their tokens.

use super::*;

fn of(style: PlaceholderStyle, sql: &str) -> Result<PositionalStatement, SourceError> {
    PositionalStatement::around(style, "", sql, "")
}

fn int(value: i64) -> SqlValue {
    SqlValue::Int(value)
}

#[test]
fn only_parameters_become_question_marks() {
    let sql =
        "SELECT ':a', \"b:c\", `:d`, x::text -- :e ?\n/* :f ? */ FROM t WHERE a = :a AND b = :b OR a = :a ;";
    let statement = of(PlaceholderStyle::QuestionMark, sql).unwrap();
    let expected = "SELECT ':a', \"b:c\", `:d`, x::text    FROM t WHERE a = ? AND b = ? OR a = ?";
    assert_eq!(statement.sql, expected);
    assert_eq!(statement.names().unwrap(), ["a", "b"]);
    let values = [("b".to_owned(), int(2)), ("a".to_owned(), int(1))];
    assert_eq!(statement.named(&values).unwrap(), [&int(1), &int(2), &int(1)]);
    let error = statement.named(&values[1..]).unwrap_err().to_string();
    assert_eq!(error, "parameter `:b` has no value");
}

#[test]
fn a_hint_for_the_database_is_kept() {
    let statement = of(PlaceholderStyle::QuestionMark, "SELECT /*+ MAX_EXECUTION_TIME(9) */ 1").unwrap();
    assert_eq!(statement.sql, "SELECT /*+ MAX_EXECUTION_TIME(9) */ 1");
}

#[test]
fn numbered_values_are_bound_by_their_numbers() {
    let ordered = |values: &[i64]| Params::Ordered(values.iter().copied().map(int).collect());
    let statement = of(PlaceholderStyle::QuestionMark, "UPDATE t SET a = ?2, b = ?1, c = ?2").unwrap();
    assert_eq!(statement.sql, "UPDATE t SET a = ?, b = ?, c = ?");
    let values = ordered(&[1, 2]);
    assert_eq!(statement.values(&values).unwrap(), [&int(2), &int(1), &int(2)]);
    let error = statement.values(&ordered(&[1])).unwrap_err().to_string();
    assert_eq!(error, "1 values for 2 parameters");
    let statement = of(PlaceholderStyle::QuestionMark, "UPDATE t SET a = ?, b = ?").unwrap();
    assert_eq!(statement.values(&values).unwrap(), [&int(1), &int(2)]);
    assert!(statement.names().unwrap_err().to_string().contains("write `:name`"));
}

#[test]
fn a_place_is_the_one_in_the_users_text() {
    let sql = " -- first\n SELECT :a, missing FROM t;";
    let statement =
        PositionalStatement::around(PlaceholderStyle::QuestionMark, "SELECT k FROM (", sql, ") c LIMIT :n")
            .unwrap();
    let at = statement.sql.find("missing").unwrap();
    assert_eq!(statement.original_offset(at), sql.find("missing"));
    assert_eq!(statement.offset_of_name("db.MISSING"), sql.find("missing"));
    assert_eq!(statement.offset_of_name("elsewhere"), None);
    assert_eq!(statement.original_offset(0), None, "the head is ours");
}

#[test]
fn there_must_be_one_statement() {
    for (sql, words) in [("", "no statement"), (" -- none\n;", "no statement"), ("a; b", "only one")] {
        let error = of(PlaceholderStyle::QuestionMark, sql).unwrap_err().to_string();
        assert!(error.contains(words), "{sql}: {error}");
    }
}

#[test]
fn a_with_that_changes_rows_does_not_read() {
    assert!(is_read("WITH a AS (SELECT 1) SELECT * FROM a") && is_read("select 1") && is_read("VALUES (1)"));
    assert!(is_read("WITH a AS (SELECT 1) SELECT replace('x', 'y', 'z') FROM a"));
    assert!(!is_read("WITH a AS (SELECT 1) REPLACE INTO t SELECT * FROM a"));
    assert!(!is_read("WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a"));
    for other in ["DELETE FROM t", "SET x = 1", "CALL f()", "", "COMMIT"] {
        assert!(!is_read(other), "{other}");
    }
    assert!(is_write("MERGE INTO t USING s ON 1 = 1") && !is_write("SELECT 1") && !is_write("COMMIT"));
}

#[test]
fn uses_of_one_name_are_one_parameter_for_postgresql() {
    let sql = "SELECT :a::text, b ? 'x', $$ :c $1 $$, E'it\\'s :d' WHERE :b = :a";
    let statement = of(PlaceholderStyle::DollarNumber, sql).unwrap();
    let expected = "SELECT $1::text, b ? 'x', $$ :c $1 $$, E'it\\'s :d' WHERE $2 = $1";
    assert_eq!(statement.sql, expected);
    assert_eq!(statement.names().unwrap(), ["a", "b"]);
    let values = [("b".to_owned(), int(2)), ("a".to_owned(), int(1))];
    assert_eq!(statement.named(&values).unwrap(), [&int(1), &int(2)]);
    assert_eq!(statement.placeholder_name(2).as_deref(), Some(":b"));
}

#[test]
fn marks_that_look_like_ours_are_refused_at_their_place() {
    let error = of(PlaceholderStyle::DollarNumber, "SELECT $1").unwrap_err();
    let SourceError::Statement { message, offset } = error else { panic!("another error") };
    assert_eq!((message.contains("not `$1`"), offset), (true, Some(7)));
}
