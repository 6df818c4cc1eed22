//! Requests for provider batches: waiting, in a provider batch, answered. Each step is idempotent.

use longshore_accounts::{
    BatchAnswer, CloseReason, NewPendingRequest, PendingChange, PendingCounts, PendingFilter, PendingRequest,
    ProviderBatch, ProviderBatchChange,
};
use longshore_core::{BatchId, Payload, UnitId};

use super::helpers::*;
use crate::StoreFixture;

fn batch() -> BatchId {
    batch_id("parked")
}

fn item(id: &str) -> NewPendingRequest {
    NewPendingRequest { custom_id: id.into(), unit: UnitId::new(), prompt: format!("about {id} \0 é") }
}

fn delivery(id: &str, reply: &str) -> BatchAnswer {
    BatchAnswer { custom_id: id.into(), reply: Payload::from(reply.as_bytes().to_vec()) }
}

fn ids(items: &[PendingRequest]) -> Vec<&str> {
    items.iter().map(|item| item.new.custom_id.as_str()).collect()
}

impl StoreFixture {
    async fn park(&self, ids: &[&str]) -> Vec<NewPendingRequest> {
        let items: Vec<NewPendingRequest> = ids.iter().map(|id| item(id)).collect();
        let parked = self.ledger.change_pending(&batch(), PendingChange::Add(items.clone())).await;
        assert_eq!(parked.unwrap(), []);
        items
    }

    async fn park_in_other_batch(&self) {
        let park = PendingChange::Add(vec![item("z")]);
        self.ledger.change_pending(&batch_id("other"), park).await.unwrap();
    }

    async fn deliver(&self, deliveries: &[(&str, &str)]) -> Vec<UnitId> {
        let deliveries = deliveries.iter().map(|(id, reply)| delivery(id, reply)).collect();
        let deliver = PendingChange::Answer(deliveries);
        self.ledger.change_pending(&batch(), deliver).await.unwrap()
    }

    async fn unpark(&self, id: &str) {
        let remove = PendingChange::Remove(id.to_owned());
        self.ledger.change_pending(&batch(), remove).await.unwrap();
    }

    async fn parked(&self, filter: PendingFilter) -> Vec<PendingRequest> {
        self.ledger.pending_requests(&batch(), &filter, 100).await.unwrap()
    }

    async fn waiting(&self) -> Vec<PendingRequest> {
        self.parked(PendingFilter::Waiting).await
    }

    async fn contents(&self, mark: &str) -> Vec<PendingRequest> {
        self.parked(PendingFilter::ProviderBatch(mark.to_owned())).await
    }

    /// The request with this id, and its reply.
    async fn reply_to(&self, id: &str) -> Option<Option<Payload>> {
        let mut found = self.parked(PendingFilter::CustomId(id.to_owned())).await;
        found.pop().map(|parked| parked.reply)
    }

    async fn change_provider_batch(&self, mark: &str, change: ProviderBatchChange) {
        self.ledger.change_provider_batch(&batch(), mark, change).await.unwrap();
    }

    async fn seal(&self, mark: &str, ids: &[&str]) {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        self.change_provider_batch(mark, ProviderBatchChange::Create(ids)).await;
    }

    async fn provider_batches(&self) -> (Vec<ProviderBatch>, PendingCounts) {
        self.ledger.provider_batches(&batch()).await.unwrap()
    }
}

pub(super) async fn parked_questions_wait_in_their_order(fixture: &StoreFixture) {
    let items = fixture.park(&["b", "a"]).await;
    fixture.park_in_other_batch().await;
    // A repeat changes nothing.
    fixture.park(&["a", "c"]).await;
    let waiting = fixture.waiting().await;
    assert_eq!(ids(&waiting), ["b", "a", "c"]);
    assert_eq!(waiting[1].new, items[1]);
    assert_eq!((waiting[0].parked_at, waiting[0].tries), (fixture.now(), 0));
    assert_eq!(fixture.ledger.pending_requests(&batch(), &PendingFilter::Waiting, 2).await.unwrap().len(), 2);
}

