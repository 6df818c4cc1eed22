//! Keys in the vault: sealed, versioned, bound to their identity; and keys outside of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore::Scope;
use longshore::accounts::{KeyRecord, KeyStatus};
use longshore_ai::{ExposeSecret, KeyRef, Vault, VaultError};
use longshore_trusted_path::PathError;
use proptest::prelude::*;
use tokio::time::advance;

use crate::fake_keys::{FakeKeys, MARK, TestClock, key, master, secret, tenant, vault, write_file};

const HOUR: Duration = Duration::from_secs(3600);

/// A vault with one key, `openai` of `acme`.
async fn with_one() -> (Arc<FakeKeys>, Vault) {
    let keys = FakeKeys::new();
    let vault = vault(&keys);
    add(&vault, MARK).await.unwrap();
    (keys, vault)
}

async fn add(vault: &Vault, text: &str) -> Result<u32, VaultError> {
    vault.add(&Scope::All, &tenant("acme"), &key("openai"), "openai", &secret(text)).await
}

async fn rotate(vault: &Vault, text: &str, grace: Duration) -> Result<u32, VaultError> {
    vault.rotate(&Scope::All, &tenant("acme"), &key("openai"), &secret(text), grace).await
}

async fn open(vault: &Vault, reference: &str) -> Result<String, VaultError> {
    let reference: KeyRef = reference.parse()?;
    let opened = vault.open(&Scope::All, &tenant("acme"), &reference).await?;
    Ok(opened.expose_secret().to_owned())
}

#[tokio::test]
async fn a_key_comes_back_as_it_was_and_is_kept_sealed() {
    let (keys, vault) = with_one().await;
    assert_eq!(open(&vault, "openai").await.unwrap(), MARK);
    keys.with(|records| {
        let kept = &records[0].key;
        assert_eq!(kept.sealed.len(), 1 + 12 + MARK.len() + 16);
        assert_eq!(kept.wrapped.len(), 1 + 12 + 32 + 16);
        let has_mark = |bytes: &[u8]| bytes.windows(4).any(|w| w == &MARK.as_bytes()[..4]);
        assert!(!has_mark(&kept.sealed) && !has_mark(&kept.wrapped));
    });
}

#[tokio::test]
async fn the_same_secret_is_sealed_differently_each_time() {
    let (keys, vault) = with_one().await;
    rotate(&vault, MARK, HOUR).await.unwrap();
    keys.with(|records| {
        assert_ne!(records[0].key.sealed[1..], records[1].key.sealed[1..]);
        assert_ne!(records[0].key.sealed[1..13], records[1].key.sealed[1..13], "fresh nonces");
        assert_ne!(records[0].key.wrapped[1..13], records[1].key.wrapped[1..13], "fresh nonces");
    });
}

#[tokio::test]
async fn another_master_key_opens_nothing_and_says_which_would() {
    let (keys, _) = with_one().await;
    let other = Vault::new(keys.clone(), Some(master(2)));
    let error = open(&other, "openai").await.unwrap_err();
    assert!(matches!(&error, VaultError::OtherMaster { master: id, .. } if id == master(1).id()));
    keys.with(|records| records[0].key.master = master(2).id().to_owned());
    assert!(matches!(open(&other, "openai").await, Err(VaultError::Changed(_))));
    let none = Vault::new(keys, None);
    assert!(matches!(open(&none, "openai").await, Err(VaultError::NoMaster)));
}

#[tokio::test]
async fn a_record_that_was_moved_does_not_open() {
    type Move = fn(&mut KeyRecord);
    let moves: [(Move, &str, &str); 3] = [
        (|r| r.key.tenant = tenant("evil"), "evil", "openai"),
        (|r| r.key.name = key("other"), "acme", "other"),
        (|r| r.key.version = 2, "acme", "openai"),
    ];
    for (moved, whose, name) in moves {
        let (keys, vault) = with_one().await;
        keys.with(|records| moved(&mut records[0]));
        let opened = vault.open(&Scope::All, &tenant(whose), &name.parse().unwrap()).await;
        assert!(matches!(opened, Err(VaultError::Changed(_))), "{whose} {name}");
    }
}

#[tokio::test]
async fn an_envelope_of_another_key_does_not_open_in_this_one() {
    let (keys, vault) = with_one().await;
    rotate(&vault, "another", HOUR).await.unwrap();
    keys.with(|records| records[1].key.sealed = records[0].key.sealed.clone());
    assert!(matches!(open(&vault, "openai").await, Err(VaultError::Changed(_))));
    keys.with(|records| records[1].key.wrapped = records[0].key.wrapped.clone());
    assert!(matches!(open(&vault, "openai").await, Err(VaultError::Changed(_))));
}

