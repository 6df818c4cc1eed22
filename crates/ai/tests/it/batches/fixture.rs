//! A batch API and the fake behind it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longshore::Timestamp;
use longshore_ai::batches::{
    self, BatchItem, BatchMark, BatchProvider, BatchResult, BatchState, BatchTicket,
};
use longshore_ai::{Answer, AskError, Http, Profile, ProviderName, Question};
use longshore_testkit::fake_ai::FakeAi;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The providers with a batch API.
pub(super) const BOTH: [ProviderName; 2] = [ProviderName::Anthropic, ProviderName::Openai];

pub(super) struct BatchFixture {
    pub(super) fake: FakeAi,
    pub(super) provider: Arc<dyn BatchProvider>,
}

impl BatchFixture {
    pub(super) async fn of(name: ProviderName) -> Self {
        let fake = FakeAi::start().await.unwrap();
        let profile =
            Profile { model: "fake-1".into(), endpoint: Some(fake.url()), ..Profile::new("p", name) };
        let provider = batches::open(&profile, Some("sk-marked-1".into()), &Http::new()).unwrap();
        Self { fake, provider }
    }

    pub(super) async fn submit(&self, ids: &[&str]) -> Result<BatchTicket, AskError> {
        self.provider.submit(&items(ids), "mark-1").await
    }

    /// All results of an ended batch.
    pub(super) async fn results(
        &self,
        ticket: &BatchTicket,
    ) -> Result<BTreeMap<String, Result<Answer, AskError>>, AskError> {
        let (send, mut came) = mpsc::channel::<BatchResult>(1);
        let listen = async {
            let mut all = BTreeMap::new();
            while let Some(one) = came.recv().await {
                assert!(all.insert(one.custom_id, one.result).is_none(), "an id came twice");
            }
            all
        };
        let fetch = async {
            let done = self.provider.results(ticket, &send).await;
            drop(send);
            done
        };
        let (done, all) = tokio::join!(fetch, listen);
        done.map(|()| all)
    }

    pub(super) async fn poll(&self, ticket: &BatchTicket) -> BatchState {
        self.provider.poll(ticket).await.unwrap()
    }
}

pub(super) fn item(id: &str) -> BatchItem {
    let until = Instant::now() + Duration::from_secs(60);
    BatchItem { custom_id: id.to_owned(), question: Question::new(id, format!("about {id}"), until) }
}

pub(super) fn items(ids: &[&str]) -> Vec<BatchItem> {
    ids.iter().copied().map(item).collect()
}

pub(super) fn mark(name: &str, ids: &[&str]) -> BatchMark {
    let ids = ids.iter().map(|id| (*id).to_owned()).collect();
    BatchMark { name: name.into(), since: Timestamp::parse("2026-11-01T00:00:00Z").unwrap(), ids }
}
