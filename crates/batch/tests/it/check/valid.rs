//! Valid definitions pass, and nothing is touched.

use std::path::Path;

use longshore_batch::LoadedBatchFile;
use longshore_batch::check::{candidate_keys, check};
use longshore_batch::definition::{Post, SqlPost};
use longshore_batch::file::Overrides;
use rusqlite::Connection;
use tempfile::TempDir;

use super::{BATCH, Case, open};
use crate::file::{FULL, SMALL, load};

#[tokio::test]
async fn a_sound_batch_passes_without_a_word() {
    assert_eq!(Case::new(BATCH).check().await.unwrap().warnings, Vec::<String>::new());
}

#[tokio::test]
async fn no_row_is_touched() {
    let case = Case::new(BATCH);
    let before = std::fs::read(case.database()).unwrap();
    case.check().await.unwrap();
    assert!(std::fs::read(case.database()).unwrap() == before, "the database changed");
}

#[tokio::test]
async fn a_post_that_writes_nothing_is_worth_a_word() {
    let mut case = Case::new(BATCH);
    case.loaded.definition.post = Post::Sql(SqlPost::default());
    let warnings = case.check().await.unwrap().warnings;
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("[post] has no SQL"), "{warnings:?}");
}

#[tokio::test]
async fn a_post_that_changes_all_rows_is_worth_a_word_with_its_line() {
    for (from, to, words) in [
        ("WHERE id = :key;", ";", "the UPDATE has no WHERE"),
        ("WHERE line = :key", "WHERE line = line AND 'x' <> ':key'", "the DELETE has no `:key` in its WHERE"),
        (
            "WHERE id = :key;",
            "WHERE id = (SELECT max(id) FROM lines);",
            "the UPDATE has no `:key` in its WHERE",
        ),
    ] {
        let text = BATCH.replace(from, to);
        let warnings = Case::new(&text).check().await.unwrap().warnings;
        assert_eq!(warnings.len(), 1, "{to}: {warnings:?}");
        assert!(warnings[0].contains(words) && warnings[0].contains("batch.toml, line "), "{warnings:?}");
    }
    let text = BATCH.replace("WHERE id = :key;", "WHERE id IN (SELECT id FROM lines WHERE id = :key);");
    assert_eq!(Case::new(&text).check().await.unwrap().warnings, Vec::<String>::new());
}

#[tokio::test]
async fn a_step_that_changes_all_rows_is_worth_a_word_with_its_line() {
    let step = |sql: &str| {
        BATCH.replacen("[ai]\n", &format!("[[step]]\nname = \"note\"\nsql = \"{sql}\"\n[ai]\n"), 1)
    };
    for (sql, words) in [
        ("UPDATE lines SET status = 'seen'", "the UPDATE has no WHERE"),
        ("DELETE FROM todo WHERE line > 0", "the DELETE has no `:key` in its WHERE"),
    ] {
        let warnings = Case::new(&step(sql)).check().await.unwrap().warnings;
        assert_eq!(warnings.len(), 1, "{sql}: {warnings:?}");
        assert!(warnings[0].contains(words) && warnings[0].contains("batch.toml, line 3"), "{warnings:?}");
    }
    for sql in ["DELETE FROM todo WHERE line = :key", "INSERT INTO todo VALUES (:key)"] {
        assert_eq!(Case::new(&step(sql)).check().await.unwrap().warnings, Vec::<String>::new(), "{sql}");
    }
}

#[tokio::test]
async fn keys_that_several_candidates_have_are_named_before_a_batch_is_opened() {
    let case = Case::new(
        &BATCH.replace("FROM lines", "FROM (SELECT * FROM lines UNION ALL SELECT * FROM lines) AS twice"),
    );
    let source = open(&case.database());
    let LoadedBatchFile { definition, source_map, .. } = &case.loaded;
    let error = candidate_keys(definition, source_map, &source).await.unwrap_err().to_string();
    assert!(error.contains("in `id` one key has several candidates: `1`"), "{error}");
    let case = Case::new(BATCH);
    candidate_keys(&case.loaded.definition, &case.loaded.source_map, &open(&case.database())).await.unwrap();
}

