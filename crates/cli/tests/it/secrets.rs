//! `secrets_never_printed`, part 1: a marked key goes through every command that touches keys, in
//! every format, at trace level, in failures too. Every byte of output and every written file is then
//! searched for it.

use std::path::Path;

use crate::support::Place;

/// Recognisable fragments of the secret; none may appear.
const MARKS: [&str; 3] = ["sk-ant-mArKeD", "zQ7secretZQ7", "mArKeD-zQ7secret"];
pub const SECRET: &str = "sk-ant-mArKeD-zQ7secretZQ7-0123456789";

/// All output, each with its source.
#[derive(Default)]
pub struct Heard(pub Vec<(String, Vec<u8>)>);

impl Heard {
    pub fn hear(&mut self, how: String, bytes: impl Into<Vec<u8>>) {
        self.0.push((how, bytes.into()));
    }

    pub fn holds_no_mark(&self) {
        for (how, bytes) in &self.0 {
            for mark in MARKS {
                let found = bytes.windows(mark.len()).any(|part| part == mark.as_bytes());
                assert!(!found, "`{mark}` came out of {how}: {}", String::from_utf8_lossy(bytes));
            }
        }
    }
}

/// Captures all files below a directory, except files that the test itself wrote.
pub fn files(dir: &Path, ours: &[&str], heard: &mut Heard) {
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            files(&entry.path(), ours, heard);
        } else if !ours.contains(&name.as_str()) {
            heard.hear(entry.path().display().to_string(), std::fs::read(entry.path()).unwrap());
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
    &[
        "profile",
        "set",
        "p",
        "--set",
        "wire.headers.x-api-key=sk-ant-mArKeD-zQ7secretZQ7-0123456789",
    ],
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
    let mut heard = Heard::default();
    for form in ["human", "json"] {
        let place = Place::new();
        place.write("secret.txt", SECRET);
        place.write(
            "leaky.toml",
            format!("provider = \"openai\"\nmodel = \"m\"\nkey = \"{SECRET}\"\n"),
        );
        for (i, args) in COMMANDS.iter().enumerate() {
            let mut args = [args, &["--log-level", "trace", "--log-format", form][..]].concat();
            if form == "json" {
                args.push("--json");
            }
            // Every other command logs into a file.
            if i % 2 == 1 {
                args.extend(["--log-dir", "logs"]);
            }
            let run = place.run_with(&args, SECRET);
            heard.hear(format!("stdout of {i} {form}"), run.out);
            heard.hear(format!("stderr of {i} {form}"), run.err);
        }
        let keys = place.run(&["key", "list", "--json"]).ok().json();
        assert_eq!(keys.as_array().unwrap().len(), 3, "the good ones were kept: {keys}");
        files(&place.path(""), &["secret.txt", "leaky.toml"], &mut heard);
    }
    assert!(heard.0.iter().any(|(how, _)| how.ends_with("longshore.db")), "the store was searched");
    assert!(heard.0.iter().any(|(how, _)| how.contains("logs")), "so were the log files");
    heard.holds_no_mark();
}

/// The search itself works: it finds the secret.
#[test]
#[should_panic(expected = "came out of a file")]
fn a_secret_that_comes_out_is_noticed() {
    let mut heard = Heard::default();
    heard.hear("a file".to_owned(), format!("key = {SECRET}"));
    heard.holds_no_mark();
}
