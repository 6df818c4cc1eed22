//! PRE and POST by a real persistent program.

use std::path::Path;
use std::sync::Arc;

use longshore::{SqlValue, Unit, UnitState};
use longshore_batch::Definition;
use longshore_batch::command::{APPLY, CommandError, Commands, PREPARE};
use longshore_batch::definition::{CommandPost, CommandPre, CommandSpec, Post, Pre, SqlPost};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::fixture::{FakeProvider, Fixture, definition, statement};

/// A fixture that runs rows through `steps.py`, which records in a folder what it has done once.
struct CommandFixture {
    fixture: Fixture,
    folder: TempDir,
    definition: Definition,
}

impl CommandFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (command, sql) = (steps(folder.path()), "SELECT id FROM rows WHERE id = :key".to_owned());
        let pre = CommandPre { command: command.clone(), sql: Some(sql), lists: [].into() };
        let post = CommandPost { command, row_sql: None };
        let (pre, post) = (Pre::Command(pre), Post::Command(post));
        let definition = Definition { pre, post, ..definition() };
        Self {
            fixture: Fixture::in_memory(FakeProvider::always(r#"{"verdict": "fine"}"#)),
            folder,
            definition,
        }
    }

    /// Runs one row to its end.
    async fn row(&self, key: &str) -> Unit {
        let id = self.fixture.start(&self.definition, &[json!(key)]).await;
        self.fixture.work(self.fixture.handler()).await;
        self.fixture.only_unit(&id).await
    }
}

fn steps(folder: &Path) -> CommandSpec {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/steps.py");
    let words = ["python3".into(), fixture.display().to_string(), folder.display().to_string()];
    CommandSpec::new(words.to_vec(), folder.display().to_string())
}

fn words(unit: &Unit) -> String {
    assert_eq!(unit.state, UnitState::Failed);
    unit.failure.as_ref().unwrap().to_string()
}

#[tokio::test]
async fn a_command_is_told_what_is_known_and_its_effects_are_bound() {
    let steps = CommandFixture::new();
    let unit = steps.row("k").await;
    assert_eq!((unit.state, unit.attempt), (UnitState::Done, 1), "{:?}", unit.failure);
    let prompt = steps.fixture.provider.questions.lock().unwrap()[0].prompt.clone();
    let asked: Value = serde_json::from_str(&prompt).unwrap();
    assert_eq!((&asked["key"], &asked["row"]), (&json!("k"), &json!({"id": "k"})), "{asked}");
    assert_eq!((&asked["batch"], &asked["attempt"]), (&json!("b-1"), &json!(1)), "{asked}");
    assert_eq!(asked["unit"], unit.id.to_string());

    let bound = |name| steps.fixture.rows.bound(0, name);
    assert_eq!(bound("key"), SqlValue::Text("k".into()), "bound by itself");
    assert_eq!(bound("verdict"), SqlValue::Text("fine".into()), "a field of the answer");
    assert_eq!(bound("bytes"), SqlValue::Blob(vec![0, 0xff]));
    let SqlValue::Text(told) = bound("told") else { panic!("{:?}", bound("told")) };
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["answer"], json!({"verdict": "fine"}), "{told}");
    assert_eq!((&told["status"], &told["model"]), (&json!("success"), &json!("fake-1")), "{told}");
    assert_eq!((&told["error_code"], &told["last_attempt"]), (&json!(null), &json!(false)));
    assert_eq!(told["pid"], asked["pid"], "one command, the same process");
}

#[tokio::test]
async fn a_row_that_is_skipped_is_asked_about_by_nobody_and_has_sql_of_its_own() {
    let mut steps = CommandFixture::new();
    let (skip, success) = ("UPDATE rows SET note = :error_message", "UPDATE rows SET n = :verdict");
    let (skip, success) = (vec![statement(skip)], vec![statement(success)]);
    steps.definition.post = Post::Sql(SqlPost { skip, success, ..SqlPost::default() });
    let unit = steps.row("skip").await;
    assert_eq!(unit.state, UnitState::Done);
    assert_eq!(steps.fixture.provider.count(), 0);
    assert_eq!(steps.fixture.rows.statements(), ["UPDATE rows SET note = :error_message"]);
    assert_eq!(steps.fixture.rows.bound(0, "error_message"), SqlValue::Text("dull".into()));
}

