//! `secrets_never_printed`, part 1: a marked key goes through every command that touches keys, in
//! every format, at trace level, in failures too. Every byte of output and every written file is then
//! searched for it.

use std::path::Path;

use crate::support::{CliOutput, TestDir};

/// Recognisable fragments of the secret; none may appear.
const SECRET_FRAGMENTS: [&str; 3] = ["sk-ant-mArKeD", "zQ7secretZQ7", "mArKeD-zQ7secret"];
pub const SECRET: &str = "sk-ant-mArKeD-zQ7secretZQ7-0123456789";

/// All output, each with its source.
#[derive(Default)]
pub struct CapturedOutput(pub Vec<(String, Vec<u8>)>);

impl CapturedOutput {
    pub fn add(&mut self, source: String, bytes: impl Into<Vec<u8>>) {
        self.0.push((source, bytes.into()));
    }

    pub fn assert_no_secret(&self) {
        for (source, bytes) in &self.0 {
            for fragment in SECRET_FRAGMENTS {
                let found = bytes.windows(fragment.len()).any(|part| part == fragment.as_bytes());
                assert!(!found, "`{fragment}` came out of {source}: {}", String::from_utf8_lossy(bytes));
            }
        }
    }
}

/// Captures all files below a directory, except files that the test itself wrote.
pub fn capture_files(dir: &Path, ours: &[&str], captured: &mut CapturedOutput) {
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            capture_files(&entry.path(), ours, captured);
        } else if !ours.contains(&name.as_str()) {
            captured.add(entry.path().display().to_string(), std::fs::read(entry.path()).unwrap());
        }
    }
}

/// Commands that take the secret on stdin, that get it in a wrong argument, and that are invalid.
const COMMANDS: [&[&str]; 30] = [
    &["key", "init"],
    &["key", "add", "k", "--provider", "anthropic"],
    &["key", "add", "k"],
    &["key", "add", "k", SECRET],
    &["key", "add", SECRET],
    &["key", "add", SECRET, "--for", "acme"],
    &["key", "add", "other", "--for", "acme"],
    &["key", "list"],
    &["key", "rotate", "k", "--grace", "1h"],
    &["key", "rotate", "k", SECRET],
    &["key", "rotate", "none"],
    &["key", "init", "--out", "new.key"],
    &["key", "rewrap", "--old", "longshore.key", "--new", "new.key"],
    &["key", "rewrap", "--old", "longshore.key", "--new", "secret.txt"],
    &["profile", "add", "p", "--provider", "anthropic", "--model", "m", "--key", "k"],
    &["profile", "add", "q", "--provider", "anthropic", "--model", "m", "--key", SECRET],
    &["profile", "set", "p", "--key", SECRET],
    &["profile", "set", "p", "--set", "key=sk-ant-mArKeD-zQ7secretZQ7-0123456789"],
    &["profile", "set", "p", "--set", SECRET],
    &["profile", "set", "p", "--set", "wire.headers.x-api-key=sk-ant-mArKeD-zQ7secretZQ7-0123456789"],
    &["profile", "set", "p", "--endpoint", "https://sk-ant-mArKeD-zQ7secretZQ7-0123456789@x"],
    &["profile", "add", "r", "--from", "leaky.toml"],
    &["profile", "add", "r", "--from", "secret.txt"],
    &["profile", "list"],
    &["profile", "show", "p"],
    &["profile", "test", "p", "--offline"],
    &["usage"],
    &["key", "revoke", "k", "--version", "1"],
    &["key", "revoke", SECRET],
    &["key", "revoke", "k"],
];

