//! Who waits for which buckets, and what is to be done about it.
//!
//! Pure but for the channels on which waiters are told. Served in the order of arrival: nobody takes from
//! a bucket that an earlier one waits for. Who waits for one bucket does not keep others from the other
//! buckets that it will need: a tenant that has used up its share does not stop those that it shares a
//! profile with.

use std::sync::Arc;
use std::time::Duration;

use foldhash::{HashMap, HashSet};
use longshore::ledger::{Draw, Drawn};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Full;
use crate::chunk::{Chunk, Lot, Need};
use crate::profile::WhenFull;

/// What settlements wait for each other before they are sent.
const GATHER: Duration = Duration::from_millis(100);

/// The longest until a store is asked again that had nothing: somebody may have given something back.
const LOOK: Duration = Duration::from_secs(1);

/// The pause after a store could not be asked.
const PAUSE: Duration = Duration::from_millis(100);

/// What a waiter is told.
pub(super) type Told = Result<Held, Full>;

/// What was taken, bucket by bucket.
pub(super) type Held = Vec<(Arc<str>, Vec<Lot>)>;

#[derive(Debug, Default)]
pub(super) struct Queue {
    buckets: HashMap<Arc<str>, Bucket>,
    waiters: Vec<Waiter>,
    /// Buckets that somebody waits for.
    wanted: HashSet<Arc<str>>,
    next: u64,
    /// The store could not be asked; not before this time.
    away_until: Option<Instant>,
    /// Somebody carries out what is planned.
    pub(super) pumping: bool,
}

#[derive(Debug, Default)]
struct Bucket {
    chunk: Chunk,
    /// The store had nothing; asked again at this time.
    again_at: Option<Instant>,
    /// When it said that there would be enough.
    full_until: Option<Instant>,
    refill: Refill,
    /// What is to be given back (or taken, below zero), by which limits, and when.
    credit: f64,
    settle: Option<(Need, Instant)>,
}

/// Whether something is fetched that nobody waits for yet.
#[derive(Debug, Default)]
enum Refill {
    #[default]
    No,
    /// To be asked for.
    Wanted(Need),
    /// Asked for.
    Asked,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    needs: Arc<[Need]>,
    until: Instant,
    when_full: WhenFull,
    tell: oneshot::Sender<Told>,
}

/// A place in the queue.
pub(super) struct Joined {
    pub(super) id: u64,
    pub(super) told: oneshot::Receiver<Told>,
    pub(super) news: bool,
}

/// What is to be done next.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Nothing, until somebody comes.
    Rest,
    /// Nothing before this time, unless somebody comes.
    Wait(Instant),
    /// Accounts are to be settled.
    Settle(Vec<(Need, f64)>),
    /// Something is to be drawn.
    Draw(Vec<Draw>),
}

impl Queue {
    /// Takes all that is needed at once, if nobody is before and there is enough; or nothing. Says also
    /// whether there is something to be done, for those who come next.
    pub(super) fn take_now(&mut self, needs: &[Need], now: Instant) -> Option<bool> {
        let free = |need: &Need| !self.wanted.contains(&need.bucket) && self.has(need, now);
        if !needs.iter().all(free) {
            return None;
        }
        let mut news = false;
        for need in needs {
            if let Some(bucket) = self.buckets.get_mut(&need.bucket) {
                bucket.chunk.use_up(need.amount, now);
                news |= bucket.runs_low(need, now);
            }
        }
        Some(news)
    }

    /// Somebody comes, and is served at once if nobody is before them and there is enough. Says also
    /// whether there is something to be done for them: not if others wait for the same already.
    pub(super) fn join(
        &mut self,
        needs: Arc<[Need]>,
        until: Instant,
        when_full: WhenFull,
        now: Instant,
    ) -> Joined {
        let (tell, told) = oneshot::channel();
        self.next += 1;
        let waiter = Waiter { id: self.next, needs, until, when_full, tell };
        let mut wanted = std::mem::take(&mut self.wanted);
        let known = wanted.len();
        if let Some(waiter) = self.serve_one(waiter, &mut wanted, now) {
            self.waiters.push(waiter);
        }
        let news = wanted.len() > known;
        self.wanted = wanted;
        Joined { id: self.next, told, news }
    }

    /// Somebody leaves without having been told. Says whether those behind need less, so that there is
    /// something to be done for them sooner.
    pub(super) fn leave(&mut self, id: u64) -> bool {
        let Some(place) = self.waiters.iter().position(|waiter| waiter.id == id) else {
            return false;
        };
        let mut less = false;
        for need in self.waiters.remove(place).needs.iter() {
            let mut others = self.waiters.iter().flat_map(|waiter| waiter.needs.iter());
            let next = others.find(|other| other.bucket == need.bucket);
            if next.is_none() {
                self.wanted.remove(&need.bucket);
            }
            if next.is_none_or(|next| next.amount < need.amount) {
                let bucket = self.bucket(&need.bucket);
                (bucket.again_at, bucket.full_until, less) = (None, None, true);
            }
        }
        less
    }

