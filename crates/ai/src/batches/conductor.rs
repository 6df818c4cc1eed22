//! Takes a batch's parked questions to a provider and brings the answers back: seals, submits, looks,
//! fetches, delivers.
//!
//! May be killed between any two effects, and run again by anybody: each effect can be repeated, and what
//! cannot (a submission) is preceded by a look for it. One conductor works on a batch at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore::ledger::{Delivery, Parked, Parking, Return, Shipment};
use longshore::{BatchId, CallId, Clock, Payload, Timestamp, UnitId};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::step::{After, Note, Pace, Step};
use super::{BatchItem, BatchMark, BatchProvider, BatchResult, BatchTicket, split};
use crate::ask::{Again, Answer, AskError, Code, Question};
use crate::cost::Cost;
use crate::prices::Prices;
use crate::rate::Mode;

/// How many answers are delivered at once.
const PAGE: usize = 200;

/// What a parked question came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchReply {
    /// An answer.
    Answer {
        /// The answer.
        answer: Box<Answer>,
        /// What it cost when it came, at the price of batches: [`Mode::Batch`].
        cost: Cost,
    },
    /// There will be none.
    Error {
        /// What the caller can do.
        code: Code,
        /// What happened.
        message: String,
        /// Whether it was answered, and so billed, nobody knows.
        maybe_billed: bool,
    },
}

/// Whether more questions are on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gathering {
    /// Perhaps: a shipment waits a while until it is full.
    More,
    /// No: what waits is sent.
    Complete,
    /// Nobody knows: it was put on hold. Nothing more is sent; what is out is looked at as always.
    Held,
    /// No, and nobody wants answers any more: nothing is sent, and what is out is cancelled. What was
    /// answered all the same is delivered; the rest waits.
    Over,
}

/// What a turn came to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Turn {
    /// When there is something to do again; nothing if no question waits or is out.
    pub rest: Option<Timestamp>,
    /// Units whose answers have come.
    pub wake: Vec<UnitId>,
}

/// Makes the question of a parked prompt.
pub type Ask = Arc<dyn Fn(&Parked) -> Question + Send + Sync>;

/// Takes a batch's questions to a provider.
pub struct Conductor {
    batch: BatchId,
    parking: Arc<dyn Parking>,
    provider: Arc<dyn BatchProvider>,
    ask: Ask,
    clock: Arc<dyn Clock>,
    pace: Pace,
    prices: Prices,
    memory: Memory,
}

/// What a conductor knows beside what is in the store. Of use to the next one, however long ago this one
/// went: what could make it send something twice is not in it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    notes: BTreeMap<String, Note>,
    /// Nothing is sealed before this: the provider was full.
    no_seal_before: Timestamp,
}

impl Conductor {
    /// A conductor that knows nothing yet.
    pub fn new(
        batch: BatchId,
        parking: Arc<dyn Parking>,
        provider: Arc<dyn BatchProvider>,
        ask: Ask,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (pace, prices, memory) = (Pace::default(), Prices::default(), Memory::default());
        Self { batch, parking, provider, ask, clock, pace, prices, memory }
    }

    /// The same, with this patience.
    #[must_use]
    pub fn pace(self, pace: Pace) -> Self {
        Self { pace, ..self }
    }

    /// The same, for answers at these prices.
    #[must_use]
    pub fn prices(self, prices: Prices) -> Self {
        Self { prices, ..self }
    }

    /// The same, with what another left behind.
    #[must_use]
    pub fn remembering(self, memory: Memory) -> Self {
        Self { memory, ..self }
    }

    /// What it leaves behind.
    pub fn memory(&self) -> Memory {
        let mut memory = self.memory.clone();
        memory.notes.retain(|_, note| note.may_be_kept());
        memory
    }

    /// Does everything that can be done now. An error is the store's.
    pub async fn turn(&mut self, gathering: Gathering) -> longshore::Result<Turn> {
        let mut turn = Turn::default();
        let sealing = self.seal(gathering).await?;
        let shipments = self.parking.shipments(&self.batch).await?;
        let known = |mark: &String| shipments.iter().any(|shipment| shipment.mark == *mark);
        self.memory.notes.retain(|mark, _| known(mark));
        let mut rests = Vec::new();
        for shipment in shipments {
            rests.push(self.advance(shipment, gathering, &mut turn.wake).await?);
        }
        turn.rest = rests.into_iter().flatten().chain(sealing).min();
        Ok(turn)
    }

