//! `key`: keys are read from stdin, listed without their secrets, rotated, revoked and rewrapped.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::{CliOutput, TestDir};

const SECRET: &str = "sk-first-0123456789abcdef";

/// A test directory with a master key.
pub fn dir_with_master_key() -> TestDir {
    let dir = TestDir::new();
    dir.run(&["key", "init"]).ok();
    dir
}

fn add_key(dir: &TestDir, name: &str) -> CliOutput {
    dir.run_with(&["key", "add", name, "--provider", "anthropic"], SECRET)
}

fn list_keys(dir: &TestDir) -> Vec<Value> {
    dir.run(&["key", "list", "--json"]).ok().json().as_array().unwrap().clone()
}

#[test]
fn a_key_is_added_listed_rotated_and_revoked() {
    let dir = dir_with_master_key();
    assert!(add_key(&dir, "claude").ok().out.contains("key `claude` of `default` is stored"));
    add_key(&dir, "claude").ends(1).says("is there already").says("key rotate claude");
    let rotate = ["key", "rotate", "claude", "--grace", "1h", "--json"];
    let rotated = dir.run_with(&rotate, "sk-second\n").ok().json();
    assert_eq!(rotated, json!({ "tenant": "default", "key": "claude", "version": 2 }));
    let keys = list_keys(&dir);
    let states: Vec<_> = keys.iter().map(|key| (key["version"].clone(), key["status"].clone())).collect();
    assert_eq!(states, [(json!(1), json!("retiring")), (json!(2), json!("active"))]);
    assert_eq!(keys[0]["provider"], "anthropic");
    dir.run(&["key", "revoke", "claude", "--version", "1"]).ok();
    assert_eq!(list_keys(&dir)[0]["status"], "revoked");
    dir.run(&["key", "revoke", "claude"]).ok();
    assert!(list_keys(&dir).iter().all(|key| key["status"] == "revoked"));
    let table = dir.run(&["key", "list"]).ok().out;
    assert!(table.contains("revoked") && table.contains("claude"), "{table}");
    add_key(&dir, "claude").ok();
    assert_eq!(list_keys(&dir).len(), 3, "a revoked name may be used again");
}

#[test]
fn a_key_belongs_to_its_tenant_and_others_do_not_see_it() {
    let dir = dir_with_master_key();
    dir.run_with(&["key", "add", "k", "--for", "acme"], SECRET).ok();
    dir.run_with(&["key", "add", "k", "--tenant", "other"], SECRET).ok();
    let theirs = dir.run(&["key", "list", "--tenant", "acme", "--json"]).ok().json();
    assert_eq!(theirs.as_array().unwrap().len(), 1);
    dir.run(&["key", "revoke", "k", "--tenant", "other", "--for", "acme"]).ends(1);
    assert_eq!(list_keys(&dir)[0]["status"], "active");
    dir.run(&["key", "revoke", "k"]).ends(1).says("key list");
}

#[test]
fn a_secret_that_is_none_is_refused_and_so_is_one_among_the_arguments() {
    let dir = dir_with_master_key();
    for (secret, words) in [
        ("", "is empty"),
        ("\n", "is empty"),
        ("sk-one\nsk-two", "more than one line"),
        ("sk-ünsound", "not ASCII"),
        ("sk-one two", "spaces"),
    ] {
        let run = dir.run_with(&["key", "add", "k"], secret).ends(2).says(words).says("stdin");
        assert!(!run.err.contains("sk-one"), "{}", run.err);
    }
    for args in [
        &["key", "add", "k", SECRET][..],
        &["key", "add", SECRET],
        &["key", "rotate", "k", SECRET],
        &["key", "add", "k", "--provider", SECRET],
        &["key", "revoke", SECRET],
        &["key", "add", "k", "--provider", "openai", SECRET, "more"],
    ] {
        let run = dir.run(args);
        assert_ne!(run.code, 0);
        assert!(!format!("{}{}", run.out, run.err).contains("0123456789"), "{}", run.err);
    }
    dir.run(&["key", "add", "env:X"]).ends(2).says("key add claude");
    assert_eq!(list_keys(&dir), Vec::<Value>::new());
    dir.run_with(&["key", "rotate", "nokey"], SECRET).ends(1).says("no key `nokey`").says("key list");
    dir.run(&["key", "revoke", "nokey"]).ends(1).says("key list");
}

