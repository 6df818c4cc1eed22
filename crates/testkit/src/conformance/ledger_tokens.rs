//! API tokens and the audit log.

use longshore_accounts::{
    BrowserSession, MAX_SESSIONS, NewAuditEntry, NewToken, PutProfile, Role, TokenChange, TokenHash,
    TokenRecord,
};
use longshore_core::store::{Retention, TenantChange};
use longshore_core::{Error, Scope, TenantId, TokenId};

use super::helpers::*;
use super::ledger_helpers::{acme, profile_name, token_budget};
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

pub(super) async fn a_token_is_known_by_its_hash_until_it_ends(fixture: &StoreFixture) {
    let expires_at = Some(fixture.now() + secs(60));
    let new = NewToken { expires_at, ..token(&acme(), Role::Operate, 1) };
    let added = fixture.ledger.add_token(&ALL, new.clone()).await.unwrap();
    assert_eq!((added.id, &added.tenant, added.role), (new.id, &acme(), Role::Operate));
    assert_eq!((added.created_at, added.expires_at), (fixture.now(), expires_at));
    assert_eq!(fixture.ledger.token(new.hash).await.unwrap(), Some(added.clone()));
    assert_eq!(fixture.ledger.token(TokenHash([2; 32])).await.unwrap(), None);
    assert!(added.is_valid(fixture.now()));
    fixture.clock.advance(secs(60));
    assert!(!added.is_valid(fixture.now()), "the token has expired");
}

pub(super) async fn a_token_added_twice_is_one(fixture: &StoreFixture) {
    let new = token(&acme(), Role::Read, 1);
    let first = fixture.ledger.add_token(&ALL, new.clone()).await.unwrap();
    fixture.clock.advance(secs(5));
    assert_eq!(fixture.ledger.add_token(&ALL, new).await.unwrap(), first);
    assert_eq!(fixture.ledger.tokens(&ALL, None, 9).await.unwrap(), [first]);
}

pub(super) async fn a_revoked_token_stays_revoked(fixture: &StoreFixture) {
    assert!(!fixture.ledger.has_valid_token(fixture.now()).await.unwrap());
    let new = token(&acme(), Role::Read, 1);
    fixture.ledger.add_token(&ALL, new.clone()).await.unwrap();
    assert!(fixture.ledger.has_valid_token(fixture.now()).await.unwrap());
    let at = fixture.now();
    let revoked = fixture.ledger.revoke_token(&ALL, new.id).await.unwrap();
    assert_eq!(revoked.revoked_at, Some(at));
    fixture.clock.advance(secs(5));
    let again = fixture.ledger.revoke_token(&ALL, new.id).await.unwrap();
    assert_eq!(again.revoked_at, Some(at), "the first revocation time stays");
    let known = fixture.ledger.token(new.hash).await.unwrap().unwrap();
    assert!(!known.is_valid(fixture.now()));
    assert!(!fixture.ledger.has_valid_token(fixture.now()).await.unwrap());
}

pub(super) async fn a_removed_tenant_leaves_no_token_profile_or_budget(fixture: &StoreFixture) {
    fixture.store.put_tenant(&ALL, &acme(), TenantChange::default()).await.unwrap();
    let new = token(&acme(), Role::Submit, 1);
    fixture.ledger.add_token(&ALL, new.clone()).await.unwrap();
    let name = profile_name("main");
    let (body, suspended, expected) = (Some(serde_json::json!({"model": "small"})), None, None);
    let profile = PutProfile { tenant: acme(), name: name.clone(), body, suspended, expected };
    fixture.ledger.put_profile(&ALL, profile).await.unwrap();
    fixture.set_budget(Some(token_budget(10))).await;
    fixture.store.remove_tenant(&ALL, &acme()).await.unwrap();
    assert!(!fixture.ledger.token(new.hash).await.unwrap().unwrap().is_valid(fixture.now()));
    assert!(fixture.ledger.profile(&ALL, &acme(), &name).await.is_err());
    assert_eq!(fixture.ledger.budget(&ALL, &acme()).await.unwrap().budget, None);
}