    /// Somebody was told and did not hear it: what was taken for them is there for others.
    pub(super) fn put_back(&mut self, held: Held, now: Instant) {
        for (bucket, lots) in held {
            self.bucket(&bucket).chunk.put_back(lots);
        }
        self.serve(now);
    }

    /// Gives back so much of what was taken, or takes more after the fact. Says whether that is the first
    /// that gathers: whoever settles has to hear of it only then.
    pub(super) fn credit(&mut self, need: &Need, credit: f64, now: Instant) -> bool {
        let bucket = self.bucket(&need.bucket);
        bucket.credit += credit;
        match &mut bucket.settle {
            Some((newest, _)) => {
                newest.clone_from(need);
                false
            }
            none => {
                *none = Some((need.clone(), now + GATHER));
                true
            }
        }
    }

    /// Serves all who can be served, in order.
    fn serve(&mut self, now: Instant) {
        let mut wanted = HashSet::default();
        for waiter in std::mem::take(&mut self.waiters) {
            if let Some(waiter) = self.serve_one(waiter, &mut wanted, now) {
                self.waiters.push(waiter);
            }
        }
        self.wanted = wanted;
    }

    /// Serves or refuses one, or says that it waits on.
    fn serve_one(
        &mut self,
        waiter: Waiter,
        wanted: &mut HashSet<Arc<str>>,
        now: Instant,
    ) -> Option<Waiter> {
        if waiter.tell.is_closed() {
            return None;
        }
        let short: Vec<&Need> = waiter
            .needs
            .iter()
            .filter(|need| wanted.contains(&need.bucket) || !self.has(need, now))
            .collect();
        if short.is_empty() {
            self.grant(waiter, now);
            return None;
        }
        let full = short.iter().filter_map(|need| Some((self.full_until(need, now)?, need)));
        match full.max_by_key(|(until, _)| *until) {
            Some((at, need)) if waiter.when_full == WhenFull::Refuse || at >= waiter.until => {
                let full = Full::Limit { bucket: need.bucket.to_string(), wait: at - now };
                let _ = waiter.tell.send(Err(full));
                None
            }
            _ => {
                for need in short {
                    if !wanted.contains(&need.bucket) {
                        wanted.insert(Arc::clone(&need.bucket));
                    }
                }
                Some(waiter)
            }
        }
    }

    fn has(&self, need: &Need, now: Instant) -> bool {
        self.buckets.get(&need.bucket).is_some_and(|bucket| bucket.chunk.has(need.amount, now))
    }

    fn full_until(&self, need: &Need, now: Instant) -> Option<Instant> {
        self.buckets.get(&need.bucket)?.full_until.filter(|until| now < *until)
    }

    fn grant(&mut self, waiter: Waiter, now: Instant) {
        let mut held = Held::new();
        for need in waiter.needs.iter() {
            let lots = self.bucket(&need.bucket).chunk.take(need.amount, now);
            held.push((Arc::clone(&need.bucket), lots));
        }
        if let Err(Ok(held)) = waiter.tell.send(Ok(held)) {
            for (bucket, lots) in held {
                self.bucket(&bucket).chunk.put_back(lots);
            }
        }
    }

    fn bucket(&mut self, name: &Arc<str>) -> &mut Bucket {
        self.buckets.entry(Arc::clone(name)).or_default()
    }

    /// What is to be done now.
    pub(super) fn plan(&mut self, now: Instant) -> Step {
        self.serve(now);
        if let Some(until) = self.away_until.filter(|until| now < *until) {
            return if self.is_idle() { self.rest(now) } else { Step::Wait(until) };
        }
        let settled = self.settlements(now);
        if !settled.is_empty() {
            return Step::Settle(settled);
        }
        let mut draws = self.draws(now);
        self.refill(&mut draws, now);
        if !draws.is_empty() {
            return Step::Draw(draws);
        }
        if self.is_idle() { self.rest(now) } else { Step::Wait(self.next_look(now)) }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiters.is_empty() && self.buckets.values().all(Bucket::is_settled)
    }

    fn rest(&mut self, now: Instant) -> Step {
        self.pumping = false;
        self.buckets.retain(|_, bucket| {
            !bucket.chunk.is_idle(now) || bucket.full_until.is_some_and(|until| now < until)
        });
        Step::Rest
    }

    fn settlements(&mut self, now: Instant) -> Vec<(Need, f64)> {
        let due = |bucket: &Bucket| bucket.settle.as_ref().is_some_and(|(_, at)| *at <= now);
        let due = self.buckets.values_mut().filter(|bucket| due(bucket));
        due.filter_map(|bucket| {
            let (need, _) = bucket.settle.take()?;
            let credit = std::mem::take(&mut bucket.credit);
            (credit != 0.0).then_some((need, credit))
        })
        .collect()
    }