#[tokio::test]
async fn candidates_without_a_key_are_named_before_a_batch_is_opened() {
    let refused = async |from: &str| {
        let candidates = "SELECT id, priority\nFROM lines\nWHERE status = 'open' AND qty > :least";
        assert!(BATCH.contains(candidates));
        let case =
            Case::new(&BATCH.replace(candidates, from).replace("[candidates.params]\nleast = 0\n", ""));
        let LoadedBatchFile { definition, source_map, .. } = &case.loaded;
        candidate_keys(definition, source_map, &open(&case.database())).await.unwrap_err()
    };
    let error = refused("SELECT NULL AS id, 5 AS priority, 'Acme' AS vendor -- none\n;").await;
    assert_eq!(
        error.message,
        "keys must not be NULL, but `id` is NULL in one candidate: it has `priority` = `5`, `vendor` = `Acme`"
    );
    assert!(error.hint.as_ref().unwrap().contains("`id IS NOT NULL`") && error.line.is_some(), "{error:?}");
    let error =
        refused("SELECT 1 AS id, NULL AS priority UNION ALL SELECT NULL, NULL UNION ALL SELECT NULL, NULL")
            .await;
    assert_eq!(error.message, "keys must not be NULL, but `id` is NULL in 2 candidates");
}

#[tokio::test]
async fn two_columns_of_one_name_are_worth_a_word() {
    let text = BATCH.replace("SELECT id, vendor,", "SELECT id, status AS vendor, vendor, 1 AS row,");
    let text = text.replace("row.price", "price");
    let warnings = Case::new(&text).check().await.unwrap().warnings;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("two columns `vendor`"), "{warnings:?}");
}

#[tokio::test]
async fn templates_may_compute_index_and_test_what_a_row_has() {
    for line in [
        "{{ qty * price }}",
        "{{ history[2].qty + 1 }}",
        "{% if qty and qty > 3 %}many{% endif %}",
        "{% for n in row %}{{ n }}{% endfor %}",
        "{% set x = qty %}{{ x }}{{ range(3)|join }}",
        "{{ vendor|upper|replace('A', 'B') }}",
    ] {
        let text = BATCH.replace("Vendor {{ vendor }}", line);
        let found = Case::new(&text).check().await;
        found.unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

#[tokio::test]
async fn without_a_schema_fields_are_named_as_such() {
    let schema = &BATCH[BATCH.find("[ai.schema]").unwrap()..BATCH.find("[profiles").unwrap()];
    let text = BATCH.replace(schema, "");
    let error = Case::new(&text).check().await.unwrap_err();
    assert_eq!(error.message, "unknown parameter `:verdict`");
    assert!(error.hint.unwrap().contains("`:answer_<field>`"));
    Case::new(&text.replace(":verdict", ":answer_verdict")).check().await.unwrap();
}

#[tokio::test]
async fn a_definition_made_in_rust_is_checked_without_places() {
    let case = Case::new(&BATCH.replace("FROM lines\nWHERE status", "FROM linse\nWHERE status"));
    let source = open(&case.database());
    let error = check(&case.loaded.definition, &Default::default(), &source).await.unwrap_err();
    assert_eq!((error.line, error.file.as_str()), (None, case.loaded.definition.source.as_str()));
    assert!(error.message.contains("no such table: linse"), "{error}");
}

#[tokio::test]
async fn the_files_of_the_reading_tests_fail_only_for_want_of_their_tables() {
    for text in [FULL, SMALL] {
        let error = Case::new(text).check().await.unwrap_err();
        assert!(error.message.contains("no such table"), "{error}");
    }
}

#[tokio::test]
async fn the_examples_pass_without_a_word() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut seen = 0;
    for example in std::fs::read_dir(examples).unwrap() {
        let example = example.unwrap().path();
        if !example.join("batch.toml").exists() {
            continue;
        }
        let loaded = load(&example, &Overrides::default()).unwrap_or_else(|error| panic!("{error}"));
        let dir = TempDir::new().unwrap();
        let database = dir.path().join("rows.db");
        let seed = std::fs::read_to_string(loaded.seed.as_ref().unwrap()).unwrap();
        Connection::open(&database).unwrap().execute_batch(&seed).unwrap();
        let checked = check(&loaded.definition, &loaded.source_map, &open(&database)).await;
        let checked = checked.unwrap_or_else(|error| panic!("{error}; {:?}", error.hint));
        assert_eq!(checked.warnings, Vec::<String>::new(), "{}", example.display());
        seen += 1;
    }
    assert!(seen >= 2, "there are two examples");
}
