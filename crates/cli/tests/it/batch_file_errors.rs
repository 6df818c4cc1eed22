//! Bad batch files: each mistake yields one clear error with file, line and hint, before anything is
//! changed.

use std::collections::BTreeMap;

use crate::batch_job::{BatchJob, edit_batch};
use crate::support::CliOutput;

/// All files of the job's folder with their contents.
fn file_contents(job: &BatchJob) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(job.dir.path("")).unwrap().map(Result::unwrap);
    let files = files.filter(|file| file.file_type().unwrap().is_file());
    files.map(|file| (file.file_name().display().to_string(), std::fs::read(file.path()).unwrap())).collect()
}

/// A job with valid rows; each test breaks the batch file.
fn job() -> BatchJob {
    let job = BatchJob::good(10);
    job.create();
    job
}

/// Runs a job that must be refused, and checks that nothing changed. `batch start` and a dry run must
/// report the same error.
#[track_caller]
fn refuses(job: &BatchJob, args: &[&str]) -> CliOutput {
    let before = file_contents(job);
    let run = job.dir.run(&[&["batch", "run"], args].concat());
    assert!((1..=2).contains(&run.code), "{args:?}: exit {}: {}", run.code, run.err);
    let errors = run.err.lines().filter(|line| line.starts_with("error:"));
    assert_eq!(errors.count(), 1, "one error: {}", run.err);
    assert!(!run.err.contains("panicked"), "{}", run.err);
    assert_eq!(run.out, "", "stdout is for data");
    for args in [[&["batch", "start"], args].concat(), [&["batch", "run", "--dry-run"], args].concat()] {
        let other = job.dir.run(&args);
        assert_eq!((other.code, &other.err), (run.code, &run.err), "{args:?}");
    }
    let after = file_contents(job);
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    assert!(before == after, "a file was changed: {}", run.err);
    run
}

/// Replaces `right` with `wrong` and expects an error on the line where `wrong` begins.
#[track_caller]
fn rejects(right: &str, wrong: &str, words: &str, hint: &str) {
    let job = job().with(&[(right, wrong)]);
    let text = edit_batch(&[(right, wrong)]);
    let line = text[..text.find(wrong).unwrap()].matches('\n').count() + 1;
    let run = refuses(&job, &["."]).says(&format!("batch.toml, line {line}:")).says(words);
    if !hint.is_empty() {
        run.says("hint:").says(hint);
    }
}

#[test]
fn an_unknown_key_is_refused() {
    rejects("workers = 8", "wrokers = 8", "unknown key `wrokers`", "did you mean `workers`?");
    rejects("prompt = \"", "promt = \"", "unknown key `promt` in [pre]", "did you mean `prompt`?");
}

#[test]
fn sql_that_the_database_does_not_understand_is_refused() {
    for (right, wrong, words, hint) in [
        ("sql = \"SELECT id FROM", "sql = \"SELEKT id FROM", "near \"SELEKT\": syntax error", ""),
        ("sql = \"SELECT id FROM rows", "sql = \"SELECT id FROM rowz", "no such table: rowz", "`rows`?"),
        ("sql = \"SELECT id, sort", "sql = \"SELECT id, sorte", "no such column: sorte", "`sort`?"),
        ("key = \"id\"", "key = \"ident\"", "no column `ident`", "did you mean `id`?"),
        (
            "\"INSERT INTO effects (row, batch",
            "\"INSERT INTO effects (row, batsh",
            "no column named batsh",
            "`batch`?",
        ),
        ("fail = \"INSERT INTO failures", "fail = \"INSERT INTO failure", "no such table", "`failures`?"),
        ("sql = \"INSERT INTO ends", "sql = \"INSERT INTO endz", "no such table: endz", "`ends`?"),
    ] {
        rejects(right, wrong, words, hint);
    }
}

