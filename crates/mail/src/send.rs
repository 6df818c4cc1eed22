//! From the spool to whoever carries mail on.
//!
//! A [`Sender`] takes what is due, offers it to a [`Carrier`], and settles what came of it. Carriers are
//! [`Smtp`], a mail server, and [`Folder`], where mail is looked at instead of sent.

mod answer;
mod folder;
mod rate;
mod sender;
mod smtp;
mod stream;
mod tls;

use async_trait::async_trait;

use crate::spool::{Message, Outcome};

pub use folder::Folder;
pub use rate::DomainRate;
pub use sender::{Sender, SenderSettings, Sent};
pub use smtp::{Credentials, Security, Smtp, SmtpSettings};
pub use tls::TlsError;

/// Whoever carries mail on.
#[async_trait]
pub trait Carrier: Send + Sync {
    /// Offers a message. What comes back can take it; an error says what came of the offer instead, and
    /// that nothing has arrived.
    async fn offer(&self, message: &Message) -> Result<Box<dyn Offered>, Outcome>;

    /// Takes leave, once nothing more is to be carried.
    async fn close(&self) {}
}

/// An offer that was accepted. Dropped, nothing arrives.
#[async_trait]
pub trait Offered: Send {
    /// Hands the message over. From the first byte on it may have arrived.
    async fn hand_over(self: Box<Self>, message: &Message) -> Outcome;
}
