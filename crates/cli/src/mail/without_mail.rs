//! Mail in the quickstart build: unsupported, every use is an error.

use async_trait::async_trait;
use longshore_batch::mail::{MailSpool, MailSpoolError, OutgoingMail, SpooledMail};

use crate::error::{WithHint, usage};
use crate::settings::Settings;

const NO_MAIL: &str = "the quickstart build sends no mail";

/// No value of this type exists.
pub enum DigestBuilder {}

impl DigestBuilder {
    pub async fn seal(&self, _: OutgoingMail) -> Result<(), MailSpoolError> {
        match *self {}
    }
}

/// Refuses to compile messages.
pub async fn sealer(_: &Settings) -> anyhow::Result<DigestBuilder> {
    Err(usage(NO_MAIL)).hint("for a build that does: cargo build --release")
}

/// Refuses every message.
pub struct LazyMailSpool;

impl LazyMailSpool {
    pub fn new(_: &Settings) -> Self {
        Self
    }
}

#[async_trait]
impl MailSpool for LazyMailSpool {
    async fn enqueue(&self, _: OutgoingMail) -> Result<SpooledMail, MailSpoolError> {
        Err(MailSpoolError { code: "NO_MAIL", message: NO_MAIL.to_owned(), retryable: false, busy: false })
    }
}