#[test]
fn sql_that_does_what_it_must_not_is_refused() {
    for (right, wrong, words, hint) in [
        ("done = 0\"", "done = 0 LIMIT 5\"", "must not limit its rows", "`limit = …`"),
        ("done = 0\"", "done = 0 ORDER BY id\"", "ORDER BY", "the order of their keys"),
        ("sql = \"SELECT id FROM", "sql = \"DELETE FROM", "must be a query", "a SELECT"),
        ("\"UPDATE rows SET", "\"SELECT 1 FROM rows WHERE", "must change rows", "INSERT, UPDATE"),
        (":worker_id, :n)", ":workr_id, :n)", "unknown parameter `:workr_id`", "`worker_id`?"),
        (":done, :failed)", ":done, :filed)", "unknown parameter `:filed`", "`failed`?"),
    ] {
        rejects(right, wrong, words, hint);
    }
}

#[test]
fn a_template_that_is_wrong_is_refused() {
    rejects("prompt = \"Row {{ id }}", "prompt = \"Row {{ id", "the prompt: syntax error", "");
    rejects("is {{ sort }}", "is {{ srot }}", "the prompt uses `srot`", "did you mean `sort`?");
}

#[test]
fn a_schema_that_is_wrong_is_refused() {
    rejects("[ai.schema]\ntype = \"object\"", "[ai.schema]\ntype = \"objekt\"", "the schema: at /type", "");
    let rule = "[[post.rules]]\nwhen = \"status == 'success' and answer.m > 1\"\nthen = \"FAIL\"\n";
    let job = job().with(&[("[retry]", &format!("{rule}\n[retry]"))]);
    refuses(&job, &["."]).says("the schema has no field `m`").says("hint: expected one of: n");
}

#[test]
fn a_parameter_must_be_given_and_known() {
    let wrong = "sql = \"SELECT id FROM rows WHERE done = :since";
    rejects("sql = \"SELECT id FROM rows WHERE done = 0", wrong, "`:since` has no value", "--param since=");
    let job = job().with(&[("done = 0", "done = :since")]);
    let run = refuses(&job, &[".", "--param", "since=0", "--param", "sinse=0"]);
    run.says("batch.toml, line").says("has no `:sinse`").says("did you mean `since`?");
    for command in ["run", "start"] {
        let run = job.dir.run(&["batch", command, ".", "--param", "since"]).ends(2);
        run.says("NAME=VALUE").says(&format!("`longshore batch {command} --help`"));
    }
}

/// If the rows cannot be read, the error names the line with the database's address.
#[test]
fn a_database_that_cannot_be_reached_is_named_with_its_line() {
    let seed = ("seed = \"seed.sql\"\n", "");
    for (database, words) in [
        ("sqlite:none.db", "there is no file"),
        ("sqlite:no/such/dir/rows.db", "there is no file"),
        ("sqlite:script.toml", "is not a SQLite database"),
        ("sqlite:.", "is not a file"),
        ("postgres://me@127.0.0.1:1/rows", "cannot be reached"),
        ("postgres://me:secret@127.0.0.1:1/rows", "contains a password"),
        ("mysql://me@127.0.0.1:1/rows?password=secret", "contains a password"),
        ("odbc:DSN=rows;UID=me;PWD=secret", "contains a password"),
        // Without the MySQL feature the error is about the scheme; with it (as `./test` builds),
        // about the connection. Both name `database`.
        ("mysql://me@127.0.0.1:1/rows", "database"),
        ("env:NO_SUCH_VARIABLE", "`NO_SUCH_VARIABLE` is not set"),
    ] {
        let job = job().with(&[seed, ("sqlite:rows.db", database)]);
        let run = refuses(&job, &["."]).says(words).says("hint:").says("batch.toml");
        assert!(!run.err.contains("secret"), "secrets_never_printed: {}", run.err);
        run.says("batch.toml, line 2:");
    }
}

