//! A message in the making: from words to the lines that are sent.

use std::time::{Duration, UNIX_EPOCH};

use lettre::message::{Body, Mailbox, MultiPart, header};
use longshore::{Priority, Timestamp};

use crate::quoted::quoted;
use crate::spool::{Envelope, Key, Letter};
use crate::text::from_html;

/// What somebody wants to say to somebody.
#[derive(Debug, Clone)]
pub struct Draft {
    /// From whom, as `Name <name@example.org>`.
    pub from: String,
    /// To whom.
    pub to: Vec<String>,
    /// About what.
    pub subject: String,
    /// The page.
    pub html: String,
    /// The same as text; made from the page if there is none.
    pub text: Option<String>,
    /// Where bounces go, if not to whom it is from.
    pub bounces_to: Option<String>,
    /// Further lines of its head, as `("List-Unsubscribe", "<https://…>")`.
    pub headers: Vec<(String, String)>,
}

/// Why a draft cannot become a message. It never will.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DraftError {
    /// That is no address.
    #[error("`{0}` is no address")]
    Address(String),
    /// That cannot be a line of a message's head.
    #[error("`{0}` is no line of a message's head")]
    Header(String),
    /// Something is missing.
    #[error("the message cannot be made")]
    Incomplete(#[source] lettre::error::Error),
}

impl Draft {
    /// The message, with a Message-ID that is the same whenever it is made for this key.
    pub fn seal(
        &self,
        key: Key,
        due: Timestamp,
        priority: Priority,
        now: Timestamp,
    ) -> Result<Letter, DraftError> {
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
        let text = self.text.clone().unwrap_or_else(|| from_html(&self.html));
        let html = Body::dangerous_pre_encoded(
            quoted(&self.html),
            header::ContentTransferEncoding::QuotedPrintable,
        );
        let message = builder.multipart(MultiPart::alternative_plain_html(text, html));
        let body = message.map_err(DraftError::Incomplete)?.formatted();
        let bounces_to = match &self.bounces_to {
            Some(address) => mailbox(address)?.email.to_string(),
            None => from.email.to_string(),
        };
        Ok(Letter {
            key,
            due,
            priority,
            envelope: Envelope { from: Some(bounces_to), to },
            message_id,
            about: None,
            body,
        })
    }
}

fn mailbox(text: &str) -> Result<Mailbox, DraftError> {
    text.parse().map_err(|_| DraftError::Address(text.to_owned()))
}
