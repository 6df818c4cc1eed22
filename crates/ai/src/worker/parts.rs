//! Replies in parts, for who wants to read along: numbered, and put together until the last was
//! taken.

use std::sync::Arc;

use longshore::ledger::Ledger;
use longshore::{Context, Payload};
use tokio::sync::mpsc;

use super::address::{Address, Following, following};
use crate::chat::Piece;
use crate::contract::{Heading, Reply};
use crate::desk::{Desk, Errand, Settled};

/// How many pieces may wait before the answer is slowed down.
const AHEAD: usize = 256;

/// Where the parts of a reply go.
pub(super) struct Parts {
    context: Context,
    ledger: Arc<dyn Ledger>,
    address: Address,
    heading: Heading,
}

impl Parts {
    pub(super) fn new(
        context: Context,
        ledger: Arc<dyn Ledger>,
        address: Address,
        heading: Heading,
    ) -> Self {
        Self { context, ledger, address, heading }
    }

    /// Asks, and sends what comes as it comes. While one part is written, what comes gathers to the
    /// next. Parts are a courtesy: one that cannot be delivered is left out, the reply has it all.
    /// Says how many there were.
    pub(super) async fn stream(self, desk: &Desk, errand: &Errand) -> (Settled, u64) {
        let (sender, pieces) = mpsc::channel(AHEAD);
        let asking = async {
            let settled = desk.ask(errand, Some(&sender)).await;
            drop(sender);
            settled
        };
        tokio::join!(asking, self.send_all(pieces))
    }

    async fn send_all(&self, mut pieces: mpsc::Receiver<Piece>) -> u64 {
        let mut seq = 0;
        while let Some(first) = pieces.recv().await {
            let mut text = String::new();
            add(&mut text, first);
            while let Ok(more) = pieces.try_recv() {
                add(&mut text, more);
            }
            if !text.is_empty() {
                seq += 1;
                self.send(seq, text).await;
            }
        }
        seq
    }

    async fn send(&self, seq: u64, text: String) {
        let part = Reply::partial(self.heading.clone(), seq, text);
        let Ok(payload) = part.to_json().map(Payload::from) else { return };
        // Another run of the same unit writes other parts.
        let unit = self.context.unit();
        let run = unit.attempt.saturating_add(unit.lost);
        let id = following(unit.id, Following::Part { run, seq });
        if self.address.send_as(&*self.ledger, id, payload).await.is_err() {
            tracing::debug!(unit = %unit.id, seq, "a part of a reply was not delivered");
        }
    }
}

fn add(text: &mut String, piece: Piece) {
    if let Piece::Text(more) = piece {
        text.push_str(&more);
    }
}
