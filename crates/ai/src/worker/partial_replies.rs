//! Partial replies for clients that read an answer while it is generated. Numbered, and coalesced
//! while the previous part is written.

use std::sync::Arc;

use longshore::accounts::Ledger;
use longshore::{Context, Payload};
use tokio::sync::mpsc;

use super::reply_queue::{DerivedUnit, ReplyQueue, derived_id};
use crate::chat::AnswerPiece;
use crate::contract::{Reply, ReplyHeader};
use crate::inference::{Inference, InferenceOutcome, InferenceRequest};

/// Pieces buffered before the provider is slowed down.
const CHANNEL_CAPACITY: usize = 256;

/// Sends the parts of a reply.
pub(super) struct PartialReplies {
    context: Context,
    ledger: Arc<dyn Ledger>,
    queue: ReplyQueue,
    header: ReplyHeader,
}

impl PartialReplies {
    pub(super) fn new(
        context: Context,
        ledger: Arc<dyn Ledger>,
        queue: ReplyQueue,
        header: ReplyHeader,
    ) -> Self {
        Self { context, ledger, queue, header }
    }

    /// Asks, and sends the answer's text as it arrives. While one part is written, new text is
    /// collected for the next. Parts are best effort: one that cannot be delivered is dropped, and
    /// the final reply has the whole text. Returns the number of parts.
    pub(super) async fn stream(
        self,
        inference: &Inference,
        call: &InferenceRequest,
    ) -> (InferenceOutcome, u64) {
        let (sender, pieces) = mpsc::channel(CHANNEL_CAPACITY);
        let asking = async {
            let outcome = inference.ask(call, Some(&sender)).await;
            drop(sender);
            outcome
        };
        tokio::join!(asking, self.send_all(pieces))
    }

    async fn send_all(&self, mut pieces: mpsc::Receiver<AnswerPiece>) -> u64 {
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
        let part = Reply::partial(self.header.clone(), seq, text);
        let Ok(payload) = part.to_json().map(Payload::from) else { return };
        // Another run of the same unit writes other parts.
        let unit = self.context.unit();
        let run = unit.attempt.saturating_add(unit.lost);
        let id = derived_id(unit.id, DerivedUnit::Part { run, seq });
        if self.queue.send_as(&*self.ledger, id, payload).await.is_err() {
            tracing::debug!(unit = %unit.id, seq, "a part of a reply was not delivered");
        }
    }
}

fn add(text: &mut String, piece: AnswerPiece) {
    if let AnswerPiece::Text(more) = piece {
        text.push_str(&more);
    }
}
