//! Requests for provider batches: waiting, in a provider batch, answered. Each step is idempotent.

use longshore_core::ledger::{Delivery, NewParked, Parked, Return, Standing};
use longshore_core::{BatchId, Payload, UnitId};

use super::helpers::*;
use crate::World;

fn batch() -> BatchId {
    batch_id("parked")
}

fn item(id: &str) -> NewParked {
    NewParked { custom_id: id.into(), unit: UnitId::new(), prompt: format!("about {id} \0 é") }
}

fn delivery(id: &str, reply: &str) -> Delivery {
    Delivery { custom_id: id.into(), reply: Payload::from(reply.as_bytes().to_vec()) }
}

fn ids(items: &[Parked]) -> Vec<&str> {
    items.iter().map(|item| item.new.custom_id.as_str()).collect()
}

impl World {
    async fn park(&self, ids: &[&str]) -> Vec<NewParked> {
        let items: Vec<NewParked> = ids.iter().map(|id| item(id)).collect();
        self.ledger.park(&batch(), items.clone()).await.unwrap();
        items
    }

    async fn waiting(&self) -> Vec<Parked> {
        self.ledger.waiting(&batch(), 100).await.unwrap()
    }

    async fn seal(&self, mark: &str, ids: &[&str]) {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        self.ledger.seal(&batch(), mark, ids).await.unwrap();
    }

    async fn contents(&self, mark: &str) -> Vec<Parked> {
        self.ledger.contents(&batch(), mark).await.unwrap()
    }
}

pub(super) async fn parked_questions_wait_in_their_order(world: &World) {
    let items = world.park(&["b", "a"]).await;
    world.ledger.park(&batch_id("other"), vec![item("z")]).await.unwrap();
    // A repeat changes nothing.
    world.park(&["a", "c"]).await;
    let waiting = world.waiting().await;
    assert_eq!(ids(&waiting), ["b", "a", "c"]);
    assert_eq!(waiting[1].new, items[1]);
    assert_eq!((waiting[0].parked_at, waiting[0].tries), (world.now(), 0));
    assert_eq!(world.ledger.waiting(&batch(), 2).await.unwrap().len(), 2);
}

pub(super) async fn a_shipment_holds_what_waited_when_it_was_sealed(world: &World) {
    world.park(&["a", "b", "c"]).await;
    world.seal("m-1", &["a", "b"]).await;
    world.seal("m-2", &["b", "c", "unknown"]).await;
    // A repeat, also with other ids, changes nothing.
    world.seal("m-1", &["c"]).await;
    assert!(world.waiting().await.is_empty());
    assert_eq!(ids(&world.contents("m-1").await), ["a", "b"]);
    assert_eq!(ids(&world.contents("m-2").await), ["c"]);
    for _ in 0..2 {
        world.ledger.ship(&batch(), "m-2", "ticket").await.unwrap();
    }
    let shipments = world.ledger.shipments(&batch()).await.unwrap();
    let told: Vec<_> = shipments.iter().map(|s| (s.mark.as_str(), s.ticket.as_deref())).collect();
    assert_eq!(told, [("m-1", None), ("m-2", Some("ticket"))]);
    assert_eq!(shipments[0].sealed_at, world.now());
}

pub(super) async fn the_first_answer_to_a_question_stays(world: &World) {
    let items = world.park(&["a", "b"]).await;
    world.seal("m-1", &["a", "b"]).await;
    let first = vec![delivery("a", "one"), delivery("nobody", "x"), delivery("a", "two")];
    let woken = world.ledger.deliver(&batch(), first).await.unwrap();
    assert_eq!(woken, [items[0].unit, items[0].unit]);
    let again = world.ledger.deliver(&batch(), vec![delivery("a", "three")]).await.unwrap();
    assert_eq!(again, [items[0].unit], "the waiting unit may have missed the first wake-up");
    let standing = world.ledger.standing(&batch(), "a").await.unwrap();
    assert_eq!(standing, Standing::Answered(Payload::from(b"one".to_vec())));
    assert_eq!(ids(&world.contents("m-1").await), ["b"]);
    assert_eq!(world.ledger.standing(&batch(), "b").await.unwrap(), Standing::Parked);
}

pub(super) async fn what_a_closed_shipment_leaves_waits_again(world: &World) {
    world.park(&["a", "b", "c"]).await;
    world.seal("m-1", &["a", "b"]).await;
    world.ledger.deliver(&batch(), vec![delivery("a", "one")]).await.unwrap();
    for _ in 0..2 {
        world.ledger.close_shipment(&batch(), "m-1", Return::Tried).await.unwrap();
    }
    assert!(world.ledger.shipments(&batch()).await.unwrap().is_empty());
    let waiting = world.waiting().await;
    assert_eq!(ids(&waiting), ["b", "c"], "an answered request is not waiting");
    assert_eq!((waiting[0].tries, waiting[1].tries), (1, 0));
    world.seal("m-2", &["b"]).await;
    world.ledger.close_shipment(&batch(), "m-2", Return::Untried).await.unwrap();
    assert_eq!(world.waiting().await[0].tries, 1);
}

pub(super) async fn an_unparked_question_is_forgotten(world: &World) {
    world.park(&["a"]).await;
    world.ledger.deliver(&batch(), vec![delivery("a", "one")]).await.unwrap();
    for _ in 0..2 {
        world.ledger.unpark(&batch(), "a").await.unwrap();
    }
    assert_eq!(world.ledger.standing(&batch(), "a").await.unwrap(), Standing::Unknown);
    assert!(world.ledger.deliver(&batch(), vec![delivery("a", "x")]).await.unwrap().is_empty());
}

pub(super) async fn what_is_parked_is_counted_and_what_was_answered_is_listed(world: &World) {
    let items = world.park(&["a", "b", "c", "d"]).await;
    world.ledger.park(&batch_id("other"), vec![item("z")]).await.unwrap();
    world.seal("m-1", &["b", "c", "d"]).await;
    let replies = vec![delivery("d", "four"), delivery("b", "two")];
    world.ledger.deliver(&batch(), replies).await.unwrap();
    let counts = world.ledger.parked(&batch()).await.unwrap();
    assert_eq!((counts.waiting, counts.out, counts.answered, counts.total()), (1, 1, 2, 4));
    let answered = world.ledger.answered(&batch(), 100).await.unwrap();
    let told: Vec<_> = answered.iter().map(|(item, reply)| (&item.new, reply.as_bytes())).collect();
    assert_eq!(told, [(&items[1], &b"two"[..]), (&items[3], &b"four"[..])]);
    assert_eq!(world.ledger.answered(&batch(), 1).await.unwrap().len(), 1);
    world.ledger.unpark(&batch(), "b").await.unwrap();
    assert_eq!(world.ledger.answered(&batch(), 100).await.unwrap().len(), 1);
    assert_eq!(world.ledger.parked(&batch_id("none")).await.unwrap().total(), 0);
}