pub(super) async fn a_browser_session_stands_for_its_token_until_either_ends(fixture: &StoreFixture) {
    let added = fixture.ledger.add_token(&ALL, token(&acme(), Role::Operate, 1)).await.unwrap();
    let begin = async |hash: u8, seconds: u64| {
        let (hash, expires_at) = (TokenHash([hash; 32]), fixture.now() + secs(seconds));
        let begin = TokenChange::BeginSession(BrowserSession { hash, token: added.id, expires_at });
        assert_eq!(fixture.ledger.change_token(&ALL, begin).await.unwrap(), added);
        (hash, TokenRecord { expires_at: Some(expires_at), ..added.clone() })
    };
    let (short, short_record) = begin(2, 60).await;
    let (long, long_record) = begin(3, 600).await;
    assert_eq!(fixture.ledger.token(short).await.unwrap(), Some(short_record.clone()));
    assert_eq!(fixture.ledger.token(long).await.unwrap(), Some(long_record));
    let other = Scope::Tenant(tenant("other"));
    assert_eq!(fixture.ledger.tokens(&other, Some(long), 1).await.unwrap(), []);
    assert_eq!(
        fixture.ledger.tokens(&ALL, None, 9).await.unwrap(),
        std::slice::from_ref(&added),
        "a session is no token"
    );
    fixture.clock.advance(secs(60));
    assert!(!short_record.is_valid(fixture.now()), "the session has expired");
    let (ended, _) = begin(4, 600).await;
    assert_eq!(fixture.ledger.token(short).await.unwrap(), None, "expired sessions are deleted");
    fixture.ledger.change_token(&ALL, TokenChange::EndSession(ended)).await.unwrap();
    assert_eq!(fixture.ledger.token(ended).await.unwrap(), None);
    let again = fixture.ledger.change_token(&ALL, TokenChange::EndSession(ended)).await;
    assert!(matches!(again, Err(Error::NotFound { .. })), "{again:?}");
    fixture.ledger.revoke_token(&ALL, added.id).await.unwrap();
    let revoked = fixture.ledger.token(long).await.unwrap().unwrap();
    assert!(!revoked.is_valid(fixture.now()), "revoking the token ends its sessions");
}

pub(super) async fn a_token_has_a_bounded_number_of_browser_sessions(fixture: &StoreFixture) {
    let tokens = [token(&acme(), Role::Read, 1), token(&acme(), Role::Read, 2)];
    let session = |token: TokenId, number: usize| BrowserSession {
        hash: TokenHash([u8::try_from(number).unwrap(); 32]),
        token,
        expires_at: fixture.now() + secs(60 + number as u64),
    };
    for token in &tokens {
        fixture.ledger.add_token(&ALL, token.clone()).await.unwrap();
    }
    let first_of_other = session(tokens[1].id, 10);
    let of_first = (11..=11 + MAX_SESSIONS).map(|number| session(tokens[0].id, number));
    for session in [first_of_other].into_iter().chain(of_first) {
        fixture.ledger.change_token(&ALL, TokenChange::BeginSession(session)).await.unwrap();
    }
    let is_known = async |number: usize| {
        fixture.ledger.token(session(tokens[0].id, number).hash).await.unwrap().is_some()
    };
    assert!(is_known(10).await, "another token's session stays");
    assert!(!is_known(11).await, "the session that expires first is deleted");
    assert!(is_known(12).await && is_known(11 + MAX_SESSIONS).await);
}

pub(super) async fn another_tenants_token_does_not_exist(fixture: &StoreFixture) {
    let (own, other) = (Scope::Tenant(acme()), Scope::Tenant(tenant("other")));
    let new = token(&acme(), Role::Read, 1);
    let refused = fixture.ledger.add_token(&other, new.clone()).await;
    assert!(matches!(refused, Err(Error::NotFound { .. })), "{refused:?}");
    let added = fixture.ledger.add_token(&own, new.clone()).await.unwrap();
    let refused = fixture.ledger.revoke_token(&other, new.id).await;
    assert!(matches!(refused, Err(Error::NotFound { .. })), "{refused:?}");
    assert_eq!(fixture.ledger.tokens(&other, None, 9).await.unwrap(), []);
    assert_eq!(fixture.ledger.tokens(&own, None, 9).await.unwrap(), [added]);
    let admin = fixture.ledger.add_token(&own, token(&acme(), Role::Admin, 2)).await;
    assert!(matches!(admin, Err(Error::Invalid(_))), "a tenant cannot create an admin token: {admin:?}");
}

fn audit_entry(of: Option<TenantId>, target: &str) -> NewAuditEntry {
    NewAuditEntry {
        token: Some(TokenId::new()),
        by: "operator".to_owned(),
        tenant: of,
        action: "batch.pause".to_owned(),
        target: target.to_owned(),
        detail: String::new(),
    }
}

