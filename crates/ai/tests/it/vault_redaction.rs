//! Nothing that can be printed contains the secret.

use std::fmt::{Debug, Display};
use std::time::Duration;

use longshore::Scope;
use longshore_ai::{KeyRef, MasterKey, MasterSource, Vault, VaultError};

use crate::fake_keys::{FakeKeys, MARK, key, master, secret, tenant, vault, write_file};

/// Six consecutive characters of the secret would be a leak.
fn assert_silent(printed: &str) {
    for piece in MARK.as_bytes().windows(6) {
        let piece = std::str::from_utf8(piece).unwrap();
        assert!(!printed.contains(piece), "`{piece}` in: {printed}");
    }
    let hex = "a5".repeat(8);
    assert!(!printed.contains(&hex) && !printed.contains("165, 165"), "{printed}");
}

fn all_forms(shown: &(impl Debug + Display)) -> String {
    format!("{shown} {shown:?} {shown:#?}")
}

fn all_messages(error: &VaultError) -> String {
    let mut messages = format!("{} {:?}", all_forms(error), error.hint());
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        messages += &format!("{inner} {inner:?}");
        cause = inner.source();
    }
    messages
}

#[tokio::test]
async fn nothing_printable_holds_the_secret_or_the_master_key() {
    let keys = FakeKeys::new();
    let vault = Vault::new(keys.clone(), Some(master(0xa5))).with_older(master(1));
    let (acme, name) = (tenant("acme"), key("openai"));
    vault.add(&Scope::All, &acme, &name, "openai", &secret(MARK)).await.unwrap();
    let opened = vault.open(&Scope::All, &acme, &"openai".parse().unwrap()).await.unwrap();
    let page = vault.list(&Scope::All, None, 10).await.unwrap();
    let records = keys.with(|records| format!("{records:?} {records:#?}"));
    let json = serde_json::to_string(&page.items).unwrap();
    let all = [
        format!("{vault:?} {vault:#?}"),
        format!("{opened:?} {opened:#?}"),
        format!("{page:?}"),
        format!("{:?}", master(0xa5)),
        records,
        json,
    ];
    all.iter().for_each(|printed| assert_silent(printed));
}

#[tokio::test]
async fn no_failure_repeats_the_secret() {
    let keys = FakeKeys::new();
    let vault = vault(&keys).with_variables(|_| Some(format!("{MARK}\n{MARK}")));
    let (acme, name, all) = (tenant("acme"), key("openai"), Scope::All);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let mut failures = Vec::new();

    let two_lines = secret(&format!("{MARK}\n{MARK}"));
    failures.push(vault.add(&all, &acme, &name, "openai", &two_lines).await.unwrap_err());
    vault.add(&all, &acme, &name, "openai", &secret(MARK)).await.unwrap();
    failures.push(vault.add(&all, &acme, &name, "openai", &secret(MARK)).await.unwrap_err());
    let grace = Duration::from_secs(1);
    let rotated = vault.rotate(&all, &acme, &key("none"), &secret(MARK), grace).await;
    failures.push(rotated.unwrap_err());
    failures.push(vault.open(&all, &acme, &"env:X".parse().unwrap()).await.unwrap_err());
    for (bytes, mode) in [(format!("{MARK}\0\0"), 0o600), (MARK.to_owned(), 0o644)] {
        write_file(&path, bytes.as_bytes(), mode);
        let reference = KeyRef::File(path.clone());
        failures.push(vault.open(&all, &acme, &reference).await.unwrap_err());
        failures.push(MasterKey::load(&MasterSource::File(path.clone())).unwrap_err());
    }
    write_file(&path, &[MARK.as_bytes(), &[0xff]].concat(), 0o600);
    failures.push(vault.open(&all, &acme, &KeyRef::File(path.clone())).await.unwrap_err());
    let source = MasterSource::Variable("MASTER".into());
    failures.push(MasterKey::load_in(&source, &|_| Some(MARK.to_owned())).unwrap_err());
    vault.clear();
    keys.with(|records| records[0].key.sealed[20] ^= 1);
    failures.push(vault.open(&all, &acme, &"openai".parse().unwrap()).await.unwrap_err());

    failures.iter().for_each(|failure| assert_silent(&all_messages(failure)));
}

#[test]
fn a_secret_where_a_reference_should_be_is_not_repeated() {
    let pasted = [MARK.to_owned(), format!("env:{MARK}"), format!("x/{MARK}"), format!("{MARK}@{MARK}")];
    for text in &pasted {
        let error = text.parse::<KeyRef>().unwrap_err();
        assert_silent(&all_messages(&error));
        assert!(error.hint().unwrap().contains("key add"));
    }
    let long = "0123456789abcdef0123456789abcdef";
    assert!(long.parse::<KeyRef>().is_err(), "keys without a prefix are recognised by their length");
}