    /// Seals what waits, if it has waited long enough or fills a shipment. Answers when to look again.
    async fn seal(&mut self, gathering: Gathering) -> longshore::Result<Option<Timestamp>> {
        if matches!(gathering, Gathering::Over | Gathering::Held) {
            return Ok(None);
        }
        let limits = self.provider.limits().bounded();
        let most = u32::try_from(limits.items).unwrap_or(u32::MAX);
        loop {
            let waiting = self.parking.waiting(&self.batch, most).await?;
            let Some(first) = waiting.first() else { return Ok(None) };
            let (now, due) = (self.clock.now(), first.parked_at + self.pace.gather);
            if now < self.memory.no_seal_before {
                return Ok(Some(self.memory.no_seal_before));
            }
            let items: Vec<BatchItem> = waiting.iter().map(|parked| self.item(parked)).collect();
            let sizes: Vec<_> = items.iter().map(|item| self.provider.size(item)).collect();
            let Some(chunk) = split(&sizes, limits).into_iter().next() else { return Ok(None) };
            let full = chunk.len() < items.len() || items.len() >= limits.items;
            if gathering == Gathering::More && !full && now < due {
                return Ok(Some(due));
            }
            let ids = items[chunk].iter().map(|item| item.custom_id.clone()).collect();
            let mark = CallId::new().to_string();
            // Before it is in the store, so that a shipment with a note was surely sealed by this run.
            self.memory.notes.insert(mark.clone(), Note::of_a_new_one());
            self.parking.seal(&self.batch, &mark, ids).await?;
        }
    }

    /// Takes a shipment as far as it goes now; answers when to look again.
    async fn advance(
        &mut self,
        mut shipment: Shipment,
        gathering: Gathering,
        wake: &mut Vec<UnitId>,
    ) -> longshore::Result<Option<Timestamp>> {
        loop {
            let (now, pace) = (self.clock.now(), self.pace);
            let found = || Note::of_a_found_one(&shipment, now, &pace);
            let mut note = self.memory.notes.get(&shipment.mark).cloned().unwrap_or_else(found);
            let after = match note.next(&shipment, now) {
                Step::Rest(until) => {
                    self.memory.notes.insert(shipment.mark, note);
                    return Ok(Some(until));
                }
                Step::Close => After::Release(Return::Tried),
                Step::Submit if gathering == Gathering::Over => After::Release(Return::Untried),
                Step::Submit if gathering == Gathering::Held => {
                    self.memory.notes.insert(shipment.mark, note);
                    return Ok(Some(now + pace.look));
                }
                Step::Find => match self.mark(&shipment).await? {
                    None => After::Release(Return::Untried),
                    Some(mark) => {
                        let said = self.provider.find(&mark).await;
                        self.heard("looked for", &shipment, &said);
                        note.looked_for(said, self.clock.now(), &pace)
                    }
                },
                Step::Submit => match self.items(&shipment).await? {
                    items if items.is_empty() => After::Release(Return::Untried),
                    items => {
                        let said = self.provider.submit(&items, &shipment.mark).await;
                        self.heard("submitted", &shipment, &said);
                        note.submitted(said, self.clock.now(), &pace)
                    }
                },
                Step::Poll(ticket) => {
                    if gathering == Gathering::Over && !note.was_cancelled() {
                        note.cancelled(&self.provider.cancel(&ticket).await);
                    }
                    let said = self.provider.poll(&ticket).await;
                    self.heard("looked at", &shipment, &said);
                    note.polled(said, self.clock.now(), &pace)
                }
                Step::Fetch(ticket) => {
                    let said = self.fetch(&ticket, wake).await?;
                    self.heard("fetched", &shipment, &said);
                    note.fetched(said, self.clock.now(), &pace)
                }
            };
            self.memory.notes.insert(shipment.mark.clone(), note);
            if self.write(&mut shipment, after, wake).await? == Open::No {
                return Ok(Some(self.clock.now()));
            }
        }
    }

    /// Says what goes wrong: it is tried again, and nobody else would hear of it for a day.
    fn heard<T>(&self, what: &str, shipment: &Shipment, said: &Result<T, AskError>) {
        let (batch, mark) = (&self.batch, &shipment.mark);
        match said {
            Ok(_) => tracing::debug!(%batch, mark, "the provider's batch was {what}"),
            Err(error) => {
                tracing::warn!(%batch, mark, %error, "the provider's batch cannot be {what}");
            }
        }
    }