    /// What is missing, for those who wait for nothing else. Where a bucket had nothing lately, it is
    /// asked alone: what the others gave would grow old meanwhile.
    fn draws(&self, now: Instant) -> Vec<Draw> {
        let mut wants: Vec<(&Need, f64)> = Vec::new();
        for waiter in &self.waiters {
            let too_early = |need: &Need| self.again_at(need).is_some_and(|at| now < at);
            if waiter.needs.iter().any(too_early) {
                continue;
            }
            for need in self.missing(waiter, now) {
                match wants.iter_mut().find(|(first, _)| first.bucket == need.bucket) {
                    Some((_, queued)) => *queued += need.amount,
                    None => wants.push((need, need.amount)),
                }
            }
        }
        let fresh = Chunk::default();
        let draw = |(need, queued): (&Need, f64)| {
            let chunk = self.buckets.get(&need.bucket).map_or(&fresh, |bucket| &bucket.chunk);
            need.draw(chunk, queued, now)
        };
        wants.into_iter().map(draw).collect()
    }

    /// What is to be fetched ahead, beside what is drawn anyway.
    fn refill(&mut self, draws: &mut Vec<Draw>, now: Instant) {
        for bucket in self.buckets.values_mut() {
            let Refill::Wanted(need) = std::mem::take(&mut bucket.refill) else { continue };
            let drawn = draws.iter().any(|draw| *draw.bucket == *need.bucket);
            if let Some(draw) = need.refill(&bucket.chunk, now).filter(|_| !drawn) {
                bucket.refill = Refill::Asked;
                draws.push(draw);
            }
        }
    }

    fn missing<'a>(&self, waiter: &'a Waiter, now: Instant) -> Vec<&'a Need> {
        let missing: Vec<&Need> = waiter.needs.iter().filter(|n| !self.has(n, now)).collect();
        let scarce = |need: &&Need| self.again_at(need).is_some();
        let scarce: Vec<&Need> = missing.iter().copied().filter(scarce).collect();
        if scarce.is_empty() { missing } else { scarce }
    }

    fn again_at(&self, need: &Need) -> Option<Instant> {
        self.buckets.get(&need.bucket)?.again_at
    }

    fn next_look(&self, now: Instant) -> Instant {
        let looks = self.buckets.values().filter_map(|bucket| bucket.again_at);
        let settles = self.buckets.values().filter_map(|b| b.settle.as_ref().map(|(_, at)| *at));
        looks.chain(settles).filter(|at| now < *at).min().unwrap_or(now + LOOK)
    }

    /// What a draw brought that was begun at `begun`.
    pub(super) fn drew(&mut self, draws: &[Draw], drawn: &[Drawn], begun: Instant, now: Instant) {
        self.away_until = None;
        for (draw, drawn) in draws.iter().zip(drawn) {
            let bucket = self.bucket(&Arc::from(draw.bucket.as_str()));
            bucket.refill = Refill::No;
            if drawn.got > 0.0 {
                bucket.chunk.drew(drawn.got, begun, now);
                (bucket.again_at, bucket.full_until) = (None, None);
            } else {
                // At once would be for ever.
                let wait = drawn.wait.max(Duration::from_millis(1));
                bucket.again_at = Some(now + wait.min(LOOK));
                bucket.full_until = Some(now + wait);
            }
        }
        self.serve(now);
    }

    /// The store could not be asked, and may be later.
    pub(super) fn away(&mut self, now: Instant) {
        self.away_until = Some(now + PAUSE);
        self.buckets.values_mut().for_each(|bucket| bucket.refill = Refill::No);
    }

    /// The store does not work: nobody can be served.
    pub(super) fn broken(&mut self, why: &str) {
        for waiter in std::mem::take(&mut self.waiters) {
            let _ = waiter.tell.send(Err(Full::Store(why.to_owned())));
        }
        self.wanted.clear();
        self.buckets.values_mut().for_each(|bucket| bucket.refill = Refill::No);
    }
}

impl Bucket {
    /// Sees to it that more is fetched before it is needed; whether that is to be done now.
    fn runs_low(&mut self, need: &Need, now: Instant) -> bool {
        // What had nothing lately is left to those who wait.
        let asked = !matches!(self.refill, Refill::No) || self.again_at.is_some();
        if asked || need.refill(&self.chunk, now).is_none() {
            return false;
        }
        self.refill = Refill::Wanted(need.clone());
        true
    }

    /// There is nothing to be done for it.
    fn is_settled(&self) -> bool {
        self.settle.is_none() && !matches!(self.refill, Refill::Wanted(_))
    }
}