#[test]
fn without_a_master_key_nothing_is_sealed_and_no_secret_is_asked_for() {
    let dir = TestDir::new();
    add_key(&dir, "k").ends(1).says("no master key").says("key init");
    dir.run(&["key", "list"]).ok();
    dir.run(&["key", "init"]).ok();
    let mode = std::fs::metadata(dir.path("longshore.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(std::fs::read(dir.path("longshore.key")).unwrap().len(), 32);
    dir.run(&["key", "init"]).ends(1).says("exists already").says("never overwritten");
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(dir.path("longshore.key"), open).unwrap();
    add_key(&dir, "k").ends(1).says("is accessible to other users").says("chmod 600");
}

#[test]
fn the_master_key_is_found_where_file_variable_and_credential_say() {
    let dir = TestDir::new();
    dir.run(&["key", "init", "--out", "elsewhere.key"]).ok();
    dir.write("longshore.toml", "[vault]\nkey_file = \"elsewhere.key\"\n");
    add_key(&dir, "one").ok();
    let master = list_keys(&dir)[0]["master"].clone();
    dir.write("longshore.toml", "");
    let bytes = std::fs::read(dir.path("elsewhere.key")).unwrap();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    dir.write("credentials.longshore-master", &bytes);
    std::fs::create_dir(dir.path("credentials")).unwrap();
    std::fs::rename(dir.path("credentials.longshore-master"), dir.path("credentials/longshore-master"))
        .unwrap();
    for (i, (variable, value)) in [
        ("LONGSHORE_KEY_FILE", "elsewhere.key".to_owned()),
        ("LONGSHORE_MASTER_KEY", hex),
        ("CREDENTIALS_DIRECTORY", dir.path("credentials").display().to_string()),
    ]
    .into_iter()
    .enumerate()
    {
        dir.write("secret", SECRET);
        let mut command = dir.command(&["key", "add", &format!("more-{i}")]);
        command.env(variable, value).stdin(std::fs::File::open(dir.path("secret")).unwrap());
        CliOutput::of(command.spawn().unwrap()).ok();
    }
    let masters: Vec<Value> = list_keys(&dir).iter().map(|key| key["master"].clone()).collect();
    assert_eq!(masters, vec![master; 4]);
    dir.write("longshore.toml", "[vault]\nkey_file = \"credential:../x\"\n");
    dir.run(&["key", "list"]).ends(2).says("vault.key_file");
}

#[test]
fn keys_are_wrapped_by_a_new_master_key_and_the_old_one_is_not_needed_any_more() {
    let dir = dir_with_master_key();
    for name in ["a", "b", "c"] {
        add_key(&dir, name).ok();
    }
    dir.run(&["profile", "add", "p", "--provider", "echo", "--key", "a"]).ok();
    dir.run(&["key", "init", "--out", "new.key"]).ok();
    let rewrap = ["key", "rewrap", "--old", "longshore.key", "--new", "new.key", "--json"];
    let done = dir.run(&rewrap).ok().json();
    assert_eq!((&done["moved"], &done["there"], &done["left"]), (&json!(3), &json!(0), &json!([])));
    let again = dir.run(&rewrap).ok().json();
    assert_eq!((&again["moved"], &again["there"]), (&json!(0), &json!(3)));
    dir.run(&["profile", "test", "p", "--offline"]).ends(1).says("which is not loaded").says("key rewrap");
    std::fs::rename(dir.path("new.key"), dir.path("longshore.key")).unwrap();
    dir.run(&["profile", "test", "p", "--offline"]).ok();
}

#[test]
fn a_key_of_a_third_master_key_is_left_and_named() {
    let dir = dir_with_master_key();
    add_key(&dir, "a").ok();
    dir.run(&["key", "init", "--out", "two"]).ok();
    dir.run(&["key", "init", "--out", "three"]).ok();
    let left = dir.run(&["key", "rewrap", "--old", "two", "--new", "three"]).ends(3);
    left.says("still needed").says("default");
    dir.run(&["key", "rewrap", "--old", "two", "--new", "two"]).ends(2).says("the same");
    dir.run(&["key", "rewrap", "--old", "none", "--new", "two"]).ends(1).says("none");
    dir.write("short", "abc");
    let shut = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(dir.path("short"), shut).unwrap();
    dir.run(&["key", "rewrap", "--old", "short", "--new", "two"]).ends(1).says("32 bytes");
}
