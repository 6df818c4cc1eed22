//! API tokens and the audit log.

use longshore_accounts::{NewAuditEntry, NewToken, Role, TokenHash};
use longshore_core::store::Retention;
use longshore_core::{Error, Scope, TenantId, TokenId};

use super::helpers::*;
use super::ledger_helpers::acme;
use crate::StoreFixture;

fn token(of: &TenantId, role: Role, hash: u8) -> NewToken {
    NewToken {
        id: TokenId::new(),
        tenant: of.clone(),
        role,
        label: format!("token {hash}"),
        hash: TokenHash([hash; 32]),
        expires_at: None,
    }
}

pub(super) async fn a_token_is_known_by_its_hash_until_it_ends(world: &StoreFixture) {
    let expires_at = Some(world.now() + secs(60));
    let new = NewToken { expires_at, ..token(&acme(), Role::Operate, 1) };
    let added = world.ledger.add_token(&ALL, new.clone()).await.unwrap();
    assert_eq!((added.id, &added.tenant, added.role), (new.id, &acme(), Role::Operate));
    assert_eq!((added.created_at, added.expires_at), (world.now(), expires_at));
    assert_eq!(world.ledger.token(new.hash).await.unwrap(), Some(added.clone()));
    assert_eq!(world.ledger.token(TokenHash([2; 32])).await.unwrap(), None);
    assert!(added.is_valid(world.now()));
    world.clock.advance(secs(60));
    assert!(!added.is_valid(world.now()), "the token has expired");
}

pub(super) async fn a_token_added_twice_is_one(world: &StoreFixture) {
    let new = token(&acme(), Role::Read, 1);
    let first = world.ledger.add_token(&ALL, new.clone()).await.unwrap();
    world.clock.advance(secs(5));
    assert_eq!(world.ledger.add_token(&ALL, new).await.unwrap(), first);
    assert_eq!(world.ledger.tokens(&ALL, None, 9).await.unwrap(), [first]);
}

pub(super) async fn a_revoked_token_stays_revoked_and_the_door_locked(world: &StoreFixture) {
    assert!(!world.ledger.is_locked().await.unwrap());
    let new = token(&acme(), Role::Read, 1);
    world.ledger.add_token(&ALL, new.clone()).await.unwrap();
    assert!(world.ledger.is_locked().await.unwrap());
    let at = world.now();
    let revoked = world.ledger.revoke_token(&ALL, new.id).await.unwrap();
    assert_eq!(revoked.revoked_at, Some(at));
    world.clock.advance(secs(5));
    let again = world.ledger.revoke_token(&ALL, new.id).await.unwrap();
    assert_eq!(again.revoked_at, Some(at), "the first revocation time stays");
    let known = world.ledger.token(new.hash).await.unwrap().unwrap();
    assert!(!known.is_valid(world.now()));
    assert!(world.ledger.is_locked().await.unwrap(), "revoking the last token does not reopen access");
}

pub(super) async fn another_tenants_token_does_not_exist(world: &StoreFixture) {
    let (own, other) = (Scope::Tenant(acme()), Scope::Tenant(tenant("other")));
    let new = token(&acme(), Role::Read, 1);
    let refused = world.ledger.add_token(&other, new.clone()).await;
    assert!(matches!(refused, Err(Error::NotFound { .. })), "{refused:?}");
    let added = world.ledger.add_token(&own, new.clone()).await.unwrap();
    let refused = world.ledger.revoke_token(&other, new.id).await;
    assert!(matches!(refused, Err(Error::NotFound { .. })), "{refused:?}");
    assert_eq!(world.ledger.tokens(&other, None, 9).await.unwrap(), []);
    assert_eq!(world.ledger.tokens(&own, None, 9).await.unwrap(), [added]);
    let admin = world.ledger.add_token(&own, token(&acme(), Role::Admin, 2)).await;
    assert!(matches!(admin, Err(Error::Invalid(_))), "a tenant cannot create an admin token: {admin:?}");
}

fn audit_entry(of: Option<TenantId>, target: &str) -> NewAuditEntry {
    NewAuditEntry {
        token: Some(TokenId::new()),
        by: "somebody".to_owned(),
        tenant: of,
        action: "batch.pause".to_owned(),
        target: target.to_owned(),
        detail: String::new(),
    }
}

pub(super) async fn deeds_are_listed_newest_first_to_whom_they_concern(world: &StoreFixture) {
    let told =
        [audit_entry(Some(acme()), "a"), audit_entry(None, "b"), audit_entry(Some(tenant("other")), "c")];
    for deed in told.iter().chain([&audit_entry(Some(acme()), "d")]) {
        world.ledger.append(deed.clone()).await.unwrap();
        world.clock.advance(secs(1));
    }
    let (mut after, mut all) = (None, Vec::new());
    loop {
        let page = world.ledger.audit_entries(&ALL, after.as_deref(), 3).await.unwrap();
        all.extend(page.items);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let targets: Vec<&str> = all.iter().map(|deed| deed.entry.target.as_str()).collect();
    assert_eq!(targets, ["d", "c", "b", "a"]);
    assert_eq!(all[3].entry, told[0]);
    assert!(all.is_sorted_by(|newer, older| newer.at > older.at && newer.seq > older.seq));
    let own = world.ledger.audit_entries(&Scope::Tenant(acme()), None, 10).await.unwrap();
    let targets: Vec<&str> = own.items.iter().map(|deed| deed.entry.target.as_str()).collect();
    assert_eq!((targets.as_slice(), own.next), (["d", "a"].as_slice(), None));
    let odd = world.ledger.audit_entries(&ALL, Some("odd"), 3).await;
    assert!(matches!(odd, Err(Error::Invalid(_))), "{odd:?}");
}

pub(super) async fn deeds_are_pruned_when_they_were_kept_long_enough(world: &StoreFixture) {
    for target in ["a", "b", "c"] {
        world.ledger.append(audit_entry(Some(acme()), target)).await.unwrap();
        world.clock.advance(secs(10));
    }
    let retention = Retention { audit_log: secs(20), ..Retention::default() };
    let pruned = world.store.prune(retention, 1).await.unwrap();
    assert_eq!((pruned.audit_entries, pruned.more), (1, true), "a bounded amount, the oldest first");
    let pruned = world.store.prune(retention, 100).await.unwrap();
    assert_eq!((pruned.audit_entries, pruned.more), (1, false));
    let kept = world.ledger.audit_entries(&ALL, None, 10).await.unwrap().items;
    assert_eq!((kept.len(), kept[0].entry.target.as_str()), (1, "c"));
    world.clock.advance(secs(60));
    assert_eq!(world.store.prune(retention, 100).await.unwrap().audit_entries, 1);
    world.ledger.append(audit_entry(None, "d")).await.unwrap();
    let after = world.ledger.audit_entries(&ALL, None, 10).await.unwrap().items;
    assert!(after.len() == 1 && after[0].seq > kept[0].seq, "no place is given twice: {after:?}");
}
