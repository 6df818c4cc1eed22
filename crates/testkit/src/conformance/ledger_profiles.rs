//! Profiles: stored by tenant and name, changed by compare-and-set; changes are announced to caches.

use longshore_accounts::{KeyChange, KeyStatus, Keys, NewKey, ProfileChange, PutProfile};
use longshore_core::store::{TenantChange, Topic};
use longshore_core::{Error, KeyName, ProfileName};
use serde_json::json;

use super::helpers::*;
use super::ledger_helpers::*;
use crate::StoreFixture;

fn put(name: &str) -> PutProfile {
    PutProfile {
        tenant: acme(),
        name: profile_name(name),
        body: Some(json!({"model": "small", "rate": 0.1})),
        suspended: None,
        expected: None,
    }
}

fn remove(name: &ProfileName) -> ProfileChange {
    ProfileChange::Remove(acme(), name.clone())
}

pub(super) async fn a_profile_is_kept_and_its_revision_moves(fixture: &StoreFixture) {
    let made = fixture.ledger.put_profile(&ALL, put("main")).await.unwrap();
    assert_eq!((made.body["rate"].as_f64(), made.suspended), (Some(0.1), false));
    assert_eq!((made.created_at, made.updated_at), (fixture.now(), fixture.now()));
    let found = fixture.ledger.profile(&ALL, &acme(), &made.name).await.unwrap();
    assert_eq!(found, made);
    fixture.clock.advance(secs(60));
    let body = Some(json!({"model": "large"}));
    let changed = fixture.ledger.put_profile(&ALL, PutProfile { body, ..put("main") }).await.unwrap();
    assert!(changed.revision > made.revision);
    assert_eq!(changed.body, json!({"model": "large"}), "replaced, not merged");
    assert_eq!((changed.created_at, changed.updated_at), (made.created_at, fixture.now()));
    fixture.ledger.change_profile(&ALL, remove(&made.name)).await.unwrap();
    let gone = fixture.ledger.profile(&ALL, &acme(), &made.name).await;
    assert!(matches!(gone, Err(Error::NotFound { .. })), "{gone:?}");
    let again = fixture.ledger.change_profile(&ALL, remove(&made.name)).await;
    assert!(matches!(again, Err(Error::NotFound { .. })), "{again:?}");
}

pub(super) async fn a_profile_is_written_only_as_expected(fixture: &StoreFixture) {
    let only_new = || PutProfile { expected: Some(0), ..put("main") };
    let early = PutProfile { expected: Some(1), ..put("main") };
    assert!(matches!(fixture.ledger.put_profile(&ALL, early).await, Err(Error::Invalid(_))));
    let made = fixture.ledger.put_profile(&ALL, only_new()).await.unwrap();
    let twice = fixture.ledger.put_profile(&ALL, only_new()).await;
    assert!(matches!(twice, Err(Error::Invalid(_))), "{twice:?}");
    let next = || PutProfile { expected: Some(made.revision), ..put("main") };
    let changed = fixture.ledger.put_profile(&ALL, next()).await.unwrap();
    let stale = fixture.ledger.put_profile(&ALL, next()).await;
    assert!(matches!(stale, Err(Error::Invalid(_))), "the revision is outdated: {stale:?}");
    let found = fixture.ledger.profile(&ALL, &acme(), &made.name).await.unwrap();
    assert_eq!(found, changed);
}

pub(super) async fn a_suspended_profile_keeps_what_it_says(fixture: &StoreFixture) {
    let switch = |suspended| PutProfile { body: None, suspended, ..put("main") };
    let empty = fixture.ledger.put_profile(&ALL, switch(Some(true))).await;
    assert!(matches!(empty, Err(Error::Invalid(_))), "there is nothing to suspend: {empty:?}");
    let made = fixture.ledger.put_profile(&ALL, put("main")).await.unwrap();
    let suspended = fixture.ledger.put_profile(&ALL, switch(Some(true))).await.unwrap();
    assert!(suspended.suspended && suspended.revision > made.revision);
    assert_eq!(suspended.body, made.body);
    let edited = fixture.ledger.put_profile(&ALL, put("main")).await.unwrap();
    assert!(edited.suspended, "a change of the document does not resume it");
    let resumed = fixture.ledger.put_profile(&ALL, switch(Some(false))).await.unwrap();
    assert!(!resumed.suspended);
}

