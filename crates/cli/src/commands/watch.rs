//! `batch watch`: follows a batch with a progress bar, lines for a log, or JSON.

use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar};
use longshore::{Batch, BatchId, Client, WaitError, duration};
use longshore_batch::definition::Definition;
use tokio::sync::Notify;

use super::batch::{BatchSummary, summary::format_cost};
#[cfg(feature = "standard")]
use super::dispatch::arrays::ArrayClient;
use super::wait;
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::output::Output;
use crate::settings::Settings;

/// Interval between two lines in a log.
const LOG_INTERVAL: Duration = Duration::from_secs(5);
/// Time constant of the shown rate's moving average.
const RATE_TIME_CONSTANT: Duration = Duration::from_secs(5);

/// Runs the command.
pub async fn run(
    client: &Client,
    name: &BatchId,
    limit: Option<Duration>,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let output = settings.output;
    let bar = WatchedBatch::bar(output, &output.bars(), name);
    let view = WatchedBatch::new(output, bar, None).model_access(ModelAccess::of(client, name).await);
    let (mut view, gone) = (view, Notify::new());
    let mut broken = None;
    let on_change = |batch: &Batch| {
        if let Err(error) = view.show(batch, Instant::now()) {
            broken = Some(error);
            gone.notify_one();
        }
    };
    let ended = tokio::select! {
        ended = client.wait_batch(name, limit, on_change) => Some(ended),
        () = gone.notified() => None,
    };
    if let Some(error) = broken {
        return Err(error);
    }
    let Some(ended) = ended else {
        return Ok(ExitCode::Good);
    };
    let batch = ended.hint(format!("it continues; `longshore batch status {name}` shows it"))?;
    view.finish(&batch)?;
    Ok(wait::batch_code(&batch))
}

/// Follows an array of a pool.
#[cfg(feature = "standard")]
pub async fn run_in_pool(
    folder: &Path,
    name: &BatchId,
    limit: Option<Duration>,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let output = settings.output;
    let mut view = WatchedBatch::new(output, WatchedBatch::bar(output, &output.bars(), name), None);
    let mut array_client = ArrayClient::of(folder, name, settings).await?;
    let is_over = |array: &Batch| Ok(!array.status.is_open());
    let waiting = array_client.wait_until(is_over, |array| view.show(array, Instant::now()));
    let array = match limit {
        None => waiting.await?,
        Some(limit) => {
            let waited = tokio::time::timeout(limit, waiting).await;
            let late = waited.map_err(|_| WaitError::TimedOut(limit));
            late.hint(format!("it continues; `longshore batch status {name}` shows it"))??
        }
    };
    view.finish(&array)?;
    Ok(wait::batch_code(&array))
}

/// How a batch's rows call models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelAccess {
    /// Each row by itself, or unknown.
    Direct,
    /// Through a provider's batches: scheduled rows have their request there.
    Batched,
}

impl ModelAccess {
    /// From the batch's definition, if it has a readable one.
    async fn of(client: &Client, name: &BatchId) -> Self {
        let found = client.store().definition(client.scope(), name).await.ok().flatten();
        match found.and_then(|payload| payload.parse::<Definition>().ok()) {
            Some(definition) => Self::by(&definition),
            None => Self::Direct,
        }
    }

    /// From a definition.
    pub fn by(definition: &Definition) -> Self {
        definition.provider_batch().map_or(Self::Direct, |_| Self::Batched)
    }
}

/// The display of a running batch.
pub struct WatchedBatch {
    output: Output,
    bar: ProgressBar,
    /// The number of units to come, if it was counted.
    expected: Option<u64>,
    rate: FinishRate,
    last_line: Option<Instant>,
    model_access: ModelAccess,
}

impl WatchedBatch {
    /// A view with this bar.
    pub fn new(output: Output, bar: ProgressBar, expected: Option<u64>) -> Self {
        let (rate, last_line, model_access) = (FinishRate::default(), None, ModelAccess::Direct);
        Self { output, bar, expected, rate, last_line, model_access }
    }

    /// Sets how the rows call models.
    #[must_use]
    pub fn model_access(self, model_access: ModelAccess) -> Self {
        Self { model_access, ..self }
    }

    /// A bar for a batch, among others.
    pub fn bar(output: Output, bars: &MultiProgress, name: &BatchId) -> ProgressBar {
        let bar = output.bar_in(bars, "{prefix}  {bar:24.green/dim} {percent:>3} %  {msg}");
        bar.set_prefix(name.to_string());
        bar
    }

    /// Removes the bar.
    pub fn close(&self) {
        self.bar.finish_and_clear();
    }

    /// The number of units so far, or expected.
    fn total(&self, batch: &Batch) -> u64 {
        let expected = self.expected.filter(|_| !batch.sealed).unwrap_or_default();
        batch.counts.total().max(expected)
    }

