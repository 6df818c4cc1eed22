//! `key`: keys go in by stdin, are listed without their secrets, rotated, revoked and wrapped anew.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::{Place, Run};

const SECRET: &str = "sk-first-0123456789abcdef";

/// A place with a master key.
pub fn place() -> Place {
    let place = Place::new();
    place.run(&["key", "init"]).ok();
    place
}

fn add(place: &Place, name: &str) -> Run {
    place.run_with(&["key", "add", name, "--provider", "anthropic"], SECRET)
}

fn list(place: &Place) -> Vec<Value> {
    place.run(&["key", "list", "--json"]).ok().json().as_array().unwrap().clone()
}

#[test]
fn a_key_is_added_listed_rotated_and_revoked() {
    let place = place();
    assert!(add(&place, "claude").ok().out.contains("key `claude` of `default` is stored"));
    add(&place, "claude").ends(1).says("is there already").says("key rotate claude");
    let rotate = ["key", "rotate", "claude", "--grace", "1h", "--json"];
    let rotated = place.run_with(&rotate, "sk-second\n").ok().json();
    assert_eq!(rotated, json!({ "tenant": "default", "key": "claude", "version": 2 }));
    let keys = list(&place);
    let states: Vec<_> =
        keys.iter().map(|key| (key["version"].clone(), key["status"].clone())).collect();
    assert_eq!(states, [(json!(1), json!("retiring")), (json!(2), json!("active"))]);
    assert_eq!(keys[0]["provider"], "anthropic");
    place.run(&["key", "revoke", "claude", "--version", "1"]).ok();
    assert_eq!(list(&place)[0]["status"], "revoked");
    place.run(&["key", "revoke", "claude"]).ok();
    assert!(list(&place).iter().all(|key| key["status"] == "revoked"));
    let table = place.run(&["key", "list"]).ok().out;
    assert!(table.contains("revoked") && table.contains("claude"), "{table}");
    add(&place, "claude").ok();
    assert_eq!(list(&place).len(), 3, "a revoked name may be used again");
}

#[test]
fn a_key_belongs_to_its_tenant_and_others_do_not_see_it() {
    let place = place();
    place.run_with(&["key", "add", "k", "--for", "acme"], SECRET).ok();
    place.run_with(&["key", "add", "k", "--tenant", "other"], SECRET).ok();
    let theirs = place.run(&["key", "list", "--tenant", "acme", "--json"]).ok().json();
    assert_eq!(theirs.as_array().unwrap().len(), 1);
    place.run(&["key", "revoke", "k", "--tenant", "other", "--for", "acme"]).ends(1);
    assert_eq!(list(&place)[0]["status"], "active");
    place.run(&["key", "revoke", "k"]).ends(1).says("key list");
}

#[test]
fn a_secret_that_is_none_is_refused_and_so_is_one_among_the_arguments() {
    let place = place();
    for (secret, words) in [
        ("", "is empty"),
        ("\n", "is empty"),
        ("sk-one\nsk-two", "more than one line"),
        ("sk-ünsound", "not ASCII"),
        ("sk-one two", "spaces"),
    ] {
        let run = place.run_with(&["key", "add", "k"], secret).ends(2).says(words).says("stdin");
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
        let run = place.run(args);
        assert_ne!(run.code, 0);
        assert!(!format!("{}{}", run.out, run.err).contains("0123456789"), "{}", run.err);
    }
    place.run(&["key", "add", "env:X"]).ends(2).says("key add claude");
    assert_eq!(list(&place), Vec::<Value>::new());
    place
        .run_with(&["key", "rotate", "nokey"], SECRET)
        .ends(1)
        .says("no key `nokey`")
        .says("key list");
    place.run(&["key", "revoke", "nokey"]).ends(1).says("key list");
}