#[tokio::test]
async fn a_store_that_gives_anothers_record_opens_nothing() {
    let (keys, vault) = with_one().await;
    keys.confused.store(true, Ordering::SeqCst);
    let opened = vault.open(&Scope::All, &tenant("evil"), &"openai".parse().unwrap()).await;
    assert!(matches!(opened, Err(VaultError::Changed(_))));
    assert_eq!(open(&vault, "openai").await.unwrap(), MARK, "to its owner it opens");
}

proptest! {
    #[test]
    fn any_flipped_bit_and_any_cut_is_noticed(
        text in "[ -~]{1,60}", in_secret: bool, at: prop::sample::Index, bit in 0..8_u8, cut: bool,
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(async {
            let keys = FakeKeys::new();
            let vault = vault(&keys);
            add(&vault, &text).await.unwrap();
            keys.with(|records| {
                let key = &mut records[0].key;
                let bytes = if in_secret { &mut key.sealed } else { &mut key.wrapped };
                let at = at.index(bytes.len());
                if cut { bytes.truncate(at) } else { bytes[at] ^= 1_u8 << bit }
            });
            let opened = open(&vault, "openai").await;
            prop_assert!(matches!(opened, Err(VaultError::Changed(_))));
            keys.with(Vec::clear);
            add(&vault, &text).await.unwrap();
            prop_assert_eq!(open(&vault, "openai").await.unwrap(), text, "untouched, it opens");
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn a_key_is_added_once_and_rotated_after() {
    let (_, vault) = with_one().await;
    let error = add(&vault, "again").await.unwrap_err();
    assert_eq!(error.to_string(), "key `openai` of `acme` is there already");
    assert!(error.hint().unwrap().contains("key rotate openai"));
    assert_eq!(rotate(&vault, "second", HOUR).await.unwrap(), 2);
    assert_eq!(open(&vault, "openai").await.unwrap(), "second");
    vault.revoke(&Scope::All, &tenant("acme"), &key("openai"), None).await.unwrap();
    assert!(matches!(open(&vault, "openai").await, Err(VaultError::Unusable(_))));
    assert_eq!(add(&vault, "third").await.unwrap(), 3);
    assert_eq!(open(&vault, "openai").await.unwrap(), "third");
    let (none, text) = (key("none"), secret("x"));
    let missing = vault.rotate(&Scope::All, &tenant("acme"), &none, &text, HOUR).await;
    assert!(matches!(missing, Err(VaultError::NotFound { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_retiring_version_may_be_used_until_its_time_is_over_and_not_from_the_cache_after() {
    let (keys, hands) = (FakeKeys::new(), Arc::new(TestClock::default()));
    let vault = vault(&keys).with_clock(hands.clone());
    add(&vault, "first").await.unwrap();
    rotate(&vault, "second", Duration::from_secs(30)).await.unwrap();
    assert_eq!(open(&vault, "openai@1").await.unwrap(), "first");
    assert_eq!(open(&vault, "openai").await.unwrap(), "second");
    let pass = Duration::from_secs(30);
    hands.advance(pass);
    advance(pass).await;
    assert!(matches!(open(&vault, "openai@1").await, Err(VaultError::Unusable(_))));
    assert_eq!(open(&vault, "openai@2").await.unwrap(), "second");
}

#[tokio::test]
async fn a_retiring_version_stands_in_for_an_active_one_that_was_revoked() {
    let (_, vault) = with_one().await;
    rotate(&vault, "stolen", HOUR).await.unwrap();
    vault.revoke(&Scope::All, &tenant("acme"), &key("openai"), Some(2)).await.unwrap();
    assert_eq!(open(&vault, "openai").await.unwrap(), MARK);
}

#[tokio::test]
async fn without_grace_the_version_before_is_of_no_use_at_once() {
    let (keys, vault) = with_one().await;
    rotate(&vault, "second", Duration::ZERO).await.unwrap();
    assert!(matches!(open(&vault, "openai@1").await, Err(VaultError::Unusable(_))));
    keys.with(|records| assert_eq!(records[0].status, KeyStatus::Retiring));
}

#[tokio::test]
async fn a_key_of_another_tenant_does_not_exist_even_if_it_was_just_opened() {
    let (_, vault) = with_one().await;
    open(&vault, "openai").await.unwrap();
    let reference = "openai".parse().unwrap();
    let foreign = Scope::Tenant(tenant("evil"));
    let opened = vault.open(&foreign, &tenant("acme"), &reference).await;
    assert!(matches!(opened, Err(VaultError::NotFound { .. })));
    let opened = vault.open(&Scope::All, &tenant("evil"), &reference).await;
    assert!(matches!(opened, Err(VaultError::NotFound { .. })));
    let opened = vault.open(&foreign, &tenant("acme"), &"env:HOME".parse().unwrap()).await;
    assert!(matches!(opened, Err(VaultError::BadReference(_))));
}

#[tokio::test(start_paused = true)]
async fn an_opened_key_is_kept_for_a_minute_unless_it_is_to_be_forgotten() {
    let (keys, vault) = with_one().await;
    let reads = || keys.reads.load(Ordering::SeqCst);
    let before = reads();
    open(&vault, "openai").await.unwrap();
    advance(Duration::from_secs(59)).await;
    open(&vault, "openai").await.unwrap();
    assert_eq!(reads(), before + 1);
    advance(Duration::from_secs(1)).await;
    open(&vault, "openai").await.unwrap();
    assert_eq!(reads(), before + 2);
    vault.clear();
    open(&vault, "openai").await.unwrap();
    assert_eq!(reads(), before + 3);
}

#[tokio::test]
async fn what_was_read_before_a_change_is_not_kept_after_it() {
    let (_, vault) = with_one().await;
    let (acme, name) = (tenant("acme"), key("openai"));
    let revoke = vault.revoke(&Scope::All, &acme, &name, None);
    let (read_before, revoked) = tokio::join!(open(&vault, "openai"), revoke);
    assert_eq!(read_before.unwrap(), MARK, "it was read, then the key was revoked");
    revoked.unwrap();
    assert!(matches!(open(&vault, "openai").await, Err(VaultError::Unusable(_))));
}

#[tokio::test]
async fn keys_are_listed_without_their_secrets() {
    let (_, vault) = with_one().await;
    rotate(&vault, "second", HOUR).await.unwrap();
    let page = vault.list(&Scope::All, None, 10).await.unwrap();
    let listed: Vec<_> = page.items.iter().map(|entry| (entry.version, entry.status)).collect();
    assert_eq!(listed, [(1, KeyStatus::Retiring), (2, KeyStatus::Active)]);
    assert_eq!(page.items[0].master, master(1).id());
    let json = serde_json::to_value(&page.items[0]).unwrap();
    let fields: Vec<&String> = json.as_object().unwrap().keys().collect();
    let shown = ["created_at", "master", "name", "provider", "retires_at", "status", "tenant", "version"];
    assert_eq!(fields, shown);
}

#[tokio::test]
async fn a_key_in_a_variable_or_a_file_is_read_without_its_newline() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    write_file(&path, b"from-a-file\n", 0o600);
    let variables = |name: &str| (name == "MY_KEY").then(|| "from-a-variable".to_owned());
    let vault = Vault::new(FakeKeys::new(), None).with_variables(variables);
    assert_eq!(open(&vault, "env:MY_KEY").await.unwrap(), "from-a-variable");
    assert!(matches!(open(&vault, "env:NO_KEY").await, Err(VaultError::NoVariable(_))));
    let reference = format!("file:{}", path.display());
    assert_eq!(open(&vault, &reference).await.unwrap(), "from-a-file");
    write_file(&path, b"from-a-file\n", 0o640);
    vault.clear();
    let error = open(&vault, &reference).await.unwrap_err();
    assert!(matches!(error, VaultError::Untrusted(PathError::Accessible { mode: 0o640, .. })));
    assert_eq!(error.hint().unwrap(), format!("chmod 600 {}", path.display()));
}

#[tokio::test]
async fn what_cannot_be_sent_in_a_header_is_no_secret() {
    let vault = vault(&FakeKeys::new());
    for bad in ["", "\n", "two\nlines", "tab\there", &"x".repeat(20_000)] {
        assert!(matches!(add(&vault, bad).await, Err(VaultError::BadSecret(_))), "{bad:.10}");
    }
    add(&vault, "with a newline at its end\n").await.unwrap();
    assert_eq!(open(&vault, "openai").await.unwrap(), "with a newline at its end");
}

#[test]
fn references_say_where_a_key_is_and_come_back_as_they_were_written() {
    for good in ["env:A_1", "file:/etc/k", "file:rel", "openai", "openai@12", "team.openai:eu-1"] {
        let parsed: KeyRef = good.parse().unwrap();
        assert_eq!(parsed.to_string(), good);
        let outside = good.starts_with("env:") || good.starts_with("file:");
        assert_eq!(!matches!(parsed, KeyRef::Vault { .. }), outside, "{good}");
    }
    for bad in ["", "env:", "env:1A", "env:A-B", "file:", "a b", "a@", "a@x", "ä", "@1"] {
        assert!(matches!(bad.parse::<KeyRef>(), Err(VaultError::BadReference(_))), "{bad}");
    }
}
