//! An in-memory store of keys that fails on demand and can be tampered with, and helpers for tests
//! of the vault.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use longshore::accounts::{KeyChange, KeyRecord, KeyStatus, Keys, NewKey};
use longshore::store::Page;
use longshore::{Clock, Error, KeyName, Result, Scope, TenantId, Timestamp};
use longshore_ai::{MasterKey, MasterSource, SecretString, Vault};

/// The secret of all tests, easy to search for.
pub(crate) const MARK: &str = "sk-MARKED-0123456789-abcdefghij";

/// A clock that only tests move.
#[derive(Debug, Default)]
pub(crate) struct TestClock(AtomicI64);

impl TestClock {
    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_micros() as i64, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

/// Keys in memory.
pub(crate) struct FakeKeys {
    records: Mutex<Vec<KeyRecord>>,
    /// Keys that may still be rewrapped before the store fails.
    pub(crate) rewraps_left: AtomicI64,
    /// Whether it ignores the scope of a request.
    pub(crate) confused: AtomicBool,
    /// How often a key was read.
    pub(crate) reads: AtomicI64,
}

impl FakeKeys {
    pub(crate) fn new() -> Arc<Self> {
        let (records, rewraps_left) = (Mutex::default(), AtomicI64::new(i64::MAX));
        let (confused, reads) = (AtomicBool::new(false), AtomicI64::new(0));
        Arc::new(Self { records, rewraps_left, confused, reads })
    }

    /// Reads or tampers with the stored keys.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Vec<KeyRecord>) -> T) -> T {
        work(&mut self.records.lock().unwrap())
    }

    /// The ids of the master keys that wrapped the stored keys.
    pub(crate) fn masters(&self) -> Vec<String> {
        self.with(|records| records.iter().map(|record| record.key.master.clone()).collect())
    }

    fn add(&self, key: NewKey, retires_at: Option<Timestamp>) -> Result<()> {
        self.with(|records| {
            let of_key = |r: &&mut KeyRecord| r.key.tenant == key.tenant && r.key.name == key.name;
            let newest = records.iter_mut().filter(of_key).max_by_key(|r| r.key.version);
            if newest.as_ref().map_or(0, |newest| newest.key.version) + 1 != key.version {
                return Err(Error::Invalid("another caller added a version".into()));
            }
            if let Some(newest) = newest.filter(|newest| newest.status == KeyStatus::Active) {
                newest.status = KeyStatus::Retiring;
                newest.retires_at = retires_at;
            }
            let (status, created_at) = (KeyStatus::Active, Timestamp::ZERO);
            records.push(KeyRecord { key, status, created_at, retires_at: None });
            Ok(())
        })
    }

    fn rewrap(&self, from: &str, key: NewKey) -> Result<bool> {
        if self.rewraps_left.fetch_sub(1, Ordering::SeqCst) <= 0 {
            return Err(Error::unavailable("killed in the middle"));
        }
        self.with(|records| {
            let record = records.iter_mut().find(|record| same(record, &key)).unwrap();
            let still = record.key.master == from;
            if still {
                record.key = key;
            }
            Ok(still)
        })
    }
}

fn same(record: &KeyRecord, key: &NewKey) -> bool {
    let kept = &record.key;
    (&kept.tenant, &kept.name, kept.version) == (&key.tenant, &key.name, key.version)
}

#[async_trait]
impl Keys for FakeKeys {
    async fn change_key(&self, _scope: &Scope, change: KeyChange) -> Result<bool> {
        match change {
            KeyChange::Add { key, retires_at } => self.add(key, retires_at).map(|()| true),
            KeyChange::Revoke { tenant, name, version } => {
                self.with(|records| {
                    for record in records.iter_mut() {
                        let which = version.is_none_or(|version| version == record.key.version);
                        if which && record.key.tenant == tenant && record.key.name == name {
                            record.status = KeyStatus::Revoked;
                        }
                    }
                });
                Ok(true)
            }
            KeyChange::Rewrap { from, key } => {
                // So that concurrent runs interfere.
                tokio::task::yield_now().await;
                self.rewrap(&from, key)
            }
        }
    }

    async fn keys(
        &self,
        scope: &Scope,
        name: Option<KeyName>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<KeyRecord>> {
        let mut found = self.with(|records| records.clone());
        let asked_for = |r: &KeyRecord| {
            scope.covers(&r.key.tenant) && name.as_ref().is_none_or(|name| r.key.name == *name)
        };
        found.retain(|record| self.confused.load(Ordering::SeqCst) || asked_for(record));
        if name.is_some() {
            self.reads.fetch_add(1, Ordering::SeqCst);
            found.sort_by_key(|record| record.key.version);
            // An answer may be outdated when it arrives.
            tokio::task::yield_now().await;
        }
        let begin = after.map_or(0, |after| after.parse::<usize>().unwrap());
        let end = begin.saturating_add(limit as usize).min(found.len());
        let next = (end < found.len()).then(|| end.to_string());
        Ok(Page { items: found[begin..end].to_vec(), next })
    }
}

/// A master key, always the same for the same byte.
pub(crate) fn master(byte: u8) -> MasterKey {
    let hex = format!("{byte:02x}").repeat(32);
    let source = MasterSource::Variable("MASTER".into());
    MasterKey::load_in(&source, &|_| Some(hex.clone())).unwrap()
}

/// A vault with master key 1 over `keys`.
pub(crate) fn vault(keys: &Arc<FakeKeys>) -> Vault {
    Vault::new(keys.clone(), Some(master(1)))
}

pub(crate) fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

pub(crate) fn key(name: &str) -> KeyName {
    KeyName::new(name).unwrap()
}

pub(crate) fn secret(text: &str) -> SecretString {
    text.into()
}

/// Writes a file with a mode.
pub(crate) fn write_file(path: &Path, bytes: &[u8], mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, bytes).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}
