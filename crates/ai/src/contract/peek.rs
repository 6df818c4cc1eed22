//! What can be read of a request that cannot be: enough to answer it.

use longshore_core::TenantId;

use super::fields::Fields;
use super::metadata::Metadata;
use super::reply::Heading;
use super::request::ReplyTo;
use super::request_read as read;
use super::version::Version;

/// What could be read of a request. With a reply queue, it can be answered.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Peeked {
    /// The version it says it is written in, known or not.
    pub version: Option<Version>,
    /// What the caller recognises it by.
    pub request_id: Option<String>,
    /// Who asks, as the request says.
    pub customer: Option<TenantId>,
    /// Where a reply would go.
    pub reply_queue: Option<ReplyTo>,
    /// What is to be echoed; nothing if it could not be read.
    pub metadata: Metadata,
}

/// Reads as much of a request as can be read: what stands before the first mistake in its JSON, and
/// every field that keeps to the contract, whatever the others do.
pub fn peek(bytes: &[u8]) -> Peeked {
    // Characters of another encoding spoil the field they are in, not those beside it.
    let text = String::from_utf8_lossy(bytes);
    let fields = Fields::read_what_can_be(read::without_mark(&text));
    Peeked {
        version: read::version(&fields).ok(),
        request_id: read::request_id(&fields).ok(),
        customer: read::customer(&fields).ok(),
        reply_queue: read::reply_queue(&fields).ok(),
        metadata: read::metadata(&fields).unwrap_or_default(),
    }
}

impl Peeked {
    /// What a reply begins with.
    pub fn heading(&self) -> Heading {
        Heading {
            version: self.version.map_or(Version::V1, Version::answered_in),
            request_id: self.request_id.clone(),
            metadata: self.metadata.clone(),
        }
    }
}
