//! Checks whether a worker is alive, and when it has to be stopped.

use std::time::{Duration, Instant};

use super::{Act, Desk, LONG, Wish, Worker};
use crate::protocol::ToWorker;
use crate::scheduler::Cause;
use crate::settings::OnTimeout;

/// How long an idle worker may take to answer a ping.
const PONG_WITHIN: Duration = Duration::from_secs(10);

impl Worker {
    /// Checks the worker. Returns what the lifecycle task has to do.
    pub(in super::super) fn look(&self, now: Instant, ping_every: Duration) -> Act {
        let mut desk = self.desk();
        let act = match desk.wish {
            Some(Wish::Kill(cause)) => return Act::Kill(cause),
            None if desk.deaf => return Act::Dismiss,
            Some(Wish::End(cause)) => self.see_out(&mut desk, cause, now),
            None => self.watch(&mut desk, now, ping_every),
        };
        drop(desk);
        self.flush();
        act
    }

    /// Stops a worker gracefully: sends `stop` once no caller waits for it, and allows the stop
    /// timeout.
    fn see_out(&self, desk: &mut Desk, cause: Cause, now: Instant) -> Act {
        desk.open = false;
        if desk.calls.iter().any(|entry| entry.given_up.is_none()) {
            return Act::Wait(now + self.stop_timeout);
        }
        if !desk.stop_sent {
            desk.stop_sent = true;
            let _ = desk.encoding.tell(&ToWorker::Stop, desk.outbox.tail());
        }
        let by = *desk.stop_by.get_or_insert(now + self.stop_timeout);
        if by <= now { Act::Kill(cause) } else { Act::Wait(by) }
    }

    /// Checks a running worker: it must not stay in a cancelled call for ever, and must answer
    /// pings.
    fn watch(&self, desk: &mut Desk, now: Instant, ping_every: Duration) -> Act {
        if self.on_timeout == OnTimeout::Replace
            && let Some(by) = desk.unwanted_since().map(|since| since + self.stop_timeout)
        {
            return match (by <= now, desk.concurrency) {
                (false, _) => Act::Wait(by),
                (true, 1) => Act::Kill(Cause::Timeout),
                // The worker's other calls are not at fault.
                (true, _) => Act::Release(Cause::Timeout),
            };
        }
        if let Some((_, asked)) = desk.pinged {
            let by = asked + PONG_WITHIN;
            return if by <= now { Act::Kill(Cause::Died) } else { Act::Wait(by) };
        }
        let Some(ask_at) = desk.last_heard.checked_add(ping_every) else {
            return Act::Wait(now + LONG);
        };
        if !desk.calls.is_empty() || !desk.open || ask_at > now {
            return Act::Wait(ask_at.max(now + ping_every / 4).min(now + LONG));
        }
        desk.last_id += 1;
        desk.pinged = Some((desk.last_id, now));
        let _ = desk.encoding.tell(&ToWorker::Ping(desk.last_id), desk.outbox.tail());
        Act::Wait(now + PONG_WITHIN)
    }
}
