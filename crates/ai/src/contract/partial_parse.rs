//! Best-effort parse of an invalid request: only the fields that an error reply needs.

use longshore::TenantId;

use super::fields::Fields;
use super::metadata::Metadata;
use super::parse;
use super::reply::ReplyHeader;
use super::request::ReplyTo;
use super::version::Version;

/// The valid fields of a request. With a reply queue, it can be answered.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PartialRequest {
    /// The version that it claims, supported or not.
    pub version: Option<Version>,
    /// The request's id.
    pub request_id: Option<String>,
    /// The customer that it names.
    pub customer: Option<TenantId>,
    /// The queue for a reply.
    pub reply_queue: Option<ReplyTo>,
    /// The metadata to echo; empty if invalid.
    pub metadata: Metadata,
}

/// Parses as much of a request as possible: the fields before the first syntax error, and of these
/// every valid one.
pub fn parse_partial(bytes: &[u8]) -> PartialRequest {
    // Bytes of another encoding invalidate only the field that contains them.
    let text = String::from_utf8_lossy(bytes);
    let fields = Fields::parse_prefix(parse::strip_bom(&text));
    PartialRequest {
        version: parse::version(&fields).ok(),
        request_id: parse::request_id(&fields).ok(),
        customer: parse::customer(&fields).ok(),
        reply_queue: parse::reply_queue(&fields).ok().flatten(),
        metadata: parse::metadata(&fields).unwrap_or_default(),
    }
}

impl PartialRequest {
    /// The header of a reply.
    pub fn header(&self) -> ReplyHeader {
        ReplyHeader {
            version: self.version.map_or(Version::V1, Version::reply_version),
            request_id: self.request_id.clone(),
            metadata: self.metadata.clone(),
        }
    }
}
