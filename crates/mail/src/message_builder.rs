//! Builds messages: from addresses, subject and HTML to RFC 5322 bytes.

use std::time::{Duration, UNIX_EPOCH};

use lettre::message::{Body, Mailbox, MultiPart, header};
use longshore::{Priority, Timestamp};

use crate::html_to_text::html_to_text;
use crate::quoted_printable::encode;
use crate::spool::{Envelope, MessageKey, NewMessage};

/// The content of a message before it is encoded.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The sender, as `Name <name@example.org>`.
    pub from: String,
    /// The recipients.
    pub to: Vec<String>,
    /// The subject.
    pub subject: String,
    /// The HTML part.
    pub html: String,
    /// The plain-text part; derived from the HTML if absent.
    pub text: Option<String>,
    /// The envelope sender, which receives bounces; `from` if absent.
    pub bounces_to: Option<String>,
    /// Further headers, as `("List-Unsubscribe", "<https://…>")`.
    pub headers: Vec<(String, String)>,
}

/// Why a draft is not a valid message. A retry cannot succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DraftError {
    /// An address cannot be parsed.
    #[error("`{0}` is no address")]
    Address(String),
    /// A header has an invalid name, or a value with a line break.
    #[error("`{0}` is not a valid header")]
    Header(String),
    /// The message is incomplete.
    #[error("cannot build the message")]
    Incomplete(#[source] lettre::error::Error),
}

impl Draft {
    /// Encodes the message. Its Message-ID depends only on the key and the sender's domain.
    pub fn build(
        &self,
        key: MessageKey,
        due: Timestamp,
        priority: Priority,
        now: Timestamp,
    ) -> Result<NewMessage, DraftError> {
        let from = mailbox(&self.from)?;
        let message_id = key.message_id(from.email.domain());
        let since = Duration::from_micros(u64::try_from(now.as_micros()).unwrap_or(0));
        let mut builder = lettre::Message::builder()
            .from(from.clone())
            .subject(&self.subject)
            .message_id(Some(format!("<{message_id}>")))
            .date(UNIX_EPOCH + since);
        let mut to = Vec::new();
        for address in &self.to {
            let mailbox = mailbox(address)?;
            to.push(mailbox.email.to_string());
            builder = builder.to(mailbox);
        }
        for (name, value) in &self.headers {
            let refused = || DraftError::Header(name.clone());
            if value.contains(['\r', '\n']) {
                return Err(refused());
            }
            let name = header::HeaderName::new_from_ascii(name.clone()).map_err(|_| refused())?;
            builder = builder.raw_header(header::HeaderValue::new(name, value.clone()));
        }
        let text = self.text.clone().unwrap_or_else(|| html_to_text(&self.html));
        let html =
            Body::dangerous_pre_encoded(encode(&self.html), header::ContentTransferEncoding::QuotedPrintable);
        let message = builder.multipart(MultiPart::alternative_plain_html(text, html));
        let body = message.map_err(DraftError::Incomplete)?.formatted();
        let bounces_to = match &self.bounces_to {
            Some(address) => mailbox(address)?.email.to_string(),
            None => from.email.to_string(),
        };
        Ok(NewMessage {
            key,
            due,
            priority,
            envelope: Envelope { from: Some(bounces_to), to },
            message_id,
            metadata: None,
            body,
        })
    }
}

fn mailbox(text: &str) -> Result<Mailbox, DraftError> {
    text.parse().map_err(|_| DraftError::Address(text.to_owned()))
}
