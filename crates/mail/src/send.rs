//! Delivers messages from the spool.
//!
//! A [`Sender`] claims due messages, sends each through a [`Transport`], and records the outcome. Carriers are
//! [`Smtp`], a mail server, and [`FileTransport`], which writes `.eml` files instead.

mod connection;
mod domain_limiter;
mod file_transport;
mod reply_class;
mod sender;
mod smtp;
mod tls;

use async_trait::async_trait;

use crate::spool::{DeliveryOutcome, SpooledMessage};

pub use domain_limiter::DomainRate;
pub use file_transport::FileTransport;
pub use sender::{SendReport, Sender, SenderSettings};
pub use smtp::{Credentials, Security, Smtp, SmtpSettings};
pub use tls::SmtpTlsError;

/// Delivers messages: a mail server or a folder.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Starts a mail transaction for a message. The returned transaction is ready for the message's data. An
    /// error is the outcome of the attempt; then nothing was delivered.
    async fn begin(&self, message: &SpooledMessage) -> Result<Box<dyn MailTransaction>, DeliveryOutcome>;

    /// Closes idle connections, once there are no more messages.
    async fn close(&self) {}
}

/// A mail transaction that is ready for data. If it is dropped before, nothing is delivered.
#[async_trait]
pub trait MailTransaction: Send {
    /// Sends the message's data. From the first byte on it may have been delivered.
    async fn send_data(&mut self, message: &SpooledMessage) -> DeliveryOutcome;

    /// Releases the connection. Called after the outcome was recorded: a sender that is killed while
    /// the server takes its time to reply to QUIT must not send the message again.
    async fn close(self: Box<Self>) {}
}
