//! Envelopes: a secret under a data key of its own, and that under the master key.
//!
//! Pure but for the randomness. What is sealed is bound to its place (tenant, name, version), so a
//! record that was copied to another place does not open there. An envelope is one byte of format,
//! twelve of nonce, and AES-256-GCM's output with its tag.

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce};
use longshore_core::ledger::NewKey;
use longshore_core::{KeyName, TenantId};
use zeroize::Zeroizing;

use super::error::{KeyLabel, VaultError};
use super::master::{KEY_BYTES, MasterKey, random};

/// What the format is now.
const FORMAT: u8 = 1;
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;

/// Where a key stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) tenant: &'a TenantId,
    pub(super) name: &'a KeyName,
    pub(super) version: u32,
}

/// What is in an envelope. A data key does not open as a secret, nor the other way round.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    Secret,
    DataKey,
}

type DataKey = Zeroizing<[u8; KEY_BYTES]>;

/// Seals a secret for its place.
pub(super) fn seal(
    master: &MasterKey,
    place: Place<'_>,
    provider: &str,
    secret: &[u8],
) -> Result<NewKey, VaultError> {
    let data_key: DataKey = Zeroizing::new(random()?);
    Ok(NewKey {
        tenant: place.tenant.clone(),
        name: place.name.clone(),
        version: place.version,
        provider: provider.to_owned(),
        sealed: encrypt(&data_key, &place.bound(Purpose::Secret), secret)?,
        wrapped: wrap(master, place, &data_key)?,
        master: master.id().to_owned(),
    })
}

/// Opens a key that was sealed for a place: the one that was asked for, whatever the record says.
pub(super) fn open(
    master: &MasterKey,
    place: Place<'_>,
    key: &NewKey,
) -> Result<Zeroizing<Vec<u8>>, VaultError> {
    let data_key = unwrap(master, place, key)?;
    decrypt(&data_key, &place.bound(Purpose::Secret), &key.sealed).ok_or_else(|| changed(place))
}

/// The same key, wrapped by another master key. The secret itself is not opened.
pub(super) fn rewrap(old: &MasterKey, new: &MasterKey, key: &NewKey) -> Result<NewKey, VaultError> {
    let place = Place::of(key);
    let wrapped = wrap(new, place, &*unwrap(old, place, key)?)?;
    Ok(NewKey { wrapped, master: new.id().to_owned(), ..key.clone() })
}

fn wrap(
    master: &MasterKey,
    place: Place<'_>,
    data_key: &[u8; KEY_BYTES],
) -> Result<Vec<u8>, VaultError> {
    encrypt(master.bytes(), &place.bound(Purpose::DataKey), data_key)
}

fn unwrap(master: &MasterKey, place: Place<'_>, key: &NewKey) -> Result<DataKey, VaultError> {
    let bound = place.bound(Purpose::DataKey);
    let bytes = decrypt(master.bytes(), &bound, &key.wrapped).ok_or_else(|| changed(place))?;
    let data_key: &[u8; KEY_BYTES] = bytes.as_slice().try_into().map_err(|_| changed(place))?;
    Ok(Zeroizing::new(*data_key))
}

fn changed(place: Place<'_>) -> VaultError {
    VaultError::Changed(place.label())
}

impl<'a> Place<'a> {
    pub(super) fn of(key: &'a NewKey) -> Self {
        Self { tenant: &key.tenant, name: &key.name, version: key.version }
    }

    pub(super) fn label(self) -> KeyLabel {
        let version = Some(self.version);
        KeyLabel { tenant: self.tenant.clone(), name: self.name.clone(), version }
    }

    /// What the cipher checks beside the bytes. Each part with its length before it: otherwise
    /// `ab` + `c` would be `a` + `bc`.
    fn bound(self, purpose: Purpose) -> Vec<u8> {
        let purpose: &[u8] = match purpose {
            Purpose::Secret => b"secret",
            Purpose::DataKey => b"data key",
        };
        let version = self.version.to_be_bytes();
        let name = self.name.as_str().as_bytes();
        let tenant = self.tenant.as_str().as_bytes();
        let mut bound = Vec::new();
        for part in [b"longshore vault v1", purpose, name, &version[..], tenant] {
            bound.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bound.extend_from_slice(part);
        }
        bound
    }
}

fn encrypt(key: &[u8; KEY_BYTES], bound: &[u8], plain: &[u8]) -> Result<Vec<u8>, VaultError> {
    let nonce: [u8; NONCE_BYTES] = random()?;
    // With room for the tag: a buffer that grew would leave its old bytes behind, unencrypted.
    let mut body = Zeroizing::new(Vec::with_capacity(plain.len() + TAG_BYTES));
    body.extend_from_slice(plain);
    Aes256Gcm::new(key.into())
        .encrypt_in_place(&Nonce::from(nonce), bound, &mut *body)
        .map_err(|_| VaultError::BadSecret("is too long"))?;
    Ok([&[FORMAT][..], &nonce, &body].concat())
}

/// Nothing if any byte of it, or of what it is bound to, is another.
fn decrypt(key: &[u8; KEY_BYTES], bound: &[u8], envelope: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (&format, rest) = envelope.split_first()?;
    let (nonce, body) = rest.split_first_chunk::<NONCE_BYTES>()?;
    if format != FORMAT {
        return None;
    }
    let mut body = Zeroizing::new(body.to_vec());
    let cipher = Aes256Gcm::new(key.into());
    cipher.decrypt_in_place(&Nonce::from(*nonce), bound, &mut *body).ok()?;
    Some(body)
}
