//! Changes the master key: wraps every data key again, one by one.
//!
//! A record is replaced only if it is still wrapped by the master key that it was read with. So
//! concurrent runs and killed runs do no harm: the next run skips what is done. Meanwhile both
//! master keys are loaded, and every key can be opened.

use longshore::Scope;
use longshore::accounts::{KeyChange, KeyRecord};

use super::envelope::{self, KeyVersion};
use super::error::VaultError;
use super::{KeyEntry, Vault};

/// Keys read per page.
const PAGE: u32 = 100;

/// Passes over all keys. One is enough, unless another process seals with the old master key or
/// rewraps at the same time.
const MAX_PASSES: u32 = 10;

/// The result of a rewrap.
#[derive(Debug, Default)]
pub struct RewrapReport {
    /// Keys that this run wrapped again.
    pub rewrapped: u64,
    /// Keys that were wrapped by the new master key already.
    pub current: u64,
    /// Keys that failed, and why. While there are any, the old master key is needed.
    pub failed: Vec<(KeyEntry, VaultError)>,
}

/// The result for one key.
enum RewrapStep {
    Moved,
    Current,
    Overtaken,
}

impl Vault {
    /// Wraps all keys with the vault's master key that are wrapped by one of its older ones
    /// ([`Vault::with_older`]). Can be run again after a crash.
    pub async fn rewrap(&self, scope: &Scope) -> Result<RewrapReport, VaultError> {
        let mut moved = 0;
        for _ in 0..MAX_PASSES {
            let (mut pass, overtaken) = self.rewrap_once(scope).await?;
            let unchanged = pass.rewrapped == 0 && overtaken == 0;
            moved += pass.rewrapped;
            if unchanged {
                pass.current -= moved.min(pass.current);
                return Ok(RewrapReport { rewrapped: moved, ..pass });
            }
        }
        Err(longshore::Error::unavailable("other processes keep changing the keys").into())
    }

    async fn rewrap_once(&self, scope: &Scope) -> Result<(RewrapReport, u64), VaultError> {
        let (mut pass, mut overtaken, mut after) = (RewrapReport::default(), 0, None::<String>);
        loop {
            let page = self.keys.keys(scope, None, after.as_deref(), PAGE).await?;
            for record in page.items {
                match self.rewrap_one(scope, &record).await {
                    Ok(RewrapStep::Moved) => pass.rewrapped += 1,
                    Ok(RewrapStep::Current) => pass.current += 1,
                    Ok(RewrapStep::Overtaken) => overtaken += 1,
                    // An error of the store ends the run; an error of one key does not.
                    Err(error @ VaultError::Store(_)) => return Err(error),
                    Err(error) => pass.failed.push((KeyEntry::of(&record), error)),
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok((pass, overtaken));
            }
        }
    }

    async fn rewrap_one(&self, scope: &Scope, record: &KeyRecord) -> Result<RewrapStep, VaultError> {
        let (new, key) = (self.master()?, &record.key);
        if key.master == new.id() {
            return Ok(RewrapStep::Current);
        }
        let old = self.master_of(KeyVersion::of(key), &key.master)?;
        let rewrapped = envelope::rewrap(old, new, key)?;
        let rewrap = KeyChange::Rewrap { from: key.master.clone(), key: rewrapped };
        match self.keys.change_key(scope, rewrap).await? {
            true => Ok(RewrapStep::Moved),
            false => Ok(RewrapStep::Overtaken),
        }
    }
}
