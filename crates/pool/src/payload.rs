//! What goes into an operation and what comes out: JSON, or bytes as they are.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Arguments or a result, in the form in which they cross to a worker.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    form: Form,
    /// A copy costs nothing.
    bytes: Bytes,
}

/// How the bytes of a [`Payload`] are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One JSON value.
    Json,
    /// Nobody's business: an image, a compressed file.
    Bytes,
}

impl Payload {
    /// A value as JSON.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        Ok(Self::from_json_text(serde_json::to_vec(value)?))
    }

    /// JSON that is already text. Nobody checks it before it is read.
    pub fn from_json_text(text: impl Into<Vec<u8>>) -> Self {
        match text.into() {
            text if text == b"null" => Self::null(),
            text => Self { form: Form::Json, bytes: text.into() },
        }
    }

    /// Bytes as they are.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self { form: Form::Bytes, bytes: bytes.into().into() }
    }

    /// JSON `null`.
    pub fn null() -> Self {
        Self { form: Form::Json, bytes: Bytes::from_static(b"null") }
    }

    /// How to read it.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Its bytes; for [`Form::Json`] the text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, given away.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes.into()
    }

    /// Reads a value out of JSON.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        match self.form {
            Form::Json => serde_json::from_slice(&self.bytes),
            Form::Bytes => Err(serde::de::Error::custom("bytes, where JSON is needed")),
        }
    }
}

/// Its size only: arguments may hold what must not be in a log.
impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Payload({:?}, {} bytes)", self.form, self.bytes.len())
    }
}