pub(super) async fn profiles_are_listed_in_pages(fixture: &StoreFixture) {
    for (owner, name) in [("b", "x"), ("acme", "z"), ("acme", "a"), ("acme", "m")] {
        let put = PutProfile { tenant: tenant(owner), ..put(name) };
        fixture.ledger.put_profile(&ALL, put).await.unwrap();
    }
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let page = fixture.ledger.profiles(&ALL, None, after.as_deref(), 2).await.unwrap();
        assert!(page.items.len() <= 2);
        seen.extend(page.items.iter().map(|found| format!("{}/{}", found.tenant, found.name)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["acme/a", "acme/m", "acme/z", "b/x"]);
}

pub(super) async fn another_tenants_profile_does_not_exist(fixture: &StoreFixture) {
    fixture.ledger.put_profile(&ALL, put("main")).await.unwrap();
    let (other, name) = (tenant_scope("other"), profile_name("main"));
    let not_there = |answer: Result<(), Error>| {
        assert!(matches!(answer, Err(Error::NotFound { .. })), "{answer:?}");
    };
    not_there(fixture.ledger.profile(&other, &acme(), &name).await.map(drop));
    not_there(fixture.ledger.change_profile(&other, remove(&name)).await.map(drop));
    not_there(fixture.ledger.put_profile(&other, put("main")).await.map(drop));
    assert!(fixture.ledger.profiles(&other, None, None, 10).await.unwrap().items.is_empty());
    let own = fixture.ledger.profiles(&tenant_scope("acme"), None, None, 10).await.unwrap().items;
    assert_eq!(own.len(), 1);
    let theirs = PutProfile { tenant: tenant("other"), ..put("main") };
    fixture.ledger.put_profile(&other, theirs).await.unwrap();
    let ours = fixture.ledger.profile(&ALL, &acme(), &name).await.unwrap();
    assert_eq!(ours.revision, own[0].revision, "another tenant's profile of this name is separate");
}

pub(super) async fn a_tenant_that_is_suspended_may_use_no_profile(fixture: &StoreFixture) {
    let own = tenant_scope("acme");
    assert!(!fixture.ledger.is_suspended(&own, &acme()).await.unwrap(), "without a record too");
    for suspended in [true, false] {
        let change = TenantChange { suspended: Some(suspended), ..TenantChange::default() };
        fixture.store.put_tenant(&ALL, &acme(), change).await.unwrap();
        assert_eq!(fixture.ledger.is_suspended(&own, &acme()).await.unwrap(), suspended);
        assert!(!fixture.ledger.is_suspended(&ALL, &tenant("other")).await.unwrap());
    }
    let theirs = fixture.ledger.is_suspended(&tenant_scope("other"), &acme()).await;
    assert!(matches!(theirs, Err(Error::NotFound { .. })), "{theirs:?}");
}

pub(super) async fn settings_are_announced_to_their_tenant(fixture: &StoreFixture) {
    let key = || NewKey {
        tenant: acme(),
        name: KeyName::new("openai").unwrap(),
        version: 1,
        provider: "openai".to_owned(),
        sealed: vec![1],
        wrapped: vec![2],
        master: "m".to_owned(),
    };
    let mut cursor = fixture.store.changes(&ALL, 0, secs(0)).await.unwrap().cursor;
    let mut foreign = cursor;
    for step in ["profile", "-profile", "key", "-key", "budget", "-budget"] {
        match step {
            "profile" => drop(fixture.ledger.put_profile(&ALL, put("main")).await.unwrap()),
            "-profile" => {
                let removed = remove(&profile_name("main"));
                fixture.ledger.change_profile(&ALL, removed).await.unwrap();
            }
            "key" | "-key" => {
                let (tenant, name) = (acme(), key().name);
                let change = match step {
                    "key" => KeyChange::Add { key: key(), retires_at: None },
                    _ => KeyChange::Revoke { tenant, name, version: None },
                };
                assert!(fixture.ledger.change_key(&ALL, change).await.unwrap());
            }
            "budget" => drop(fixture.set_budget(Some(token_budget(5))).await),
            _ => drop(fixture.set_budget(None).await),
        }
        let set = fixture.store.changes(&tenant_scope("acme"), cursor, secs(0)).await.unwrap();
        let heard: Vec<Topic> = set.changes.into_iter().map(|change| change.topic).collect();
        let expected = Topic::Setting(step.trim_start_matches('-').to_owned());
        assert_eq!(heard, [expected], "after {step}");
        cursor = set.cursor;
        let set = fixture.store.changes(&tenant_scope("other"), foreign, secs(0)).await.unwrap();
        assert!(set.changes.is_empty(), "{:?}", set.changes);
        foreign = set.cursor;
    }
    let keys: &dyn Keys = &*fixture.ledger;
    let kept = keys.versions(&ALL, &acme(), &key().name).await.unwrap();
    assert_eq!(kept[0].status, KeyStatus::Revoked);
}