#[test]
fn secrets_never_printed() {
    let mut captured = CapturedOutput::default();
    for form in ["human", "json"] {
        let dir = TestDir::new();
        dir.write("secret.txt", SECRET);
        dir.write("leaky.toml", format!("provider = \"openai\"\nmodel = \"m\"\nkey = \"{SECRET}\"\n"));
        for (i, args) in COMMANDS.iter().enumerate() {
            let mut args = [args, &["--log-level", "trace", "--log-format", form][..]].concat();
            if form == "json" {
                args.push("--json");
            }
            // Every other command logs into a file.
            if i % 2 == 1 {
                args.extend(["--log-dir", "logs"]);
            }
            let run = dir.run_with(&args, SECRET);
            captured.add(format!("stdout of {i} {form}"), run.out);
            captured.add(format!("stderr of {i} {form}"), run.err);
        }
        let keys = dir.run(&["key", "list", "--json"]).ok().json();
        assert_eq!(keys.as_array().unwrap().len(), 3, "the valid keys are stored: {keys}");
        capture_files(&dir.path(""), &["secret.txt", "leaky.toml"], &mut captured);
    }
    assert!(captured.0.iter().any(|(source, _)| source.ends_with("longshore.db")), "the store was searched");
    assert!(captured.0.iter().any(|(source, _)| source.contains("logs")), "so were the log files");
    captured.assert_no_secret();
}

/// Addresses of databases with the secret as their password: as URLs and not, right and wrong.
const ADDRESSES: [&str; 14] = [
    "host=127.0.0.1 password=PASSWORD",
    "host=127.0.0.1 password=PASSWORD:x",
    "password=PASSWORD host=127.0.0.1:1",
    "PASSWORD@127.0.0.1:1",
    "postgres:host=127.0.0.1 password=PASSWORD",
    "postgres://me:PASSWORD@127.0.0.1:1/x",
    "postgres://me:PASSWORD@127.0.0.1:port/x",
    "postgres://me:x@PASSWORD@127.0.0.1:1/x",
    "postgres://me@127.0.0.1:1/x?password=x@PASSWORD",
    "postgres://me@127.0.0.1:1/x?password=x&PASSWORD=1",
    "mysql://me:PASSWORD@127.0.0.1:port/x",
    "redis://:PASSWORD@127.0.0.1:port",
    "redis://:PASSWORD@127.0.0.1:1/PASSWORD",
    "env:postgres://me:PASSWORD@127.0.0.1:1/x",
];

/// A batch file without its database.
const BATCH: &str = r#"type = "test"
[candidates]
sql = "SELECT id FROM t"
key = "id"
[pre]
sql = "SELECT id FROM t WHERE id = :key"
prompt = "x"
[ai]
profile = "echo"
[profiles.echo]
provider = "echo"
[post]
success = "UPDATE t SET done = 1 WHERE id = :key"
"#;

#[test]
fn the_password_in_a_databases_address_is_never_printed() {
    let mut captured = CapturedOutput::default();
    for address in ADDRESSES.map(|address| address.replace("PASSWORD", SECRET)) {
        let dir = TestDir::new();
        dir.write("store.toml", format!("store = {address:?}\n"));
        dir.write("listen.toml", format!("[postgres]\nlisten_url = {address:?}\n"));
        dir.write("permits.toml", format!("permits = {address:?}\n[pools.p]\nmax = 1\n"));
        dir.write("prompts.toml", format!("[ai]\nprompts_db = {address:?}\nprompts_sql = \"SELECT 1\"\n"));
        dir.write("batch.toml", format!("database = {address:?}\n{BATCH}"));
        let mut by_variable = dir.command(&["queue", "list"]);
        let by_variable = CliOutput::of(by_variable.env("LONGSHORE_STORE", &address).spawn().unwrap());
        let mut outputs = vec![by_variable];
        for args in [
            &["--store", &address, "queue", "list"][..],
            &["--config", "store.toml", "queue", "list"],
            &["--config", "listen.toml", "queue", "list"],
            &["--config", "permits.toml", "pool", "status"],
            &["--config", "prompts.toml", "ai", "worker", "--until-idle"],
            &["batch", "run", "batch.toml", "--dry-run"],
            &["batch", "run", "batch.toml"],
        ] {
            outputs.push(dir.run(args));
        }
        for (i, run) in outputs.into_iter().enumerate() {
            captured.add(format!("stdout of {i} with {address}"), run.out);
            captured.add(format!("stderr of {i} with {address}"), run.err);
        }
    }
    captured.assert_no_secret();
}

/// The search itself works: it finds the secret.
#[test]
#[should_panic(expected = "came out of a file")]
fn a_secret_that_comes_out_is_noticed() {
    let mut captured = CapturedOutput::default();
    captured.add("a file".to_owned(), format!("key = {SECRET}"));
    captured.assert_no_secret();
}
