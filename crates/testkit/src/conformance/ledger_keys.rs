//! Sealed keys: versions, their retirement, and rewrapped data keys.

use longshore_accounts::KeyStatus::{self, Active, Retiring, Revoked};
use longshore_accounts::{KeyChange, KeyRecord, Keys, NewKey};
use longshore_core::{Error, KeyName};

use super::helpers::*;
use super::ledger_helpers::acme;
use crate::StoreFixture;

fn name(name: &str) -> KeyName {
    KeyName::new(name).unwrap()
}

fn key(key_name: &str, version: u32) -> NewKey {
    NewKey {
        tenant: acme(),
        name: name(key_name),
        version,
        provider: "openai".to_owned(),
        sealed: format!("sealed {version}").into_bytes(),
        wrapped: vec![0, 255, version as u8],
        master: "first".to_owned(),
    }
}

fn add(key: NewKey) -> KeyChange {
    KeyChange::Add { key, retires_at: None }
}

fn revoke(key_name: &str, version: Option<u32>) -> KeyChange {
    KeyChange::Revoke { tenant: acme(), name: name(key_name), version }
}

fn rewrap(key: NewKey) -> KeyChange {
    KeyChange::Rewrap { from: "first".to_owned(), key }
}

impl StoreFixture {
    async fn add_key(&self, key: NewKey) {
        self.ledger.change_key(&ALL, add(key)).await.unwrap();
    }

    async fn versions(&self, key_name: &str) -> Vec<KeyRecord> {
        let keys: &dyn Keys = &*self.ledger;
        keys.versions(&ALL, &acme(), &name(key_name)).await.unwrap()
    }

    async fn key_statuses(&self, key_name: &str) -> Vec<(u32, KeyStatus)> {
        self.versions(key_name).await.iter().map(|record| (record.key.version, record.status)).collect()
    }
}

pub(super) async fn a_new_version_retires_the_one_before(fixture: &StoreFixture) {
    assert!(fixture.versions("k").await.is_empty());
    fixture.add_key(key("k", 1)).await;
    let first = fixture.versions("k").await.remove(0);
    assert_eq!((first.key, first.status), (key("k", 1), Active));
    assert_eq!((first.created_at, first.retires_at), (fixture.now(), None));
    fixture.clock.advance(secs(60));
    let until = fixture.now() + secs(3600);
    let next = KeyChange::Add { key: key("k", 2), retires_at: Some(until) };
    fixture.ledger.change_key(&ALL, next).await.unwrap();
    let record = fixture.versions("k").await;
    assert_eq!((record[0].key.version, record[0].status), (2, Active));
    assert_eq!((record[1].key.version, record[1].status), (1, Retiring));
    assert_eq!(record[1].retires_at, Some(until));
    fixture.add_key(key("k", 3)).await;
    let record = fixture.versions("k").await;
    assert_eq!(record[1].retires_at, Some(fixture.now()), "at once");
    assert_eq!(record[2].retires_at, Some(until), "a retirement time that is set does not change");
}

pub(super) async fn a_version_must_be_the_next(fixture: &StoreFixture) {
    for wrong in [0, 2] {
        let answer = fixture.ledger.change_key(&ALL, add(key("k", wrong))).await;
        assert!(matches!(answer, Err(Error::Invalid(_))), "{answer:?}");
    }
    fixture.add_key(key("k", 1)).await;
    let again = NewKey { sealed: b"another".to_vec(), ..key("k", 1) };
    let answer = fixture.ledger.change_key(&ALL, add(again)).await;
    assert!(matches!(answer, Err(Error::Invalid(_))), "{answer:?}");
    assert_eq!(fixture.versions("k").await[0].key, key("k", 1), "the first one stays");
}

pub(super) async fn a_revoked_version_stays_revoked(fixture: &StoreFixture) {
    for version in 1..=3 {
        fixture.add_key(key("k", version)).await;
    }
    for _ in 0..2 {
        fixture.ledger.change_key(&ALL, revoke("k", Some(2))).await.unwrap();
    }
    assert_eq!(fixture.key_statuses("k").await, [(3, Active), (2, Revoked), (1, Retiring)]);
    fixture.ledger.change_key(&ALL, revoke("k", None)).await.unwrap();
    assert!(fixture.key_statuses("k").await.iter().all(|(_, status)| *status == Revoked));
    fixture.add_key(key("k", 4)).await;
    assert_eq!(
        fixture.key_statuses("k").await[1],
        (3, Revoked),
        "a new version does not reactivate an old one"
    );
    let unknown = fixture.ledger.change_key(&ALL, revoke("k", Some(9))).await;
    assert!(matches!(unknown, Err(Error::NotFound { .. })), "{unknown:?}");
    let unknown = fixture.ledger.change_key(&ALL, revoke("none", None)).await;
    assert!(matches!(unknown, Err(Error::NotFound { .. })), "{unknown:?}");
}

pub(super) async fn a_data_key_is_wrapped_anew_once(fixture: &StoreFixture) {
    fixture.add_key(key("k", 1)).await;
    let anew = |wrapped: u8| NewKey {
        wrapped: vec![wrapped],
        sealed: b"not this".to_vec(),
        master: "second".to_owned(),
        ..key("k", 1)
    };
    assert!(fixture.ledger.change_key(&ALL, rewrap(anew(7))).await.unwrap());
    assert!(!fixture.ledger.change_key(&ALL, rewrap(anew(8))).await.unwrap(), "too late");
    let record = fixture.versions("k").await.remove(0).key;
    assert_eq!((record.wrapped, record.master.as_str()), (vec![7], "second"));
    assert_eq!(record.sealed, key("k", 1).sealed, "the secret itself is not resealed");
    let unknown = fixture.ledger.change_key(&ALL, rewrap(key("none", 1))).await;
    assert!(matches!(unknown, Err(Error::NotFound { .. })), "{unknown:?}");
}

pub(super) async fn keys_are_listed_in_pages(fixture: &StoreFixture) {
    for (key_name, version) in [("b", 1), ("a", 1), ("a", 2)] {
        fixture.add_key(key(key_name, version)).await;
    }
    for version in 3..=11 {
        fixture.add_key(key("a", version)).await;
    }
    fixture.add_key(NewKey { tenant: tenant("z"), ..key("a", 1) }).await;
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let page = fixture.ledger.keys(&ALL, None, after.as_deref(), 5).await.unwrap();
        seen.extend(
            page.items.into_iter().map(|record| {
                (record.key.tenant.to_string(), record.key.name.to_string(), record.key.version)
            }),
        );
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 13);
    assert!(seen.is_sorted(), "version 10 comes after version 9: {seen:?}");
}

pub(super) async fn another_tenants_key_does_not_exist(fixture: &StoreFixture) {
    fixture.add_key(key("k", 1)).await;
    let (other, key_name) = (tenant_scope("other"), name("k"));
    let keys: &dyn Keys = &*fixture.ledger;
    assert!(keys.versions(&other, &acme(), &key_name).await.unwrap().is_empty());
    assert!(fixture.ledger.keys(&other, None, None, 10).await.unwrap().items.is_empty());
    let not_there = |answer: Result<(), Error>| {
        assert!(matches!(answer, Err(Error::NotFound { .. })), "{answer:?}");
    };
    for change in [add(key("k", 2)), revoke("k", None), rewrap(key("k", 1))] {
        not_there(fixture.ledger.change_key(&other, change).await.map(drop));
    }
    assert_eq!(fixture.key_statuses("k").await, [(1, Active)]);
    assert_eq!(fixture.ledger.keys(&tenant_scope("acme"), None, None, 10).await.unwrap().items.len(), 1);
}