#[tokio::test]
async fn a_process_that_dies_costs_no_attempt_and_asks_nobody_twice() {
    for key in ["die once in prepare", "die once in apply"] {
        let steps = CommandFixture::new();
        let unit = steps.row(key).await;
        assert_eq!((unit.state, unit.attempt), (UnitState::Done, 1), "{key}: {:?}", unit.failure);
        assert_eq!(steps.fixture.provider.count(), 1, "{key}");
        assert_eq!(steps.fixture.rows.statements().len(), 1, "{key}");
    }
}

#[tokio::test]
async fn a_row_that_kills_every_process_comes_to_its_end() {
    let steps = CommandFixture::new();
    let text = words(&steps.row("die in prepare").await);
    assert!(text.starts_with("pre-error") && text.contains("signal 9"), "{text}");
    let steps = CommandFixture::new();
    let text = words(&steps.row("die in apply").await);
    assert!(text.starts_with("post-error") && text.contains("signal 9"), "{text}");
    assert_eq!(steps.fixture.provider.count(), 1, "the answer was kept");
}

#[tokio::test]
async fn exceptions_are_tried_again_unless_the_program_says_otherwise() {
    let steps = CommandFixture::new();
    let unit = steps.row("raise in prepare").await;
    assert_eq!(unit.attempt, 3);
    assert!(words(&unit).contains("ValueError: so it goes"), "{}", words(&unit));
    let steps = CommandFixture::new();
    let unit = steps.row("raise in apply").await;
    assert_eq!((unit.attempt, steps.fixture.provider.count()), (3, 1), "without asking again");
    for key in ["give up in prepare", "give up in apply"] {
        let unit = CommandFixture::new().row(key).await;
        assert_eq!(unit.attempt, 1, "{key}");
        assert!(words(&unit).contains("never"), "{}", words(&unit));
    }
    for key in ["come back in prepare", "come back in apply"] {
        let steps = CommandFixture::new();
        let unit = steps.row(key).await;
        assert_eq!((unit.state, unit.attempt), (UnitState::Done, 1), "{key}: {:?}", unit.failure);
        assert_eq!(steps.fixture.provider.count(), 1, "{key}");
    }
}

#[tokio::test]
async fn a_verdict_of_retry_asks_again() {
    let steps = CommandFixture::new();
    let unit = steps.row("retry").await;
    assert_eq!((unit.state, unit.attempt), (UnitState::Done, 2));
    assert_eq!(steps.fixture.provider.count(), 2);
}

#[tokio::test]
async fn answers_that_mean_nothing_are_failures_and_no_guesses() {
    for (key, meant) in [
        ("nonsense in prepare", "`prepare` answers with a prompt"),
        ("nonsense in apply", "`perhaps` is no verdict"),
        ("unbound", "`:nothing`, which has no value"),
    ] {
        let text = words(&CommandFixture::new().row(key).await);
        assert!(text.contains(meant), "{key}: {text}");
    }
}

#[tokio::test]
async fn a_command_that_does_not_start_is_not_tried_for_every_row() {
    let steps = CommandFixture::new();
    let mark = steps.folder.path().join("started");
    let script = format!("echo x >> {}; echo no walrus >&2; exit 3", mark.display());
    let command = CommandSpec::new(vec!["sh".into(), "-c".into(), script], "/");
    let commands = Arc::new(Commands::default());
    for operation in [PREPARE, APPLY, PREPARE] {
        let error = commands.open(&command, operation).await.unwrap_err();
        assert!(matches!(error, CommandError::NotStarted { .. }), "{error}");
        assert!(error.to_string().contains("no walrus"), "{error}");
    }
    assert_eq!(std::fs::read_to_string(mark).unwrap(), "x\n");
}
