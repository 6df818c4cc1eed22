//! Envelope encryption: a secret under its own data key, and that under the master key.
//!
//! Pure except for the randomness. The ciphertext is bound to tenant, name and version, so that a
//! record copied elsewhere does not open. An envelope is one byte of format, twelve of nonce, and
//! AES-256-GCM's output with its tag.

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce};
use longshore::accounts::NewKey;
use longshore::{KeyName, TenantId};
use zeroize::Zeroizing;

use super::error::{KeyLabel, VaultError};
use super::master::{KEY_BYTES, MasterKey, random};

/// The current format.
const FORMAT: u8 = 1;
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;

/// The identity of a key version, which its ciphertext is bound to.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyVersion<'a> {
    pub(super) tenant: &'a TenantId,
    pub(super) name: &'a KeyName,
    pub(super) version: u32,
}

/// What an envelope contains. A data key does not open as a secret, nor a secret as a data key.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    Secret,
    DataKey,
}

type DataKey = Zeroizing<[u8; KEY_BYTES]>;

/// Seals a secret.
pub(super) fn seal(
    master: &MasterKey,
    version: KeyVersion<'_>,
    provider: &str,
    secret: &[u8],
) -> Result<NewKey, VaultError> {
    let data_key: DataKey = Zeroizing::new(random()?);
    Ok(NewKey {
        tenant: version.tenant.clone(),
        name: version.name.clone(),
        version: version.version,
        provider: provider.to_owned(),
        sealed: encrypt(&data_key, &version.associated_data(Purpose::Secret), secret)?,
        wrapped: wrap(master, version, &data_key)?,
        master: master.id().to_owned(),
    })
}

/// Opens a key with the identity that was requested, whatever the record says.
pub(super) fn open(
    master: &MasterKey,
    version: KeyVersion<'_>,
    key: &NewKey,
) -> Result<Zeroizing<Vec<u8>>, VaultError> {
    let data_key = unwrap(master, version, key)?;
    decrypt(&data_key, &version.associated_data(Purpose::Secret), &key.sealed)
        .ok_or_else(|| changed_error(version))
}

/// Wraps a key with another master key. The secret itself is not decrypted.
pub(super) fn rewrap(old: &MasterKey, new: &MasterKey, key: &NewKey) -> Result<NewKey, VaultError> {
    let version = KeyVersion::of(key);
    let wrapped = wrap(new, version, &*unwrap(old, version, key)?)?;
    Ok(NewKey { wrapped, master: new.id().to_owned(), ..key.clone() })
}

fn wrap(
    master: &MasterKey,
    version: KeyVersion<'_>,
    data_key: &[u8; KEY_BYTES],
) -> Result<Vec<u8>, VaultError> {
    encrypt(master.bytes(), &version.associated_data(Purpose::DataKey), data_key)
}

fn unwrap(master: &MasterKey, version: KeyVersion<'_>, key: &NewKey) -> Result<DataKey, VaultError> {
    let data = version.associated_data(Purpose::DataKey);
    let bytes = decrypt(master.bytes(), &data, &key.wrapped).ok_or_else(|| changed_error(version))?;
    let data_key: &[u8; KEY_BYTES] = bytes.as_slice().try_into().map_err(|_| changed_error(version))?;
    Ok(Zeroizing::new(*data_key))
}

fn changed_error(version: KeyVersion<'_>) -> VaultError {
    VaultError::Changed(version.label())
}

impl<'a> KeyVersion<'a> {
    pub(super) fn of(key: &'a NewKey) -> Self {
        Self { tenant: &key.tenant, name: &key.name, version: key.version }
    }

    pub(super) fn label(self) -> KeyLabel {
        let version = Some(self.version);
        KeyLabel { tenant: self.tenant.clone(), name: self.name.clone(), version }
    }

    /// The cipher's associated data. Each part is preceded by its length: otherwise `ab` + `c`
    /// would equal `a` + `bc`.
    fn associated_data(self, purpose: Purpose) -> Vec<u8> {
        let purpose: &[u8] = match purpose {
            Purpose::Secret => b"secret",
            Purpose::DataKey => b"data key",
        };
        let version = self.version.to_be_bytes();
        let name = self.name.as_str().as_bytes();
        let tenant = self.tenant.as_str().as_bytes();
        let mut data = Vec::new();
        for part in [b"longshore vault v1", purpose, name, &version[..], tenant] {
            data.extend_from_slice(&(part.len() as u64).to_be_bytes());
            data.extend_from_slice(part);
        }
        data
    }
}

fn encrypt(key: &[u8; KEY_BYTES], data: &[u8], plain: &[u8]) -> Result<Vec<u8>, VaultError> {
    let nonce: [u8; NONCE_BYTES] = random()?;
    // With space for the tag: a buffer that grew would leave plaintext behind in its old
    // allocation.
    let mut body = Zeroizing::new(Vec::with_capacity(plain.len() + TAG_BYTES));
    body.extend_from_slice(plain);
    Aes256Gcm::new(key.into())
        .encrypt_in_place(&Nonce::from(nonce), data, &mut *body)
        .map_err(|_| VaultError::BadSecret("is too long"))?;
    Ok([&[FORMAT][..], &nonce, &body].concat())
}

/// `None` if any byte of the envelope or of the associated data differs.
fn decrypt(key: &[u8; KEY_BYTES], data: &[u8], envelope: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (&format, rest) = envelope.split_first()?;
    let (nonce, body) = rest.split_first_chunk::<NONCE_BYTES>()?;
    if format != FORMAT {
        return None;
    }
    let mut body = Zeroizing::new(body.to_vec());
    let cipher = Aes256Gcm::new(key.into());
    cipher.decrypt_in_place(&Nonce::from(*nonce), data, &mut *body).ok()?;
    Some(body)
}