    async fn write(
        &mut self,
        shipment: &mut Shipment,
        after: After,
        wake: &mut Vec<UnitId>,
    ) -> longshore::Result<Open> {
        let how = match after {
            After::Nothing => return Ok(Open::Yes),
            After::Ship(ticket) => {
                self.parking.ship(&self.batch, &shipment.mark, &ticket.0).await?;
                shipment.ticket = Some(ticket.0);
                return Ok(Open::Yes);
            }
            After::GiveUp(error) => {
                self.give_up(&shipment.mark, &refusal(&error), |_| true, wake).await?;
                Return::Untried
            }
            After::Lost(error) => {
                let told = BatchReply::Error {
                    code: error.code,
                    message: format!("the provider's batch is gone: {}", error.message),
                    maybe_billed: true,
                };
                self.give_up(&shipment.mark, &told, |_| true, wake).await?;
                Return::Untried
            }
            After::Release(Return::Tried) => {
                let last = self.pace.tries.saturating_sub(1);
                let words = format!("no answer from {} batches of the provider", self.pace.tries);
                let error = AskError::new(Code::ProviderError, words);
                let told = refusal(&error);
                self.give_up(&shipment.mark, &told, |parked| parked.tries >= last, wake).await?;
                Return::Tried
            }
            After::Release(Return::Untried) => {
                self.memory.no_seal_before = self.clock.now() + self.pace.lag;
                Return::Untried
            }
        };
        self.parking.close_shipment(&self.batch, &shipment.mark, how).await?;
        Ok(Open::No)
    }

    /// Tells some of those in a shipment that there will be no answer.
    async fn give_up(
        &self,
        mark: &str,
        reply: &BatchReply,
        which: impl Fn(&Parked) -> bool,
        wake: &mut Vec<UnitId>,
    ) -> longshore::Result<()> {
        let left = self.parking.contents(&self.batch, mark).await?;
        let left = left.into_iter().filter(|parked| which(parked));
        let told = left.filter_map(|parked| told(parked.new.custom_id, reply)).collect();
        wake.extend(self.parking.deliver(&self.batch, told).await?);
        Ok(())
    }

    /// Delivers results as they come: the inner error is the provider's.
    async fn fetch(
        &self,
        ticket: &BatchTicket,
        wake: &mut Vec<UnitId>,
    ) -> longshore::Result<Result<(), AskError>> {
        let (send, mut came) = mpsc::channel(PAGE);
        let bring = async {
            let said = self.provider.results(ticket, &send).await;
            drop(send);
            said
        };
        let deliver = async {
            let mut page = Vec::new();
            while came.recv_many(&mut page, PAGE).await > 0 {
                let told = page.drain(..).filter_map(|one| self.delivery(one)).collect();
                wake.extend(self.parking.deliver(&self.batch, told).await?);
            }
            // Whoever still sends hears that nobody listens.
            drop(came);
            Ok(())
        };
        let (said, delivered) = tokio::join!(bring, deliver);
        delivered.map(|()| said)
    }

    /// A result as whoever asked is to be told of it. One that may come to something another time is not
    /// told: its question stays in the shipment, and goes with another once this one is closed.
    fn delivery(&self, result: BatchResult) -> Option<Delivery> {
        let reply = match result.result {
            Ok(answer) => {
                let cost = self.prices.cost(&answer, self.clock.now(), Mode::Batch);
                BatchReply::Answer { answer: Box::new(answer), cost }
            }
            Err(error) if error.again == Again::Never => refusal(&error),
            Err(_) => return None,
        };
        told(result.custom_id, &reply)
    }

    async fn items(&self, shipment: &Shipment) -> longshore::Result<Vec<BatchItem>> {
        let inside = self.parking.contents(&self.batch, &shipment.mark).await?;
        Ok(inside.iter().map(|parked| self.item(parked)).collect())
    }

    async fn mark(&self, shipment: &Shipment) -> longshore::Result<Option<BatchMark>> {
        let inside = self.parking.contents(&self.batch, &shipment.mark).await?;
        let ids: Vec<String> = inside.into_iter().map(|parked| parked.new.custom_id).collect();
        let mark = BatchMark { name: shipment.mark.clone(), since: shipment.sealed_at, ids };
        Ok((!mark.ids.is_empty()).then_some(mark))
    }

    fn item(&self, parked: &Parked) -> BatchItem {
        BatchItem { custom_id: parked.new.custom_id.clone(), question: (self.ask)(parked) }
    }
}

/// Whether a shipment is still of interest.
#[derive(PartialEq, Eq)]
enum Open {
    Yes,
    No,
}

fn refusal(error: &AskError) -> BatchReply {
    BatchReply::Error { code: error.code, message: error.message.clone(), maybe_billed: false }
}

/// Always there: nothing in a reply is something that JSON does not have.
fn told(custom_id: String, reply: &BatchReply) -> Option<Delivery> {
    Some(Delivery { custom_id, reply: Payload::json(reply).ok()? })
}
