//! Changing the master key: every data key is wrapped anew, one after the other.
//!
//! Each is exchanged only if it is still wrapped by what it was read with, so it does not matter who
//! else does the same, or how often somebody was killed at it: whoever begins again passes over what
//! is done. Meanwhile both master keys are loaded, and every key can be opened.

use longshore::Scope;
use longshore::ledger::KeyRecord;

use super::error::VaultError;
use super::seal::{self, Place};
use super::{KeyEntry, Vault};

/// How many keys are looked at at once.
const PAGE: u32 = 100;

/// How often all keys are gone through. Once does it, unless somebody seals with the old master key
/// at the same time, or another process wraps anew.
const MOST_PASSES: u32 = 10;

/// What came of wrapping anew.
#[derive(Debug, Default)]
pub struct Rewrapped {
    /// How many were wrapped anew by this run.
    pub moved: u64,
    /// How many had been already.
    pub there: u64,
    /// Those that could not be, and why. The old master key is needed as long as there are any.
    pub left: Vec<(KeyEntry, VaultError)>,
}

/// What became of one key.
enum Step {
    Moved,
    There,
    Overtaken,
}

impl Vault {
    /// Wraps all keys by the vault's master key that are wrapped by one of its older ones
    /// ([`Vault::with_older`]). Killed in the middle, it can be run again.
    pub async fn rewrap(&self, scope: &Scope) -> Result<Rewrapped, VaultError> {
        let mut moved = 0;
        for _ in 0..MOST_PASSES {
            let (mut pass, overtaken) = self.rewrap_once(scope).await?;
            let still = pass.moved == 0 && overtaken == 0;
            moved += pass.moved;
            if still {
                pass.there -= moved.min(pass.there);
                return Ok(Rewrapped { moved, ..pass });
            }
        }
        Err(longshore::Error::unavailable("others keep changing the keys").into())
    }

    async fn rewrap_once(&self, scope: &Scope) -> Result<(Rewrapped, u64), VaultError> {
        let (mut pass, mut overtaken, mut after) = (Rewrapped::default(), 0, None::<String>);
        loop {
            let page = self.keys.keys(scope, after.as_deref(), PAGE).await?;
            for record in page.items {
                match self.rewrap_one(scope, &record).await {
                    Ok(Step::Moved) => pass.moved += 1,
                    Ok(Step::There) => pass.there += 1,
                    Ok(Step::Overtaken) => overtaken += 1,
                    // The store's failures end the run; what is wrong with one key does not.
                    Err(error @ VaultError::Store(_)) => return Err(error),
                    Err(error) => pass.left.push((KeyEntry::of(&record), error)),
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok((pass, overtaken));
            }
        }
    }

    async fn rewrap_one(&self, scope: &Scope, record: &KeyRecord) -> Result<Step, VaultError> {
        let (new, key) = (self.master()?, &record.key);
        if key.master == new.id() {
            return Ok(Step::There);
        }
        let old = self.master_of(Place::of(key), &key.master)?;
        let anew = seal::rewrap(old, new, key)?;
        match self.keys.rewrap_key(scope, &key.master, anew).await? {
            true => Ok(Step::Moved),
            false => Ok(Step::Overtaken),
        }
    }
}