pub(super) async fn deeds_are_listed_newest_first_to_whom_they_concern(fixture: &StoreFixture) {
    let entries =
        [audit_entry(Some(acme()), "a"), audit_entry(None, "b"), audit_entry(Some(tenant("other")), "c")];
    for entry in entries.iter().chain([&audit_entry(Some(acme()), "d")]) {
        fixture.ledger.append(entry.clone()).await.unwrap();
        fixture.clock.advance(secs(1));
    }
    let (mut after, mut all) = (None, Vec::new());
    loop {
        let page = fixture.ledger.audit_entries(&ALL, after.as_deref(), 3).await.unwrap();
        all.extend(page.items);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let targets: Vec<&str> = all.iter().map(|entry| entry.entry.target.as_str()).collect();
    assert_eq!(targets, ["d", "c", "b", "a"]);
    assert_eq!(all[3].entry, entries[0]);
    assert!(all.is_sorted_by(|newer, older| newer.at > older.at && newer.seq > older.seq));
    let own = fixture.ledger.audit_entries(&Scope::Tenant(acme()), None, 10).await.unwrap();
    let targets: Vec<&str> = own.items.iter().map(|entry| entry.entry.target.as_str()).collect();
    assert_eq!((targets.as_slice(), own.next), (["d", "a"].as_slice(), None));
    let odd = fixture.ledger.audit_entries(&ALL, Some("odd"), 3).await;
    assert!(matches!(odd, Err(Error::Invalid(_))), "{odd:?}");
}

pub(super) async fn ended_tokens_are_pruned_with_the_audit_log(fixture: &StoreFixture) {
    let expires_at = Some(fixture.now() + secs(5));
    let (valid, revoked) = (token(&acme(), Role::Read, 1), token(&acme(), Role::Read, 2));
    let expiring = NewToken { expires_at, ..token(&acme(), Role::Read, 3) };
    for new in [&valid, &revoked, &expiring] {
        fixture.ledger.add_token(&ALL, new.clone()).await.unwrap();
        let session = BrowserSession {
            hash: TokenHash([new.hash.0[0] + 100; 32]),
            token: new.id,
            expires_at: fixture.now() + secs(3600),
        };
        fixture.ledger.change_token(&ALL, TokenChange::BeginSession(session)).await.unwrap();
    }
    fixture.ledger.revoke_token(&ALL, revoked.id).await.unwrap();
    let retention = Retention { audit_log: secs(20), ..Retention::default() };
    fixture.clock.advance(secs(19));
    fixture.store.prune(retention, 100).await.unwrap();
    assert_eq!(fixture.ledger.tokens(&ALL, None, 9).await.unwrap().len(), 3);
    fixture.clock.advance(secs(60));
    fixture.store.prune(retention, 100).await.unwrap();
    let left: Vec<TokenId> =
        fixture.ledger.tokens(&ALL, None, 9).await.unwrap().into_iter().map(|record| record.id).collect();
    assert_eq!(left, [valid.id]);
}

pub(super) async fn deeds_are_pruned_when_they_were_kept_long_enough(fixture: &StoreFixture) {
    for target in ["a", "b", "c"] {
        fixture.ledger.append(audit_entry(Some(acme()), target)).await.unwrap();
        fixture.clock.advance(secs(10));
    }
    let retention = Retention { audit_log: secs(20), ..Retention::default() };
    let pruned = fixture.store.prune(retention, 1).await.unwrap();
    assert_eq!((pruned.audit_entries, pruned.more), (1, true), "a bounded amount, the oldest first");
    let pruned = fixture.store.prune(retention, 100).await.unwrap();
    assert_eq!((pruned.audit_entries, pruned.more), (1, false));
    let stored = fixture.ledger.audit_entries(&ALL, None, 10).await.unwrap().items;
    assert_eq!((stored.len(), stored[0].entry.target.as_str()), (1, "c"));
    fixture.clock.advance(secs(60));
    assert_eq!(fixture.store.prune(retention, 100).await.unwrap().audit_entries, 1);
    fixture.ledger.append(audit_entry(None, "d")).await.unwrap();
    let after = fixture.ledger.audit_entries(&ALL, None, 10).await.unwrap().items;
    assert!(after.len() == 1 && after[0].seq > stored[0].seq, "no place is given twice: {after:?}");
}