#[test]
fn without_a_master_key_nothing_is_sealed_and_no_secret_is_asked_for() {
    let place = Place::new();
    add(&place, "k").ends(1).says("no master key").says("key init");
    place.run(&["key", "list"]).ok();
    place.run(&["key", "init"]).ok();
    let mode = std::fs::metadata(place.path("longshore.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(std::fs::read(place.path("longshore.key")).unwrap().len(), 32);
    place.run(&["key", "init"]).ends(1).says("exists already").says("never overwritten");
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(place.path("longshore.key"), open).unwrap();
    add(&place, "k").ends(1).says("may be read by others").says("chmod 600");
}

#[test]
fn the_master_key_is_found_where_file_variable_and_credential_say() {
    let place = Place::new();
    place.run(&["key", "init", "--out", "elsewhere.key"]).ok();
    place.write("longshore.toml", "[vault]\nkey_file = \"elsewhere.key\"\n");
    add(&place, "one").ok();
    let master = list(&place)[0]["master"].clone();
    place.write("longshore.toml", "");
    let bytes = std::fs::read(place.path("elsewhere.key")).unwrap();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    place.write("credentials.longshore-master", &bytes);
    std::fs::create_dir(place.path("credentials")).unwrap();
    std::fs::rename(
        place.path("credentials.longshore-master"),
        place.path("credentials/longshore-master"),
    )
    .unwrap();
    for (i, (variable, value)) in [
        ("LONGSHORE_KEY_FILE", "elsewhere.key".to_owned()),
        ("LONGSHORE_MASTER_KEY", hex),
        ("CREDENTIALS_DIRECTORY", place.path("credentials").display().to_string()),
    ]
    .into_iter()
    .enumerate()
    {
        place.write("secret", SECRET);
        let mut command = place.command(&["key", "add", &format!("more-{i}")]);
        command.env(variable, value).stdin(std::fs::File::open(place.path("secret")).unwrap());
        Run::of(command.spawn().unwrap()).ok();
    }
    let masters: Vec<Value> = list(&place).iter().map(|key| key["master"].clone()).collect();
    assert_eq!(masters, vec![master; 4]);
    place.write("longshore.toml", "[vault]\nkey_file = \"credential:../x\"\n");
    place.run(&["key", "list"]).ends(1).says("vault.key_file");
}

#[test]
fn keys_are_wrapped_by_a_new_master_key_and_the_old_one_is_not_needed_any_more() {
    let place = place();
    for name in ["a", "b", "c"] {
        add(&place, name).ok();
    }
    place.run(&["profile", "add", "p", "--provider", "echo", "--key", "a"]).ok();
    place.run(&["key", "init", "--out", "new.key"]).ok();
    let rewrap = ["key", "rewrap", "--old", "longshore.key", "--new", "new.key", "--json"];
    let done = place.run(&rewrap).ok().json();
    assert_eq!((&done["moved"], &done["there"], &done["left"]), (&json!(3), &json!(0), &json!([])));
    let again = place.run(&rewrap).ok().json();
    assert_eq!((&again["moved"], &again["there"]), (&json!(0), &json!(3)));
    place
        .run(&["profile", "test", "p", "--offline"])
        .ends(1)
        .says("which is not loaded")
        .says("key rewrap");
    std::fs::rename(place.path("new.key"), place.path("longshore.key")).unwrap();
    place.run(&["profile", "test", "p", "--offline"]).ok();
}

#[test]
fn a_key_of_a_third_master_key_is_left_and_named() {
    let place = place();
    add(&place, "a").ok();
    place.run(&["key", "init", "--out", "two"]).ok();
    place.run(&["key", "init", "--out", "three"]).ok();
    let left = place.run(&["key", "rewrap", "--old", "two", "--new", "three"]).ends(3);
    left.says("still needed").says("default");
    place.run(&["key", "rewrap", "--old", "two", "--new", "two"]).ends(2).says("the same");
    place.run(&["key", "rewrap", "--old", "none", "--new", "two"]).ends(1).says("none");
    place.write("short", "abc");
    let shut = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(place.path("short"), shut).unwrap();
    place.run(&["key", "rewrap", "--old", "short", "--new", "two"]).ends(1).says("32 bytes");
}