pub(super) async fn a_shipment_holds_what_waited_when_it_was_sealed(fixture: &StoreFixture) {
    fixture.park(&["a", "b", "c"]).await;
    fixture.seal("m-1", &["a", "b"]).await;
    fixture.seal("m-2", &["b", "c", "unknown"]).await;
    // A repeat, also with other ids, changes nothing.
    fixture.seal("m-1", &["c"]).await;
    assert!(fixture.waiting().await.is_empty());
    assert_eq!(ids(&fixture.contents("m-1").await), ["a", "b"]);
    assert_eq!(ids(&fixture.contents("m-2").await), ["c"]);
    for _ in 0..2 {
        fixture.change_provider_batch("m-2", ProviderBatchChange::SetProviderId("ticket".to_owned())).await;
    }
    let (provider_batches, _) = fixture.provider_batches().await;
    let actual: Vec<_> =
        provider_batches.iter().map(|one| (one.name.as_str(), one.provider_id.as_deref())).collect();
    assert_eq!(actual, [("m-1", None), ("m-2", Some("ticket"))]);
    assert_eq!(provider_batches[0].sealed_at, fixture.now());
}

pub(super) async fn the_first_answer_to_a_question_stays(fixture: &StoreFixture) {
    let items = fixture.park(&["a", "b"]).await;
    fixture.seal("m-1", &["a", "b"]).await;
    let woken = fixture.deliver(&[("a", "one"), ("nobody", "x"), ("a", "two")]).await;
    assert_eq!(woken, [items[0].unit, items[0].unit]);
    let again = fixture.deliver(&[("a", "three")]).await;
    assert_eq!(again, [items[0].unit], "the waiting unit may have missed the first wake-up");
    assert_eq!(fixture.reply_to("a").await, Some(Some(Payload::from(b"one".to_vec()))));
    assert_eq!(ids(&fixture.contents("m-1").await), ["b"]);
    assert_eq!(fixture.reply_to("b").await, Some(None));
}

pub(super) async fn what_a_closed_shipment_leaves_waits_again(fixture: &StoreFixture) {
    fixture.park(&["a", "b", "c"]).await;
    fixture.seal("m-1", &["a", "b"]).await;
    fixture.deliver(&[("a", "one")]).await;
    for _ in 0..2 {
        fixture.change_provider_batch("m-1", ProviderBatchChange::Close(CloseReason::NoAnswer)).await;
    }
    assert!(fixture.provider_batches().await.0.is_empty());
    let waiting = fixture.waiting().await;
    assert_eq!(ids(&waiting), ["b", "c"], "an answered request is not waiting");
    assert_eq!((waiting[0].tries, waiting[1].tries), (1, 0));
    fixture.seal("m-2", &["b"]).await;
    fixture.change_provider_batch("m-2", ProviderBatchChange::Close(CloseReason::NotProcessed)).await;
    assert_eq!(fixture.waiting().await[0].tries, 1);
}

pub(super) async fn an_unparked_question_is_forgotten(fixture: &StoreFixture) {
    fixture.park(&["a"]).await;
    fixture.deliver(&[("a", "one")]).await;
    for _ in 0..2 {
        fixture.unpark("a").await;
    }
    assert_eq!(fixture.reply_to("a").await, None);
    assert!(fixture.deliver(&[("a", "x")]).await.is_empty());
}

pub(super) async fn what_is_parked_is_counted_and_what_was_answered_is_listed(fixture: &StoreFixture) {
    let items = fixture.park(&["a", "b", "c", "d"]).await;
    fixture.park_in_other_batch().await;
    fixture.seal("m-1", &["b", "c", "d"]).await;
    fixture.deliver(&[("d", "four"), ("b", "two")]).await;
    let (_, counts) = fixture.provider_batches().await;
    assert_eq!((counts.waiting, counts.out, counts.answered, counts.total()), (1, 1, 2, 4));
    let answered = fixture.parked(PendingFilter::Answered).await;
    let reply = |parked: &PendingRequest| parked.reply.as_ref().unwrap().as_bytes().to_vec();
    let actual: Vec<_> = answered.iter().map(|parked| (&parked.new, reply(parked))).collect();
    assert_eq!(actual, [(&items[1], b"two".to_vec()), (&items[3], b"four".to_vec())]);
    let first = fixture.ledger.pending_requests(&batch(), &PendingFilter::Answered, 1).await.unwrap();
    assert_eq!(first.len(), 1);
    fixture.unpark("b").await;
    assert_eq!(fixture.parked(PendingFilter::Answered).await.len(), 1);
    assert_eq!(fixture.ledger.provider_batches(&batch_id("none")).await.unwrap().1.total(), 0);
}
