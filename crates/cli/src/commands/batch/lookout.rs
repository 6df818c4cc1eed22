//! Tells people when somebody should look at a batch.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use longshore::{BatchId, SessionId, Store};
use longshore_batch::Lookout;
use longshore_batch::alerts::Alert;
use tokio::sync::Notify;
use tokio::time::{interval, timeout};

use super::crew::Crew;
use super::show::Show;
use crate::commands::now;

/// How often batches are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// How often a worker looks around: each look of an idle worker is a commit.
const ROUND: Duration = Duration::from_secs(5);
/// How long one of several workers is the one that looks.
const TERM: Duration = Duration::from_secs(15);
/// How long an alert may take that is being told when the worker ends.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// The role for which workers elect one.
const ROLE: &str = "batch-lookout";

/// Watches one batch that runs here.
pub struct BatchWatch<'a> {
    id: &'a BatchId,
    show: &'a Show,
    lookout: Lookout,
}

impl<'a> BatchWatch<'a> {
    /// Has seen nothing yet.
    pub fn new(id: &'a BatchId, crew: &Crew<'_>, show: &'a Show) -> Self {
        Self { id, show, lookout: crew.lookout() }
    }

    /// Looks at the batch now and then, until `over`. Who is being told something then still hears
    /// the end of it: to drop this future would kill the command that tells.
    pub async fn keep_looking(&mut self, over: impl Future<Output = ()>) {
        let (mut ticks, mut over) = (interval(LOOK), pin!(over));
        loop {
            tokio::select! {
                () = &mut over => return,
                _ = ticks.tick() => {}
            }
            self.look().await;
        }
    }

    /// Looks at the batch and says what has to be said.
    pub async fn look(&mut self) {
        for alert in self.lookout.look(self.id, now()).await {
            self.show.say(&words(&alert));
        }
    }
}

fn words(alert: &Alert) -> String {
    format!("alert: batch `{}`: {}", alert.batch, alert.words)
}

/// Runs `worker`, and watches all batches of the store beside it if no other worker does. What is
/// said goes to the log and to whom the batches name. Whom an alert is being told to when the worker
/// ends hears the end of it, within bounds.
pub async fn beside<T>(
    worker: impl Future<Output = T>,
    store: Arc<dyn Store>,
    lookout: Lookout,
) -> T {
    let over = Notify::new();
    let mut looking = pin!(look_around(store, lookout, over.notified()));
    let ended = tokio::select! {
        ended = worker => ended,
        never = ends_never(&mut looking) => match never {},
    };
    over.notify_one();
    let _ = timeout(LAST_WORDS, looking).await;
    ended
}

/// Looking ends only when it is told to.
async fn ends_never(looking: &mut (impl Future<Output = ()> + Unpin)) -> Infallible {
    looking.await;
    std::future::pending().await
}

async fn look_around(store: Arc<dyn Store>, mut lookout: Lookout, over: impl Future<Output = ()>) {
    let (me, mut ticks, mut over) = (SessionId::new(), interval(ROUND), pin!(over));
    loop {
        tokio::select! {
            () = &mut over => return,
            _ = ticks.tick() => {}
        }
        if store.lead(ROLE, me, TERM).await.unwrap_or(false) {
            lookout.look_around(now()).await;
        }
    }
}
