//! Arguments and results of operations: JSON, or raw bytes.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Arguments or a result, as they are sent to and from a worker.
#[derive(Clone, PartialEq, Eq)]
pub struct CallPayload {
    form: Form,
    /// Cheap to clone.
    bytes: Bytes,
}

/// How the bytes of a [`CallPayload`] are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One JSON value.
    Json,
    /// Bytes that the pool does not parse: an image, a compressed file.
    Bytes,
}

impl CallPayload {
    /// Serialises a value as JSON.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        Ok(Self::from_json_text(serde_json::to_vec(value)?))
    }

    /// JSON text. It is not validated before it is read.
    pub fn from_json_text(text: impl Into<Vec<u8>>) -> Self {
        match text.into() {
            text if text == b"null" => Self::null(),
            text => Self { form: Form::Json, bytes: text.into() },
        }
    }

    /// Raw bytes.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self { form: Form::Bytes, bytes: bytes.into().into() }
    }

    /// JSON `null`.
    pub fn null() -> Self {
        Self { form: Form::Json, bytes: Bytes::from_static(b"null") }
    }

    /// How to read the bytes.
    pub fn form(&self) -> Form {
        self.form
    }

    /// The bytes; for [`Form::Json`] the text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, without a copy where the payload is the only owner.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes.into()
    }

    /// Parses JSON.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        match self.form {
            Form::Json => serde_json::from_slice(&self.bytes),
            Form::Bytes => Err(serde::de::Error::custom("bytes, where JSON is needed")),
        }
    }
}

/// Shows the size only: arguments may contain secrets.
impl std::fmt::Debug for CallPayload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Payload({:?}, {} bytes)", self.form, self.bytes.len())
    }
}
