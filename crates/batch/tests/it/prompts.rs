//! Prompts by reference, from a table.

use std::sync::Arc;
use std::time::Duration;

use longshore::TenantId;
use longshore_ai::{AskError, Code, Prompts};
use longshore_batch::DatabaseRows;
use longshore_batch::prompt_lookup::SqlPrompts;
use longshore_batch::rows::OpenMode;
use tokio::time::Instant;

const SQL: &str = "SELECT prompt_text FROM ai_prompts WHERE customer = :tenant AND request_id = :id";

/// A table with prompts of two tenants.
fn rows(dir: &tempfile::TempDir) -> Arc<DatabaseRows> {
    let path = dir.path().join("prompts.db");
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch(
        "CREATE TABLE ai_prompts (customer TEXT, request_id TEXT, prompt_text);
         INSERT INTO ai_prompts VALUES
             ('acme', 'r-1', 'a long prompt'), ('evil', 'r-1', 'private'), ('evil', 'r-2', 'private'),
             ('acme', 'empty', ''), ('acme', 'none', NULL), ('acme', 'number', 7),
             ('acme', 'bytes', x'c3a9'), ('acme', 'broken', x'ff'),
             ('acme', 'twice', 'one'), ('acme', 'twice', 'two');",
    )
    .unwrap();
    Arc::new(DatabaseRows::sqlite(&path, OpenMode::Write).unwrap())
}

async fn fetch(prompts: &SqlPrompts, reference: &str) -> Result<String, AskError> {
    let until = Instant::now() + Duration::from_secs(30);
    prompts.fetch(&TenantId::new("acme").unwrap(), reference, until).await
}

#[tokio::test]
async fn a_prompt_is_found_by_tenant_and_reference_and_never_another_tenants() {
    let dir = tempfile::tempdir().unwrap();
    let prompts = SqlPrompts::new(rows(&dir), SQL.to_owned()).await.unwrap();
    assert_eq!(fetch(&prompts, "ACME_5DTA.AI_PROMPTS.r-1").await.unwrap(), "a long prompt");
    assert_eq!(fetch(&prompts, "r-1").await.unwrap(), "a long prompt");
    assert_eq!(fetch(&prompts, "bytes").await.unwrap(), "é");
    for (reference, why) in [
        ("EVIL_5DTA.AI_PROMPTS.r-2", "there is no such prompt"),
        ("' OR 1=1 --", "there is no such prompt"),
        ("empty", "it is empty"),
        ("none", "it is not a text"),
        ("number", "it is not a text"),
        ("broken", "it is not UTF-8"),
        ("twice", "there is more than one such prompt"),
    ] {
        let error = fetch(&prompts, reference).await.unwrap_err();
        assert_eq!(error.code, Code::InvalidRequest, "{reference}");
        assert_eq!(error.message, format!("prompt_ref `{reference}`: {why}"));
    }
}

#[tokio::test]
async fn all_of_a_reference_may_be_looked_up() {
    let dir = tempfile::tempdir().unwrap();
    let sql = "SELECT :tenant || ' ' || :ref";
    let prompts = SqlPrompts::new(rows(&dir), sql.to_owned()).await.unwrap();
    assert_eq!(fetch(&prompts, "A.B.c").await.unwrap(), "acme A.B.c");
}

#[tokio::test]
async fn a_query_that_could_read_another_tenants_prompts_or_write_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let rows = rows(&dir);
    for (sql, why) in [
        ("SELECT prompt_text FROM ai_prompts WHERE request_id = :id", "use `:tenant`"),
        ("SELECT prompt_text FROM ai_prompts WHERE customer = :tenant", "`:ref` or `:id`"),
        ("SELECT * FROM ai_prompts WHERE customer = :tenant AND request_id = :id", "one column"),
        ("DELETE FROM ai_prompts WHERE customer = :tenant AND request_id = :id", "SELECT"),
        ("SELECT :tenant || :ref || :other", "unknown parameter `:other`"),
        ("SELECT nonsense FROM ai_prompts WHERE :tenant = :id", "nonsense"),
    ] {
        let error = SqlPrompts::new(Arc::clone(&rows) as _, sql.to_owned()).await.err().unwrap();
        assert!(error.to_string().contains(why), "{sql}: {error}");
    }
}

#[tokio::test]
async fn a_database_that_fails_does_not_speak_to_the_caller() {
    let dir = tempfile::tempdir().unwrap();
    let prompts = SqlPrompts::new(rows(&dir), SQL.to_owned()).await.unwrap();
    let db = rusqlite::Connection::open(dir.path().join("prompts.db")).unwrap();
    db.execute_batch("ALTER TABLE ai_prompts RENAME TO moved").unwrap();
    let error = fetch(&prompts, "r-1").await.unwrap_err();
    let actual = (error.code, error.message.as_str());
    assert_eq!(actual, (Code::Internal, "the prompt cannot be looked up now"));
}
