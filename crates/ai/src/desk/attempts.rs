//! The tries of one call: asked again for as long as that may help, and handed on as they come.

use std::sync::Arc;
use std::time::Duration;

use longshore::Context;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::call::CallToMake;
use super::line::Out;
use super::repair::{both, repair, with_bill};
use crate::ask::{Answer, AskError, Bill, Code, Question};
use crate::chat::Piece;
use crate::chunk::{Measure, Need};
use crate::profile::WhenFull;
use crate::tries::Next;

/// The tries of one call.
pub(super) struct TriesOf<'c, 'd> {
    pub(super) call: &'c CallToMake<'d>,
    pub(super) pieces: Option<&'c mpsc::Sender<Piece>>,
    /// What the question may take, answer included.
    pub(super) tokens: u64,
    /// What the first try took.
    pub(super) needs: Arc<[Need]>,
    /// The first question is as good as out: it may be sent.
    pub(super) out: Option<Out<'c>>,
    pub(super) attempts: u32,
    /// Some of the answer was handed on: it cannot be asked anew.
    pub(super) begun: bool,
}

impl TriesOf<'_, '_> {
    /// Asks, and once more if the answer is not of the form that was wanted.
    pub(super) async fn run(&mut self, question: &Question) -> Result<Answer, AskError> {
        let answer = self.patiently(question).await?;
        if self.begun {
            return Ok(answer);
        }
        let Some(again) = repair(question, &answer) else { return Ok(answer) };
        // In a box, as all that is seldom: every question carries the room for what is not.
        Ok(Box::pin(self.mended(answer, again)).await)
    }

    /// An answer, after one more try to have it in the form that was wanted.
    async fn mended(&mut self, answer: Answer, again: Question) -> Answer {
        match self.patiently(&again).await {
            Ok(better) => both(&answer, better),
            // It was paid for: whoever reads it says what is wrong with it.
            Err(error) => with_bill(answer, &again, error.bill),
        }
    }

    /// Asks again for as long as that may help.
    async fn patiently(&mut self, question: &Question) -> Result<Answer, AskError> {
        let (desk, line) = (self.call.desk, &self.call.entry.line);
        let (mut attempt, mut before) = (0, None);
        loop {
            // Why it was not answered says more than why it cannot be sent again.
            let out = match self.out.take() {
                Some(out) => Ok(out),
                None => line.send(self.tokens, question.until).await,
            };
            let out = out.map_err(|error| before.take().unwrap_or(error))?;
            attempt += 1;
            self.attempts += 1;
            let result = self.once(question).await;
            out.heard(&result);
            let error = match result {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let (now, jitter) = (Instant::now(), jitter(&question.request_id, attempt));
            match desk.tries.next(attempt, &error, now, question.until, jitter) {
                Next::Again { after } if !self.begun => self.rest(after).await,
                _ => return Err(error),
            }
            let taken = desk.limiter.take(self.again(), question.until, WhenFull::Wait).await;
            match taken {
                // A request is a request, whatever comes of it.
                Ok(taken) => drop(taken),
                Err(_) => return Err(error),
            }
            before = Some(error);
        }
    }

    /// Waits until it may be sent again. It keeps its slot, for it is in the books; but its worker
    /// knows that it only waits.
    async fn rest(&self, after: Duration) {
        let _waiting = self.call.errand.run.as_ref().map(Context::waits);
        tokio::time::sleep(after).await;
    }

    /// What every further try takes: it is a request like the first.
    fn again(&self) -> Arc<[Need]> {
        self.needs.iter().filter(|need| need.measure == Measure::Requests).cloned().collect()
    }

    async fn once(&mut self, question: &Question) -> Result<Answer, AskError> {
        match self.pieces {
            None => self.call.entry.provider.ask(question).await,
            Some(out) => Box::pin(self.in_pieces(question, out)).await,
        }
    }

    /// Asks, and hands on what comes.
    async fn in_pieces(
        &mut self,
        question: &Question,
        out: &mpsc::Sender<Piece>,
    ) -> Result<Answer, AskError> {
        let provider = &self.call.entry.provider;
        // An answer of which nothing was handed on may be asked for anew.
        let (sender, mut pieces) = mpsc::channel(1);
        let asking = provider.stream(question, &sender);
        tokio::pin!(asking);
        loop {
            tokio::select! {
                biased;
                Some(piece) = pieces.recv() => {
                    if !self.hand_on(question, piece, out).await {
                        // The provider hears of it with its next piece, and says what came till then.
                        drop(pieces);
                        return unheard(asking.await);
                    }
                }
                answer = &mut asking => {
                    while let Ok(piece) = pieces.try_recv() {
                        self.hand_on(question, piece, out).await;
                    }
                    return answer;
                }
            }
        }
    }

    /// Hands a piece on, the first one with whose it is; whether anybody listens.
    async fn hand_on(
        &mut self,
        question: &Question,
        piece: Piece,
        out: &mpsc::Sender<Piece>,
    ) -> bool {
        if !std::mem::replace(&mut self.begun, true) {
            let model = self.call.entry.profile.asked_model(question.model.as_deref());
            let _ = out.send(Piece::Begun { model: model.to_owned() }).await;
        }
        out.send(piece).await.is_ok()
    }
}

/// What is known of an answer that nobody listened to: some of it came.
fn unheard(answer: Result<Answer, AskError>) -> Result<Answer, AskError> {
    let answer = answer?;
    let bill = Bill::Came(Box::new(answer));
    Err(AskError { bill, ..AskError::new(Code::Internal, "nobody listens any more") })
}

/// A number from 0 to 1 that is the same for the same question and try.
fn jitter(request_id: &str, attempt: u32) -> f64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (request_id, attempt).hash(&mut hasher);
    hasher.finish() as f64 / u64::MAX as f64
}
