//! The master key: 32 bytes that wrap every data key. Its sources and its id.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use aes_gcm::aead::Generate;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use zeroize::{Zeroize, Zeroizing};

use super::error::VaultError;
use super::private_file::{self, OtherReaders};

/// Bytes of a key, master or data.
pub(super) const KEY_BYTES: usize = 32;

/// The hash prefix of an id, so that the hash has no other use.
const ID_DOMAIN: &[u8] = b"longshore vault master key id v1\0";

/// The variable with the directory of a systemd service's credentials.
const CREDENTIALS_DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

/// A master key. Debug output shows its id; wiped when it is dropped.
#[derive(Clone)]
pub struct MasterKey {
    bytes: Zeroizing<[u8; KEY_BYTES]>,
    id: String,
}

/// The source of a master key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MasterSource {
    /// A file of exactly 32 bytes that only its owner may read. Written as its path.
    File(PathBuf),
    /// A systemd credential of this name. Written `credential:NAME`.
    Credential(String),
    /// A variable with 64 hexadecimal digits, or base64. Written `env:NAME`.
    Variable(String),
}

impl FromStr for MasterSource {
    type Err = VaultError;

    fn from_str(text: &str) -> Result<Self, VaultError> {
        if let Some(name) = text.strip_prefix("credential:") {
            // A name with a slash would leave the directory.
            return match name.is_empty() || name.contains('/') || name.starts_with('.') {
                true => Err(VaultError::BadReference("names no credential")),
                false => Ok(Self::Credential(name.to_owned())),
            };
        }
        if let Some(name) = text.strip_prefix("env:") {
            return Ok(Self::Variable(name.to_owned()));
        }
        match text.strip_prefix("file:").unwrap_or(text) {
            "" => Err(VaultError::BadReference("is empty")),
            path => Ok(Self::File(path.into())),
        }
    }
}

impl MasterKey {
    /// Loads a master key.
    pub fn load(source: &MasterSource) -> Result<Self, VaultError> {
        Self::load_in(source, &|name| std::env::var(name).ok())
    }

    /// Loads a master key, with a given lookup of environment variables.
    pub fn load_in(
        source: &MasterSource,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, VaultError> {
        let set = |name: &str| variable(name).ok_or_else(|| VaultError::NoVariable(name.into()));
        match source {
            MasterSource::File(path) => {
                let bytes = private_file::read(path, OtherReaders::Refused)?;
                from_bytes(&bytes).ok_or_else(|| bad(path.display(), "is not exactly 32 bytes long"))
            }
            MasterSource::Credential(name) => {
                let path = Path::new(&set(CREDENTIALS_DIRECTORY)?).join(name);
                let bytes = private_file::read(&path, OtherReaders::Trusted)?;
                let text = || std::str::from_utf8(&bytes).ok().and_then(parse_text);
                from_bytes(&bytes)
                    .or_else(text)
                    .ok_or_else(|| bad(path.display(), "is neither 32 bytes nor written in hex or base64"))
            }
            MasterSource::Variable(name) => {
                let text = Zeroizing::new(set(name)?);
                parse_text(&text).ok_or_else(|| {
                    bad(format_args!("variable {name}"), "is neither 64 hex digits nor base64")
                })
            }
        }
    }

    /// Generates a master key in a file that must not exist yet.
    pub fn generate(path: &Path) -> Result<Self, VaultError> {
        let bytes = Zeroizing::new(random::<KEY_BYTES>()?);
        private_file::write_new(path, &*bytes)?;
        Ok(Self::new(bytes))
    }

    /// Its id in the records that it wrapped. Reveals nothing about its bytes.
    pub fn id(&self) -> &str {
        &self.id
    }

    fn new(bytes: Zeroizing<[u8; KEY_BYTES]>) -> Self {
        let hash = Sha256::new().chain_update(ID_DOMAIN).chain_update(*bytes).finalize();
        let id = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self { bytes, id }
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.bytes
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", self.id)
    }
}

/// Fresh random bytes.
pub(super) fn random<const N: usize>() -> Result<[u8; N], VaultError> {
    <[u8; N]>::try_generate().map_err(|_| VaultError::NoRandomness)
}

fn bad(place: impl fmt::Display, problem: &'static str) -> VaultError {
    VaultError::BadMaster { place: place.to_string(), problem }
}

fn from_bytes(bytes: &[u8]) -> Option<MasterKey> {
    let bytes: [u8; KEY_BYTES] = bytes.try_into().ok()?;
    Some(MasterKey::new(Zeroizing::new(bytes)))
}

/// Parses a key in hex or base64.
fn parse_text(text: &str) -> Option<MasterKey> {
    let text = text.trim();
    from_hex(text).or_else(|| {
        let mut bytes = STANDARD.decode(text).ok()?;
        let key = from_bytes(&bytes);
        bytes.zeroize();
        key
    })
}

fn from_hex(text: &str) -> Option<MasterKey> {
    if text.len() != 2 * KEY_BYTES {
        return None;
    }
    let mut bytes = Zeroizing::new([0; KEY_BYTES]);
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
    }
    Some(MasterKey::new(bytes))
}
