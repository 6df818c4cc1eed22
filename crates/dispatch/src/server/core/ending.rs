//! How a server comes to its end: nothing new, then everybody's last words, then its own.

use longshore::Outcome;
use longshore::store::Finish;
use tokio::time::Instant;

use super::Core;
use crate::request::Ending;
use crate::wire::ToWorker;

impl Core {
    pub(super) fn begin_to_end(&mut self, ending: Ending) {
        let limit = match ending {
            Ending::Drain(limit) => limit,
            Ending::Now => self.timing.farewell,
        };
        self.ending = Some((ending, Instant::now() + limit));
        for task in self.board.withdraw_all() {
            self.ends.push(Finish::new(task.lease, Outcome::Interrupted), None);
        }
        let left = self.doubts.all();
        self.judged(left);
        for (id, member) in &mut self.members {
            member.dismissed = true;
            self.board.on_draining(*id);
            let word = match ending {
                Ending::Drain(_) => ToWorker::Drain,
                Ending::Now => ToWorker::Stop("the pool ends".into()),
            };
            let _ = member.out.send(word);
        }
    }

    /// Whether everybody has left and everything was recorded, or there is no more time for it.
    pub(super) fn is_over(&self) -> bool {
        let Some((ending, until)) = self.ending else { return false };
        let late = ending == Ending::Now && Instant::now() >= until;
        let settled = self.ends.is_empty() && self.claims.is_idle();
        late || self.report.session_lost || (self.members.is_empty() && settled)
    }

    pub(super) async fn farewell(&mut self) {
        for id in self.members.keys().copied().collect::<Vec<_>>() {
            self.on_lost(self.now(), id);
        }
        for task in self.board.give_up_astray() {
            self.ends.push(Finish::new(task.lease, Outcome::Interrupted), None);
        }
        let _ = tokio::time::timeout(self.timing.farewell, async {
            while !self.ends.is_empty() {
                self.ends.flush();
                if let Some(settled) = self.ends.next().await {
                    self.on_settled(settled);
                }
            }
            if let Err(error) = self.store.close_session(self.session).await {
                tracing::warn!(%error, "the session is left to expire");
            }
        })
        .await;
    }
}