    /// Shows the batch's current state.
    pub fn show(&mut self, batch: &Batch, at: Instant) -> anyhow::Result<()> {
        self.rate.note(batch.counts.finished(), at);
        if self.output.is_json() {
            return self.output.json(&BatchSummary::of(batch));
        }
        let words = self.words(batch);
        if self.output.is_watched() {
            self.bar.set_length(self.total(batch));
            self.bar.set_position(batch.counts.finished());
            self.bar.set_message(words);
            return Ok(());
        }
        let due = self.last_line.is_none_or(|last_line| at.duration_since(last_line) >= LOG_INTERVAL);
        if due && batch.status.is_open() {
            self.last_line = Some(at);
            self.output.answer(&(), || format!("{}: {words}", batch.id))?;
        }
        Ok(())
    }

    fn words(&self, batch: &Batch) -> String {
        let counts = &batch.counts;
        let total = self.total(batch);
        let known = batch.sealed || self.expected.is_some();
        let mut words = format!("{}/{total}{} done", counts.done, if known { "" } else { " so far" });
        for (count, what) in [(counts.failed, "failed"), (counts.cancelled, "cancelled")] {
            if count > 0 {
                words.push_str(&format!(", {}", self.output.paint(what, &format!("{count} {what}"))));
            }
        }
        if self.model_access == ModelAccess::Batched && counts.scheduled > 0 {
            words.push_str(&format!(", {} parked with the provider", counts.scheduled));
        }
        if let Some(per_second) = self.rate.per_second().filter(|_| batch.status.is_open()) {
            #[expect(clippy::cast_precision_loss, reason = "a rough guess for people")]
            let left = total.saturating_sub(counts.finished()) as f64 / per_second;
            let left = duration::format(Duration::from_secs_f64(left.min(1e9)));
            words.push_str(&format!(", {per_second:.0}/s, {left} left"));
        }
        let money = format_cost(batch);
        if !money.is_empty() {
            words.push_str(&format!(", {money}"));
        }
        words
    }

    fn finish(&mut self, batch: &Batch) -> anyhow::Result<()> {
        self.close();
        if self.output.is_json() {
            return Ok(());
        }
        let status = self.output.paint(batch.status.as_str(), batch.status.as_str());
        let why = batch.reason.as_ref().map_or(String::new(), |reason| format!(" ({reason})"));
        let took = match (batch.started_at, batch.completed_at) {
            (Some(start), Some(end)) => format!(", took {}", duration::format(end.since(start))),
            _ => String::new(),
        };
        let words = self.words(batch);
        self.output.answer(&(), || format!("{}: {status}{why}, {words}{took}", batch.id))
    }
}

/// Units per second, as a moving average.
#[derive(Default)]
struct FinishRate {
    /// Units that had ended at the first sample.
    start: Option<u64>,
    last: Option<(u64, Instant)>,
    /// Sum of the rates and its weight: early on the weight is small, and the few samples count in
    /// full.
    sum: f64,
    weight: f64,
}

impl FinishRate {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn note(&mut self, finished: u64, at: Instant) {
        let start = *self.start.get_or_insert(finished);
        let Some((before, then)) = self.last else {
            // The duration of the first unit says nothing about the rate of many.
            self.last = (finished > start).then_some((finished, at));
            return;
        };
        let passed = at.duration_since(then).as_secs_f64();
        // Changes come in bursts: over a shorter time a rate is meaningless.
        if passed < 0.2 {
            return;
        }
        let now = finished.saturating_sub(before) as f64 / passed;
        let keep = (-passed / RATE_TIME_CONSTANT.as_secs_f64()).exp();
        self.sum = self.sum * keep + now * (1.0 - keep);
        self.weight = self.weight * keep + (1.0 - keep);
        self.last = Some((finished, at));
    }

    fn per_second(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight).filter(|mean| *mean > 0.01)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_follows_a_change_of_pace() {
        let (mut rate, start) = (FinishRate::default(), Instant::now());
        let mut finished = 0;
        for second in 0..60 {
            finished += if second < 30 { 100 } else { 10 };
            rate.note(finished, start + Duration::from_secs(second));
        }
        let now = rate.per_second().unwrap();
        assert!((10.0..11.0).contains(&now), "{now}");
    }
    /// A worker that starts up, a first wave of slow answers, and then a steady pace.
    #[test]
    fn a_rate_begins_with_the_first_end_and_is_right_at_once() {
        let (mut rate, start) = (FinishRate::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        rate.note(7, at(0));
        rate.note(7, at(20_000));
        rate.note(27, at(20_500));
        assert!(rate.per_second().is_none(), "nothing is known yet");
        rate.note(27, at(20_750));
        rate.note(77, at(21_000));
        let now = rate.per_second().unwrap();
        assert!((95.0..105.0).contains(&now), "50 in half a second: {now}");
    }
}
