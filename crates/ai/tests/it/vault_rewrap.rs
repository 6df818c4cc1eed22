//! Changing the master key: resumable, and every key can be opened meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore::Scope;
use longshore_ai::{ExposeSecret, Vault, VaultError};

use crate::fake_keys::{FakeKeys, key, master, secret, tenant, vault};

/// More than one page.
const MANY: usize = 250;

async fn with_many() -> Arc<FakeKeys> {
    let keys = FakeKeys::new();
    let vault = vault(&keys);
    for i in 0..MANY {
        let (name, text) = (key(&format!("key{i}")), secret(&format!("secret-{i}")));
        vault.add(&Scope::All, &tenant("acme"), &name, "openai", &text).await.unwrap();
    }
    keys
}

/// A vault during the change: seals with 2, still opens what 1 wrapped.
fn changing(keys: &Arc<FakeKeys>) -> Vault {
    Vault::new(keys.clone(), Some(master(2))).with_older(master(1))
}

async fn assert_all_open(vault: &Vault) {
    for i in 0..MANY {
        let reference = format!("key{i}").parse().unwrap();
        let opened = vault.open(&Scope::All, &tenant("acme"), &reference).await.unwrap();
        assert_eq!(opened.expose_secret(), format!("secret-{i}"));
    }
}

#[tokio::test]
async fn all_keys_are_wrapped_anew_and_their_secrets_stay() {
    let keys = with_many().await;
    let sealed = |keys: &FakeKeys| keys.with(|r| r.iter().map(|r| r.key.sealed.clone()).collect());
    let before: Vec<_> = sealed(&keys);
    let done = changing(&keys).rewrap(&Scope::All).await.unwrap();
    assert_eq!((done.rewrapped, done.current, done.failed.len()), (MANY as u64, 0, 0));
    assert!(keys.masters().iter().all(|id| id == master(2).id()));
    assert_eq!(sealed(&keys), before, "only data keys are wrapped anew");
    assert_all_open(&Vault::new(keys.clone(), Some(master(2)))).await;
    let again = changing(&keys).rewrap(&Scope::All).await.unwrap();
    assert_eq!((again.rewrapped, again.current), (0, MANY as u64));
}

#[tokio::test]
async fn killed_in_the_middle_it_goes_on_and_every_key_opens_all_the_while() {
    let keys = with_many().await;
    for (killed_after, done) in [(0, 0), (1, 1), (100, 101), (57, 158)] {
        keys.rewraps_left.store(killed_after, Ordering::SeqCst);
        let killed = changing(&keys).rewrap(&Scope::All).await.unwrap_err();
        assert!(killed.is_retryable(), "{killed}");
        let moved = keys.masters().iter().filter(|id| *id == master(2).id()).count();
        assert_eq!(moved, done);
        assert_all_open(&changing(&keys)).await;
    }
    keys.rewraps_left.store(i64::MAX, Ordering::SeqCst);
    let done = changing(&keys).rewrap(&Scope::All).await.unwrap();
    assert_eq!((done.rewrapped, done.current), (MANY as u64 - 158, 158));
    assert_all_open(&Vault::new(keys, Some(master(2)))).await;
}

#[tokio::test]
async fn two_at_once_do_not_spoil_each_others_work() {
    let keys = with_many().await;
    let (one, two) = (changing(&keys), changing(&keys));
    let (one, two) = tokio::join!(one.rewrap(&Scope::All), two.rewrap(&Scope::All));
    assert!(one.unwrap().failed.is_empty() && two.unwrap().failed.is_empty());
    assert_all_open(&Vault::new(keys, Some(master(2)))).await;
}

#[tokio::test]
async fn a_key_that_cannot_be_wrapped_anew_is_named_and_the_others_go_on() {
    let keys = with_many().await;
    keys.with(|records| {
        records[3].key.wrapped[20] ^= 1;
        records[5].key.master = "0123456789abcdef".into();
    });
    let done = changing(&keys).rewrap(&Scope::All).await.unwrap();
    assert_eq!(done.rewrapped, MANY as u64 - 2);
    let left: Vec<_> = done.failed.iter().map(|(entry, _)| entry.name.as_str()).collect();
    assert_eq!(left, ["key3", "key5"]);
    assert!(matches!(done.failed[0].1, VaultError::Changed(_)));
    assert!(matches!(done.failed[1].1, VaultError::OtherMaster { .. }));
}

#[tokio::test]
async fn what_is_added_meanwhile_is_sealed_with_the_new_master_key() {
    let keys = with_many().await;
    let vault = changing(&keys);
    let (acme, name) = (tenant("acme"), key("key0"));
    let grace = Duration::from_secs(60);
    vault.rotate(&Scope::All, &acme, &name, &secret("new"), grace).await.unwrap();
    let masters = keys.masters();
    assert_eq!(masters.last().unwrap(), master(2).id());
    assert_eq!(masters.first().unwrap(), master(1).id());
}
