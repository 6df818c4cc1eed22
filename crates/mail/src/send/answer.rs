//! What a mail server's answer means for a message. Pure.

use crate::spool::Outcome;

/// How far a conversation had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Before any message: greeting, TLS, authentication.
    Connecting,
    /// The message was offered: from whom, to whom.
    Offering,
    /// All of it was sent.
    HandedOver,
}

/// Why a server did not take a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    /// What it answered, if it did.
    pub(super) code: Option<u16>,
    pub(super) words: String,
}

/// Refusals that are about us and not about the message: it would be a pity to lose a day's mail because a
/// password has expired.
const ABOUT_US: [u16; 5] = [521, 530, 534, 535, 538];
/// Before the message, what old servers say to too many recipients, or of a mailbox that is full for now (RFC
/// 5321, 4.5.3.1.10). After it, that it is too large, which it stays.
const TOO_MUCH: u16 = 552;

/// What follows for the message.
pub(super) fn outcome(stage: Stage, trouble: Trouble) -> Outcome {
    let why = match trouble.code {
        Some(code) => format!("{code} {}", trouble.words),
        None => trouble.words,
    };
    match (stage, trouble.code) {
        // Whatever it is that keeps us from connecting, the message can do nothing for it.
        (Stage::Connecting, _) => Outcome::Deferred { why },
        (Stage::Offering, Some(TOO_MUCH)) => Outcome::Deferred { why },
        (_, Some(code)) if (500..600).contains(&code) && !ABOUT_US.contains(&code) => {
            Outcome::Refused { why }
        }
        (_, Some(_)) | (Stage::Offering, None) => Outcome::Deferred { why },
        (Stage::HandedOver, None) => Outcome::Unanswered { why },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(stage: Stage, code: Option<u16>) -> &'static str {
        match outcome(stage, Trouble { code, words: "x".into() }) {
            Outcome::Taken { .. } => "taken",
            Outcome::Deferred { .. } => "deferred",
            Outcome::Refused { .. } => "refused",
            Outcome::Unanswered { .. } => "unanswered",
            Outcome::Partly { .. } => "partly",
        }
    }

    #[test]
    fn only_what_is_about_the_message_is_final() {
        use Stage::{Connecting, HandedOver, Offering};
        let cases = [
            (Connecting, Some(550), "deferred"),
            (Connecting, Some(535), "deferred"),
            (Connecting, None, "deferred"),
            (Offering, Some(450), "deferred"),
            (Offering, Some(550), "refused"),
            (Offering, Some(501), "refused"),
            (Offering, Some(530), "deferred"),
            (Offering, Some(552), "deferred"),
            (Offering, Some(299), "deferred"),
            (Offering, None, "deferred"),
            (HandedOver, Some(451), "deferred"),
            (HandedOver, Some(554), "refused"),
            (HandedOver, Some(552), "refused"),
            (HandedOver, Some(530), "deferred"),
            (HandedOver, None, "unanswered"),
        ];
        for (stage, code, expected) in cases {
            assert_eq!(judged(stage, code), expected, "{stage:?} {code:?}");
        }
    }
}
