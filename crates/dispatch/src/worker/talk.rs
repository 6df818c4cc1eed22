//! A worker's conversation with its server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use longshore::UnitId;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::run::{self, Known};
use super::stop::Why;
use super::{Command, Mood, Worker};
use crate::link::Link;
use crate::script::End;
use crate::wire::frame::{put, take};
use crate::wire::{FromWorker, Load, Register, ToWorker, Word};

/// How long words gather while there is something to do: each message costs both sides something.
const GATHER: Duration = Duration::from_millis(20);

impl Worker {
    fn introduction(&self) -> Register {
        let lifetime = self.options.lifetime;
        Register {
            uid: self.uid.clone(),
            host: self.shop.host.clone(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            launch: self.options.launch,
            threads: self.options.threads,
            resources: self.options.resources.clone(),
            lifetime: lifetime.map(|whole| whole.saturating_sub(self.began.elapsed())),
            holds: self.hands.holds(),
        }
    }

    /// Talks to the server until the worker's end. An error means that the connection broke.
    pub(super) async fn converse(
        &mut self,
        mut link: Link,
        commands: &mut mpsc::Receiver<Command>,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        put(&FromWorker::Register(Box::new(self.introduction())), &mut bytes)?;
        // Until it has heard what is not ours any more, nothing is said twice.
        self.words = self.hands.again();
        let mut beat = Duration::from_secs(2);
        let mut next_beat = Instant::now();
        let mut told_of_drain = false;
        let mut gathered = None;
        loop {
            self.begin_scripts();
            if self.mood != Mood::Working && !told_of_drain {
                told_of_drain = true;
                put(&FromWorker::Draining, &mut bytes)?;
            }
            if Instant::now() >= next_beat {
                next_beat = Instant::now() + beat;
                put(&FromWorker::Beat(self.load()), &mut bytes)?;
            }
            // Whoever has scripts ahead need not hurry: the server has nothing to give it now.
            let gathering = match self.hands.has_ahead() && bytes.is_empty() {
                true if !self.words.is_empty() => {
                    Some(*gathered.get_or_insert(Instant::now() + GATHER))
                }
                _ => None,
            };
            let gathering = gathering.filter(|until| Instant::now() < *until);
            if gathering.is_none() && !self.words.is_empty() {
                gathered = None;
                put(&FromWorker::Said(std::mem::take(&mut self.words)), &mut bytes)?;
            }
            let over = self.is_over();
            if over {
                put(&FromWorker::Leaving, &mut bytes)?;
            }
            if !bytes.is_empty() {
                link.writer.write_all(&bytes).await?;
                link.writer.flush().await?;
                bytes.clear();
            }
            if over {
                let _ = link.writer.shutdown().await;
                return Ok(());
            }
            let wake = self.wake().min(next_beat).min(gathering.unwrap_or(next_beat));
            tokio::select! {
                frame = link.reader.next() => {
                    let frame = frame?.ok_or(io::ErrorKind::UnexpectedEof)?;
                    self.hear(take(&frame)?, &mut beat);
                    while let Some(frame) = link.reader.ready()? {
                        self.hear(take(&frame)?, &mut beat);
                    }
                }
                Some((lease, report)) = self.running.next() => self.on_end(lease, report),
                command = commands.recv() => self.on_told(command.unwrap_or(Command::Stop)),
                () = sleep_until(wake) => self.look_at_the_clock(),
            }
            while let Some(Some((lease, report))) = self.running.next().now_or_never() {
                self.on_end(lease, report);
            }
        }
    }

    fn hear(&mut self, word: ToWorker, beat: &mut Duration) {
        match word {
            ToWorker::Seated { beat: every, forget } => {
                *beat = every;
                let gone = self.hands.forget(&forget);
                self.words.retain(
                    |word| !matches!(word, Word::Ended(lease, _) if forget.contains(lease)),
                );
                self.stop_all(gone, Why::Cancelled);
            }
            ToWorker::Body(number, body) => {
                self.bodies.insert(number, Arc::new(Known::new(*body)));
            }
            ToWorker::Drop(number) => _ = self.bodies.remove(&number),
            ToWorker::Run(orders) => {
                for order in orders {
                    match self.mood {
                        Mood::Working => self.hands.take(Instant::now(), order),
                        _ => self.words.push(Word::Returned(order.lease)),
                    }
                }
            }
            ToWorker::Recall(leases) => self.words.extend(self.hands.give_back(Some(&leases))),
            ToWorker::Cancel(units) => self.cancel(units),
            ToWorker::Recorded(leases) => self.hands.recorded(&leases),
            ToWorker::Drain => self.heed(Command::Drain),
            ToWorker::Stop(why) => {
                self.life.why = why;
                self.heed(Command::Stop);
            }
        }
    }

    fn cancel(&mut self, units: Vec<UnitId>) {
        for unit in &units {
            if let Some(order) = self.hands.withdraw(*unit) {
                let report = run::unbegun(&self.shop, &order, End::Cancelled);
                self.words.push(self.hands.end_unbegun(order.lease, report));
            }
        }
        self.stop_all(units, Why::Cancelled);
    }

    pub(super) fn stop_all(&mut self, units: Vec<UnitId>, why: Why) {
        for unit in units {
            if let Some(stop) = self.stops.get(&unit) {
                stop.tell(why);
            }
        }
    }

    fn load(&self) -> Load {
        let first = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let average = first("/proc/loadavg");
        let average = average.split(' ').next().and_then(|text| text.parse().ok());
        let memory = first("/proc/meminfo");
        let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
        let available =
            available.and_then(|text| text.trim().split(' ').next()?.parse::<u64>().ok());
        Load {
            running: u32::try_from(self.hands.running()).unwrap_or(u32::MAX),
            average: average.unwrap_or(0.0),
            available_memory: available.unwrap_or(0) / 1024,
        }
    }
}