/// A seed that fails leaves no database, and the error quotes the failing place, not the whole file.
#[test]
fn a_seed_that_does_not_work_leaves_no_database() {
    let job = BatchJob::good(10);
    let seed = job.dir.read("seed.sql");
    job.dir.write("seed.sql", format!("{seed}CREATE TABEL x (y);\n{}", "SELECT 'filler';\n".repeat(500)));
    let run = refuses(&job, &["."]).says("seed.sql").says("near \"TABEL\": syntax error");
    assert!(!job.dir.path("rows.db").exists());
    assert!(run.err.len() < 1_000, "the error is {} bytes long", run.err.len());
}

#[test]
fn a_mistake_in_a_file_beside_it_is_told_there() {
    let job = job();
    for (text, line, words) in [
        ("[[answer]]\nmatch = '('\nreply = 'x'\n", 2, "bad regex"),
        ("[[answer]]\nreplay = 'x'\n", 2, "unknown key `replay`"),
        ("[[answer]]\nmatch = 'x'\nreply = '{{ who }}'\n", 3, "who"),
        ("[[answer]]\nreply = 'x'\nerror = 'TIMEOUT'\n", 1, "either `reply`, or `error`"),
    ] {
        job.dir.write("script.toml", text);
        refuses(&job, &["."]).says(&format!("script.toml, line {line}:")).says(words);
    }
    let job =
        self::job().with(&[("prompt = \"Row {{ id }} is {{ sort }}.\"", "prompt_file = \"prompt.md\"")]);
    refuses(&job, &["."]).says("prompt.md: there is no such file").says("batch.toml, line 12:");
    job.dir.write("prompt.md", "One\ntwo\n{{ thre }}\n");
    refuses(&job, &["."]).says("prompt.md, line 3:").says("`thre`");
    job.dir.write("prompt.md", b"One\n\xff\n");
    refuses(&job, &["."]).says("prompt.md, line 2:").says("UTF-8");
}

#[test]
fn a_file_that_is_no_batch_file_is_refused() {
    let job = job();
    job.dir.write("empty.toml", "");
    refuses(&job, &["empty.toml"]).says("empty.toml: the file is empty").says("hint:");
    job.dir.write("odd.toml", b"type = \"a\"\n# \xff\n");
    refuses(&job, &["odd.toml"]).says("odd.toml, line 2:").says("not valid UTF-8").says("hint:");
    job.dir.write("words.toml", "Dear database,\nplease review the rows.\n");
    refuses(&job, &["words.toml"]).says("words.toml, line 1:");
    refuses(&job, &["none.toml"]).says("none.toml: there is no such file");
    std::fs::create_dir(job.dir.path("folder")).unwrap();
    refuses(&job, &["folder"]).says("there is no batch.toml in this folder");
    refuses(&job, &["rows.db"]).says("rows.db");
}

#[test]
fn a_profile_that_is_not_there_is_refused() {
    rejects("profile = \"script\"", "profile = \"skript\"", "no profile `skript`", "`script`?");
    rejects("provider = \"scripted\"", "provider = \"oracle\"", "`oracle`", "echo, scripted");
    rejects("script = \"script.toml\"", "script = \"none.toml\"", "none.toml: there is no such file", "");
}

/// A key that several rows have, or that is NULL, opens no batch.
#[test]
fn candidates_whose_keys_name_no_row_are_refused() {
    let keys = [
        ("SELECT id FROM", "SELECT 1 AS id FROM", "one key has several candidates: `1`"),
        ("SELECT id FROM", "SELECT NULL AS id, sort FROM", "`id` is NULL in"),
    ];
    for (right, wrong, words) in keys {
        let job = job().with(&[(right, wrong)]);
        job.dir.run(&["batch", "run", "."]).ends(1).says("error:").says(words).says("hint:");
        assert_eq!((job.count("effects"), job.count("ends")), (0, 0));
        assert_eq!(job.batches(), Vec::<serde_json::Value>::new(), "no batch was opened");
    }
}
