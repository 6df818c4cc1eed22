//! Sends from the spool to a real mail server.

mod fuzz;
mod message_builder;
mod sender;
mod smtp;
mod storm;

use std::sync::Arc;

use longshore::{Priority, SystemClock, Timestamp};
use longshore_mail::message_builder::Draft;
use longshore_mail::send::{Security, SendReport, Sender, SenderSettings, Smtp, SmtpSettings, Transport};
use longshore_mail::spool::{MessageKey, NewMessage, Share, Spool};
use longshore_testkit::servers::PrivateSmtp;

fn now() -> Timestamp {
    longshore::Clock::now(&SystemClock)
}

/// A message to `to` with the key `about`.
fn letter(to: &str, about: &str) -> NewMessage {
    let draft = Draft {
        from: "The Harbour <harbour@example.org>".into(),
        to: vec![to.into()],
        subject: format!("About {about} – été"),
        html: format!("<h1>Hello</h1><p>This is about <b>{about}</b>. Grüße</p>"),
        text: None,
        bounces_to: Some("bounces@example.org".into()),
        headers: vec![("List-Unsubscribe".into(), "<https://example.org/off>".into())],
    };
    draft.build(MessageKey::new(about).expect("a key"), now(), Priority::NORMAL, now()).expect("a letter")
}

/// Settings for a test server.
fn settings(server: &PrivateSmtp, security: Security) -> SmtpSettings {
    let host = if security == Security::None { "127.0.0.1" } else { "localhost" };
    SmtpSettings {
        security,
        authorities: Some(server.ca_certificate()),
        ..SmtpSettings::new(host, server.port())
    }
}

fn smtp(server: &PrivateSmtp, security: Security) -> Arc<Smtp> {
    Arc::new(Smtp::new(settings(server, security)).expect("it can be reached"))
}

/// Sends one round.
async fn send(spool: &Spool, carrier: Arc<dyn Transport>) -> SendReport {
    send_with(spool, carrier, SenderSettings::default()).await
}

async fn send_with(spool: &Spool, carrier: Arc<dyn Transport>, settings: SenderSettings) -> SendReport {
    let shard = spool.shard(Share::ALL).expect("the lock is free");
    let sender = Sender::new(shard, carrier, settings, Arc::new(SystemClock)).await.expect("it begins");
    sender.round(&|| false).await.expect("it sends")
}
