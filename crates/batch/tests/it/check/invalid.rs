//! Each mistake gives one clear error with file, line and hint.

use async_trait::async_trait;
use longshore::{Effect, SqlValue};
use longshore_batch::check::check;
use longshore_batch::definition::Candidates;
use longshore_batch::rows::{Candidate, Row, RowSource, SourceError, StatementInfo};

use super::{BATCH, Case};

/// Replaces `right` by `wrong` and expects one error, `below` lines under the start of `wrong`.
async fn mistake(right: &str, wrong: &str, below: usize, message: &str, hint: &str) {
    assert!(BATCH.contains(right), "the text has no {right}");
    let text = BATCH.replacen(right, wrong, 1);
    let line = text[..text.find(wrong).unwrap()].matches('\n').count() + 1 + below;
    let error = Case::new(&text).check().await.expect_err(wrong);
    let shown = format!("{error} | {:?}", error.hint);
    assert!(error.file.ends_with("batch.toml"), "{wrong}: {shown}");
    assert_eq!(error.line, Some(line), "{wrong}: {shown}");
    assert!(error.message.contains(message), "{wrong}: {shown}");
    assert!(error.hint.as_deref().unwrap_or_default().contains(hint), "{wrong}: {shown}");
}

#[tokio::test]
async fn candidates_that_the_database_does_not_accept_are_told_where_they_are() {
    for (right, wrong, message, hint) in [
        ("SELECT id, priority\n", "SELECT id, prority\n", "no such column: prority", "`priority`?"),
        ("FROM lines\nWHERE", "FROM linse\nWHERE", "no such table: linse", "did you mean `lines`?"),
        ("WHERE status =", "WERE status =", "syntax error", ""),
        ("AND qty >", "AND qtty >", "no such column: qtty", "did you mean `qty`?"),
        ("> :least", "> :least ORDER BY id", "must not have an ORDER BY", "order of their keys"),
        ("> :least", "> :least LIMIT 5", "must not limit its rows", "`limit = …`"),
    ] {
        mistake(right, wrong, 0, message, hint).await;
    }
    mistake("> :least", "> :least\nLIMIT 5", 1, "must not limit its rows", "`limit = …`").await;
}

#[tokio::test]
async fn a_parameter_of_another_form_is_refused() {
    for form in ["?", "?7", "@most", "$most"] {
        let text = BATCH.replace("> :least", &format!("> :least AND qty < {form}"));
        let error = Case::new(&text).check().await.expect_err(form);
        let words = format!("{error} {}", error.hint.clone().unwrap_or_default());
        assert!(words.contains("`:name`"), "{form}: {words}");
        let line = if form.starts_with('?') { 6 } else { 8 };
        assert_eq!(error.line, Some(line), "{form}: {words}");
    }
}

#[tokio::test]
async fn candidates_must_be_a_query_with_the_columns_that_are_named() {
    for (right, wrong, message, hint) in [
        ("key = \"id\"", "key = \"idd\"", "have no column `idd`", "did you mean `id`?"),
        ("priority = \"pri", "priority = \"xpri", "have no column `xpriority`", "`priority`?"),
        ("key = \"id\"", "key = \"ID\"", "have no column `ID`", "did you mean `id`?"),
    ] {
        mistake(right, wrong, 0, message, hint).await;
    }
    let text = "sql = \"UPDATE lines SET qty = :least RETURNING id, priority\"\n";
    let old = &BATCH[BATCH.find("sql = \"\"\"").unwrap()..BATCH.find("key = ").unwrap()];
    mistake(old, text, 0, "`candidates.sql` must be a query", "changes nothing").await;
}

#[tokio::test]
async fn pre_reads_one_row_by_its_key() {
    for (right, wrong, message, hint) in [
        ("WHERE id = :key\"\nprompt", "WHERE id = :kee\"\nprompt", "parameter `:kee`", "`key`?"),
        ("WHERE id = :key\"\nprompt", "WHERE id = 1\"\nprompt", "does not use `:key`", "= :key"),
        ("SELECT id, vendor,", "SELECT id, vendr,", "no such column: vendr", "`vendor`?"),
        ("SELECT id, vendor,", "SELECT id, lines.vendr,", "column: lines.vendr", "`vendor`?"),
        ("history = \"SELECT qty,", "history = \"SELECT qtt,", "no such column: qtt", "`qty`?"),
        ("history = \"SELECT", "vendor = \"SELECT", "also a column of `pre.sql`", ""),
        ("history = \"SELECT", "history = \"DELETE FROM todo --", "must be a query", ""),
    ] {
        mistake(right, wrong, 0, message, hint).await;
    }
}

#[tokio::test]
async fn a_prompt_asks_only_for_what_there_is() {
    for (right, wrong, message, hint) in [
        ("{{ vendor }}", "{{ vendr }}", "the prompt uses `vendr`", "did you mean `vendor`?"),
        ("{{ row.price }}", "{{ row.prize }}", "the prompt uses `prize`", "did you mean `price`?"),
        ("in history", "in histori", "the prompt uses `histori`", "did you mean `history`?"),
        ("{{ past.qty }}", "{{ past.qtty }}", "`past.qtty` is undefined", ""),
        ("| round(2)", "| rond(2)", "unknown filter", ""),
        ("{{ qty }}", "{{ qty", "syntax error", ""),
        ("{% endfor %}", "{% endif %}", "syntax error", ""),
    ] {
        mistake(right, wrong, 0, message, hint).await;
    }
}

