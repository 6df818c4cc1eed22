//! Looks now and then at how much is ready for sections that may grow.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use longshore::Store;
use longshore::store::QueueInfo;

use crate::settings::{Settings, SuperviseSettings, Supervised};
use crate::store;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(2);

/// What a look brought: the store, if it could be opened, and its queues, if it answered.
type Look = (Option<Arc<dyn Store>>, Option<Vec<QueueInfo>>);

/// Whoever looks.
pub(super) struct Scout<'a> {
    settings: &'a Settings,
    look: Option<Pin<Box<dyn Future<Output = Look> + 'a>>>,
}

impl<'a> Scout<'a> {
    /// Looks only if there is a section that may grow.
    pub(super) fn new(settings: &'a Settings) -> Self {
        let mut scout = Self { settings, look: None };
        scout.look_out(&settings.supervise);
        scout
    }

    /// Begins to look, or ends it, as these sections want it.
    pub(super) fn look_out(&mut self, sections: &SuperviseSettings) {
        match sections.workers.iter().any(Supervised::grows) {
            true if self.look.is_none() => self.go(None),
            true => {}
            false => self.look = None,
        }
    }

    fn go(&mut self, store: Option<Arc<dyn Store>>) {
        let settings = self.settings;
        self.look = Some(Box::pin(async move {
            tokio::time::sleep(EVERY).await;
            let store = match store {
                Some(store) => Some(store),
                None => store::open(settings).await.ok(),
            };
            // A store that is away says nothing: whatever runs goes on.
            let queues = match &store {
                Some(store) => store.queues(&settings.scope()).await.ok(),
                None => None,
            };
            (store, queues)
        }));
    }

    /// The queues, once it has looked again. May be dropped and asked anew.
    pub(super) async fn queues(&mut self) -> Option<Vec<QueueInfo>> {
        let Some(look) = &mut self.look else { return std::future::pending().await };
        let (store, queues) = look.await;
        self.go(store);
        queues
    }
}
