//! Classifies a mail server's replies. Pure.

use crate::spool::DeliveryOutcome;

/// The stage of the SMTP session in which a failure occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Before the message: greeting, TLS, authentication.
    Connect,
    /// Sender and recipients: MAIL FROM, RCPT TO, DATA.
    Envelope,
    /// The data was sent.
    Data,
}

/// Why a server did not accept a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SmtpFailure {
    /// The reply code, if the server replied.
    pub(super) code: Option<u16>,
    pub(super) text: String,
}

/// Permanent errors that concern our configuration and not the message: an expired password must not fail a
/// day's mail.
const OWN_ERRORS: [u16; 5] = [521, 530, 534, 535, 538];
/// Before the data, old servers say this about too many recipients or a temporarily full mailbox (RFC 5321,
/// 4.5.3.1.10). After the data, the message is too large, which is permanent.
const TOO_LARGE: u16 = 552;

/// The outcome of an attempt that failed at this stage.
pub(super) fn classify(stage: Stage, failure: SmtpFailure) -> DeliveryOutcome {
    let why = match failure.code {
        Some(code) => format!("{code} {}", failure.text),
        None => failure.text,
    };
    match (stage, failure.code) {
        // A failed connection says nothing about the message.
        (Stage::Connect, _) => DeliveryOutcome::Deferred { why },
        (Stage::Envelope, Some(TOO_LARGE)) => DeliveryOutcome::Deferred { why },
        (_, Some(code)) if (500..600).contains(&code) && !OWN_ERRORS.contains(&code) => {
            DeliveryOutcome::Refused { why }
        }
        (_, Some(_)) | (Stage::Envelope, None) => DeliveryOutcome::Deferred { why },
        (Stage::Data, None) => DeliveryOutcome::Unanswered { why },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(stage: Stage, code: Option<u16>) -> &'static str {
        match classify(stage, SmtpFailure { code, text: "x".into() }) {
            DeliveryOutcome::Accepted { .. } => "taken",
            DeliveryOutcome::Deferred { .. } => "deferred",
            DeliveryOutcome::Refused { .. } => "refused",
            DeliveryOutcome::Unanswered { .. } => "unanswered",
            DeliveryOutcome::Partial { .. } => "partly",
        }
    }

    #[test]
    fn only_what_is_about_the_message_is_final() {
        use Stage::{Connect, Data, Envelope};
        let cases = [
            (Connect, Some(550), "deferred"),
            (Connect, Some(535), "deferred"),
            (Connect, None, "deferred"),
            (Envelope, Some(450), "deferred"),
            (Envelope, Some(550), "refused"),
            (Envelope, Some(501), "refused"),
            (Envelope, Some(530), "deferred"),
            (Envelope, Some(552), "deferred"),
            (Envelope, Some(299), "deferred"),
            (Envelope, None, "deferred"),
            (Data, Some(451), "deferred"),
            (Data, Some(554), "refused"),
            (Data, Some(552), "refused"),
            (Data, Some(530), "deferred"),
            (Data, None, "unanswered"),
        ];
        for (stage, code, expected) in cases {
            assert_eq!(class(stage, code), expected, "{stage:?} {code:?}");
        }
    }
}