#[tokio::test]
async fn a_mistake_in_a_prompt_file_is_told_there() {
    let old = &BATCH[BATCH.find("prompt = \"\"\"").unwrap()..BATCH.find("[pre.lists]").unwrap()];
    let case = Case::new(&BATCH.replace(old, "prompt_file = \"prompt.md\"\n"));
    case.check().await.unwrap();
    std::fs::write(case.dir.path().join("prompt.md"), "one {{ qty }}\n\n{{ vendr }}").unwrap();
    let loaded = crate::file::load(case.dir.path(), &Default::default()).unwrap();
    let error = Case { loaded, ..case }.check().await.unwrap_err();
    assert!(error.file.ends_with("prompt.md"), "{error}");
    assert_eq!(error.line, Some(3), "{error}");
}

#[tokio::test]
async fn post_changes_rows_and_uses_only_what_is_bound() {
    for (right, wrong, below, message, hint) in [
        ("= :verdict,", "= :verdct,", 0, "unknown parameter `:verdct`", "did you mean `verdict`?"),
        (":answer_status", ":answer_stats", 0, "`:answer_stats`", "did you mean `answer_status`?"),
        (":error_code", ":error_kode", 0, "`:error_kode`", "did you mean `error_code`?"),
        ("UPDATE lines\n", "UPDATE linse\n", 0, "no such table: linse", "did you mean `lines`?"),
        ("SET verdict =", "SET verdikt =", 0, "no such column: verdikt", "did you mean `verdict`?"),
        (
            "DELETE FROM todo\nWHERE line",
            "DELETE FROM todo\nWHERE lime",
            1,
            "no such column: lime",
            "`line`?",
        ),
        (
            "always = \"INSERT INTO log (line,",
            "always = \"INSERT INTO log (lin,",
            0,
            "no column named lin",
            "`line`?",
        ),
        (
            "fail = \"UPDATE lines",
            "fail = \"SELECT 1; UPDATE lines",
            0,
            "`post.fail[0]` must change rows",
            "INSERT, UPDATE",
        ),
        (
            "fail = \"UPDATE lines",
            "fail = \"DROP TABLE log; UPDATE lines",
            0,
            "must change rows",
            "INSERT, UPDATE",
        ),
        (
            "fail = \"UPDATE lines",
            "fail = \"WITH x AS (SELECT 1) SELECT * FROM x; UPDATE lines",
            0,
            "must change rows",
            "",
        ),
        (
            "(NULL, :status, :batch_id)",
            "(NULL, :statis, :batch_id)",
            0,
            "`:statis`",
            "did you mean `status`?",
        ),
        ("(NULL, :code, :batch_id)", "(NULL, :kode, :batch_id)", 0, "`:kode`", "did you mean `code`?"),
    ] {
        mistake(right, wrong, below, message, hint).await;
    }
}

#[tokio::test]
async fn rules_compile_and_ask_for_fields_of_the_schema() {
    for (right, wrong, message, hint) in [
        (
            "when = \"answer.confidence <",
            "when = \"answer.confidense <",
            "no field `confidense`",
            "`confidence`?",
        ),
        ("when = \"answer.", "when = \"anser.", "a rule has no variable `anser`", "did you mean `answer`?"),
        ("when = \"answer.confidence < 0.5", "when = \"answer.confidence <", "rule 1: `when`", ""),
        ("when = \"answer.confidence <", "when = \"answer.confidence|flot <", "unknown filter", ""),
        (
            "sure: {{ answer.confidence }}",
            "sure: {{ answer.confidnce }}",
            "no field `confidnce`",
            "`confidence`?",
        ),
        ("sure: {{ answer.confidence }}", "sure: {{ answer.confidence", "rule 1: `reason`", ""),
    ] {
        mistake(right, wrong, 0, message, hint).await;
    }
}

#[tokio::test]
async fn a_schema_that_is_none_is_refused() {
    let right = "[ai.schema]\ntype = \"object\"";
    mistake(right, "[ai.schema]\ntype = \"objct\"", 0, "the schema", "").await;
}

#[tokio::test]
async fn a_mistake_in_a_script_is_told_there() {
    let case = Case::new(BATCH);
    let script = "[[answer]]\nmatch = '('\nreply = 'x'\n";
    std::fs::write(case.dir.path().join("reviewer.toml"), script).unwrap();
    let loaded = crate::file::load(case.dir.path(), &Default::default()).unwrap();
    let error = Case { loaded, ..case }.check().await.unwrap_err();
    assert!(error.file.ends_with("reviewer.toml"), "{error}");
    assert!(error.line.is_some_and(|line| line <= 2), "{error}");
}

/// A database that is never reachable.
struct UnreachableSource;

#[async_trait]
impl RowSource for UnreachableSource {
    async fn describe(&self, _: &str) -> Result<StatementInfo, SourceError> {
        Err(SourceError::Unavailable("connection refused".to_owned()))
    }

    async fn count(&self, _: &Candidates) -> Result<u64, SourceError> {
        panic!("a check counts nothing")
    }

    async fn candidates(
        &self,
        _: &Candidates,
        _: Option<&SqlValue>,
        _: u32,
    ) -> Result<Vec<Candidate>, SourceError> {
        panic!("a check reads no rows")
    }

    async fn fetch(&self, _: &str, _: &[(String, SqlValue)]) -> Result<Vec<Row>, SourceError> {
        panic!("a check reads no rows")
    }

    async fn apply(&self, _: &[Effect]) -> Result<(), SourceError> {
        panic!("a check writes nothing")
    }
}

#[tokio::test]
async fn a_database_that_is_away_is_one_error_where_it_is_named() {
    let Case { loaded, .. } = Case::new(BATCH);
    let error = check(&loaded.definition, &loaded.source_map, &UnreachableSource).await.unwrap_err();
    assert_eq!(error.message, "the database cannot be reached: connection refused");
    assert_eq!(error.line, Some(2));
}
