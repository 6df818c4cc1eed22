//! The SQL tokeniser.

use longshore_batch::sql::{Clause, closing_clause, parameters, pieces, split, tables, tokens, verb};

#[test]
fn parameters_are_found_outside_of_strings_comments_and_casts() {
    for (sql, names) in [
        ("SELECT :a, :b_2, :a", vec!["a", "b_2"]),
        ("SELECT ':no', \":no\", `:no`, [col name], ':it''s :no' || :yes", vec!["yes"]),
        ("SELECT 1 -- :no\n, :yes /* :no */", vec!["yes"]),
        ("SELECT x::text, a[:n], :1, ': ', :", vec!["n"]),
        ("SELECT :größe", vec!["größe"]),
        ("SELECT $$ :no '$$, $a$ :no $$ $b$ $a$, :yes", vec!["yes"]),
        ("SELECT $1, a$b$ || :yes || 'c$b$', $open$ || :also", vec!["yes", "also"]),
        (r"SELECT E'it\'s :no\\', e'''\\\':no', :yes", vec!["yes"]),
        ("SELECT 'open :no", vec![]),
        ("SELECT /* open :no", vec![]),
    ] {
        assert_eq!(parameters(sql), names, "{sql}");
    }
}

#[test]
fn statements_are_split_at_semicolons_that_are_ones() {
    let of = |sql: &'static str| split(sql).into_iter().map(|part| part.sql).collect::<Vec<_>>();
    assert_eq!(of("A; B ;\n;; -- end;\n"), ["A", "B"]);
    assert_eq!(
        of("INSERT INTO t VALUES (';', \";\") -- ;\n; C"),
        ["INSERT INTO t VALUES (';', \";\") -- ;", "C"]
    );
    assert!(of(" ; /* nothing; */ ").is_empty());
    assert_eq!(split("A;\n  B")[1].at, 5);
}

#[test]
fn only_an_order_or_limit_outside_of_parentheses_counts() {
    let clause = |sql| closing_clause(sql).map(|(clause, _)| clause);
    assert_eq!(clause("SELECT a FROM t order  by a"), Some(Clause::Order));
    assert_eq!(clause("SELECT a FROM t LIMIT 5"), Some(Clause::Limit));
    assert_eq!(clause("SELECT a FROM t OFFSET 5 ROWS FETCH FIRST 2 ROWS ONLY"), Some(Clause::Limit));
    assert_eq!(clause("SELECT a FROM t FETCH NEXT 2 ROWS ONLY"), Some(Clause::Limit));
    for fine in [
        "SELECT a FROM (SELECT a FROM t ORDER BY a LIMIT 5)",
        "SELECT 'LIMIT 5', \"limit\" FROM t -- ORDER BY a",
        "SELECT a, row_number() OVER (ORDER BY a) FROM t",
        "SELECT limits, order_by FROM orders",
    ] {
        assert_eq!(clause(fine), None, "{fine}");
    }
    assert_eq!(closing_clause("SELECT a\nFROM t\nLIMIT 5").unwrap().1, 16);
}

#[test]
fn a_statement_begins_with_its_verb() {
    assert_eq!(verb(" -- why\n/* how */ update t").as_deref(), Some("UPDATE"));
    assert_eq!(verb("((SELECT 1))").as_deref(), Some("SELECT"));
    assert_eq!(verb("'UPDATE'"), None);
    assert_eq!(verb(" -- nothing"), None);
}

#[test]
fn tables_are_guessed_for_hints() {
    let sql = "INSERT INTO log SELECT * FROM \"po lines\" p JOIN vendors v ON 1 WHERE x IN (SELECT 1 FROM t)";
    assert_eq!(tables(sql), ["log", "\"po lines\"", "vendors", "t"]);
}

const SQLISH: &str =
    r#"([;:'"`\[\]()\-/*. \n$\\]|--|E'|\$a\$|/\*|\*/|''|:[a-zü]{1,2}|SELECT|LIMIT|order by|\PC){0,30}"#;

proptest::proptest! {
    #[test]
    fn tokens_are_the_text_again(sql in SQLISH) {
        let mut at = 0;
        for token in tokens(&sql) {
            proptest::prop_assert_eq!(token.at, at);
            proptest::prop_assert!(!token.text.is_empty());
            at += token.text.len();
        }
        proptest::prop_assert_eq!(tokens(&sql).map(|token| token.text).collect::<String>(), sql);
    }

    #[test]
    fn splitting_loses_nothing(sql in SQLISH) {
        let joined = pieces(&sql).iter().map(|piece| piece.sql).collect::<Vec<_>>().join(";");
        proptest::prop_assert_eq!(&joined, &sql);
        let mut names = Vec::new();
        for part in split(&sql) {
            proptest::prop_assert_eq!(&sql[part.at..part.at + part.sql.len()], part.sql);
            proptest::prop_assert_eq!(split(part.sql).len(), 1);
            names.extend(parameters(part.sql));
        }
        for name in parameters(&sql) {
            proptest::prop_assert!(names.contains(&name), "{} is in no part", name);
        }
    }

    #[test]
    fn any_text_is_looked_at_without_harm(sql: String) {
        let _ = (closing_clause(&sql), verb(&sql), tables(&sql).len(), parameters(&sql).len());
    }
}
