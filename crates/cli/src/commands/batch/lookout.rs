//! Tells people when somebody should look at a batch.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use longshore::{BatchId, Scope, SessionId, Store};
use longshore_batch::alerts::Alert;
use longshore_batch::{Lookout, Sources};
use tokio::time::interval;

use super::crew::Crew;
use super::show::Show;
use crate::actions::Actions;
use crate::commands::now;

/// How often batches are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// How often a worker looks around: each look of an idle worker is a commit.
const ROUND: Duration = Duration::from_secs(5);
/// How long one of several workers is the one that looks.
const TERM: Duration = Duration::from_secs(15);
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

/// Watches all batches of a store beside a worker, if no other worker does, for as long as it is
/// awaited. What is said goes to the log and to whom the batches name.
pub async fn beside_worker(
    store: Arc<dyn Store>,
    scope: Scope,
    sources: Arc<Sources>,
    actions: Arc<Actions>,
) -> Infallible {
    let mut lookout = Lookout::new(Arc::clone(&store), scope, sources, actions);
    let (me, mut ticks) = (SessionId::new(), interval(ROUND));
    loop {
        ticks.tick().await;
        if store.lead(ROLE, me, TERM).await.unwrap_or(false) {
            lookout.look_around(now()).await;
        }
    }
}
