//! Polls the depth of queues for sections that can scale.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use longshore::Store;
use longshore::store::QueueInfo;

use crate::settings::{Settings, SuperviseSettings, SupervisedSection};
use crate::store;

/// Interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The result of a poll: the store, if it could be opened, and its queues, if it answered.
type PollResult = (Option<Arc<dyn Store>>, Option<Vec<QueueInfo>>);

/// Polls the store's queues.
pub(super) struct DepthPoller<'a> {
    settings: &'a Settings,
    poll: Option<Pin<Box<dyn Future<Output = PollResult> + 'a>>>,
}

impl<'a> DepthPoller<'a> {
    /// Polls only if a section can scale.
    pub(super) fn new(settings: &'a Settings) -> Self {
        let mut depth_poller = Self { settings, poll: None };
        depth_poller.update_sections(&settings.supervise);
        depth_poller
    }

    /// Starts or stops polling, as these sections need it.
    pub(super) fn update_sections(&mut self, sections: &SuperviseSettings) {
        match sections.workers.iter().any(SupervisedSection::can_scale) {
            true if self.poll.is_none() => self.start_poll(None),
            true => {}
            false => self.poll = None,
        }
    }

    fn start_poll(&mut self, store: Option<Arc<dyn Store>>) {
        let settings = self.settings;
        self.poll = Some(Box::pin(async move {
            tokio::time::sleep(POLL_INTERVAL).await;
            let store = match store {
                Some(store) => Some(store),
                None => store::open(settings).await.ok(),
            };
            // Without an answer from the store the processes stay as they are.
            let queues = match &store {
                Some(store) => store.queues(&settings.scope()).await.ok(),
                None => None,
            };
            (store, queues)
        }));
    }

    /// The queues after the next poll. Cancel-safe.
    pub(super) async fn queues(&mut self) -> Option<Vec<QueueInfo>> {
        let Some(poll) = &mut self.poll else { return std::future::pending().await };
        let (store, queues) = poll.await;
        self.start_poll(store);
        queues
    }
}
