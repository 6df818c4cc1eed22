//! Which messages a sender claims, and when, with scripted transports.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use longshore::SystemClock;
use longshore_mail::send::{MailTransaction, Sender, SenderSettings, Transport};
use longshore_mail::spool::{DeliveryOutcome, Share, Spool, SpoolError, SpooledMessage};
use tempfile::TempDir;
use tokio::sync::{Semaphore, mpsc};

use super::{letter, now};

async fn sender(spool: &Spool, carrier: Arc<dyn Transport>, connections: usize) -> Sender {
    let settings = SenderSettings { connections, ..Default::default() };
    let shard = spool.shard(Share::ALL).expect("the lock is free");
    Sender::new(shard, carrier, settings, Arc::new(SystemClock)).await.expect("it begins")
}

fn put(spool: &Spool, about: &[&str]) {
    let letters: Vec<_> = about.iter().map(|about| letter("a@x.org", about)).collect();
    spool.enqueue(&letters, now()).expect("kept");
}

/// Makes the claimed message's file unwritable at the first offer, as a full disk would.
#[derive(Clone)]
struct FullDisk {
    spool: Spool,
    offers: Arc<AtomicUsize>,
}

#[async_trait]
impl Transport for FullDisk {
    async fn begin(&self, message: &SpooledMessage) -> Result<Box<dyn MailTransaction>, DeliveryOutcome> {
        self.offers.fetch_add(1, Ordering::SeqCst);
        let file = self.spool.folder().join("sending").join(message.name.to_string());
        fs::remove_file(&file).and_then(|()| fs::create_dir(&file)).expect("in its way");
        Ok(Box::new(self.clone()))
    }
}

#[async_trait]
impl MailTransaction for FullDisk {
    async fn send_data(&mut self, _: &SpooledMessage) -> DeliveryOutcome {
        panic!("what could not be noted must not be handed over");
    }
}

#[tokio::test]
async fn a_sender_that_cannot_write_offers_no_further_messages() {
    let folder = TempDir::new().expect("a folder");
    let spool = Spool::open(folder.path()).expect("a spool");
    let names: Vec<String> = (0..50).map(|n| n.to_string()).collect();
    put(&spool, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let carrier = Arc::new(FullDisk { spool: spool.clone(), offers: Arc::default() });
    let error = sender(&spool, carrier.clone(), 4).await.round(&|| false).await;
    assert!(matches!(error, Err(SpoolError::Io { .. })), "{error:?}");
    let offers = carrier.offers.load(Ordering::SeqCst);
    assert!((1..=4).contains(&offers), "{offers} offers, for 4 connections");
    assert_eq!(spool.stats(now()).expect("counted").pending, 50 - offers);
}

/// Reports each message it gets, and answers when the test opens its gate.
struct SlowTransport {
    got: mpsc::UnboundedSender<String>,
    gates: HashMap<&'static str, Arc<Semaphore>>,
}

struct Gate(Option<Arc<Semaphore>>);

#[async_trait]
impl Transport for SlowTransport {
    async fn begin(&self, message: &SpooledMessage) -> Result<Box<dyn MailTransaction>, DeliveryOutcome> {
        let key = message.name.key.encoded();
        self.got.send(key.to_owned()).expect("the test listens");
        Ok(Box::new(Gate(self.gates.get(key).cloned())))
    }
}

#[async_trait]
impl MailTransaction for Gate {
    async fn send_data(&mut self, _: &SpooledMessage) -> DeliveryOutcome {
        if let Some(gate) = &self.0 {
            gate.acquire().await.expect("open").forget();
        }
        DeliveryOutcome::Accepted { answer: "250 at last".into() }
    }
}

#[tokio::test]
async fn one_slow_answer_holds_up_no_other_mail_and_is_waited_for_at_the_end() {
    let folder = TempDir::new().expect("a folder");
    let spool = Spool::open(folder.path()).expect("a spool");
    let (got, mut hears) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let carrier = SlowTransport { got, gates: HashMap::from([("slow", Arc::clone(&gate))]) };
    let sender = sender(&spool, Arc::new(carrier), 2).await;
    put(&spool, &["slow"]);
    let stop = AtomicBool::new(false);
    let stopped = || stop.load(Ordering::SeqCst);
    let others = async {
        assert_eq!(hears.recv().await.as_deref(), Some("slow"));
        for about in ["urgent", "another"] {
            put(&spool, &[about]);
            assert_eq!(hears.recv().await.as_deref(), Some(about), "while one is slow");
        }
        // A sender that is told to stop claims nothing new, and waits for messages in flight.
        stop.store(true, Ordering::SeqCst);
        put(&spool, &["late"]);
        gate.add_permits(1);
    };
    let (sent, ()) = tokio::join!(sender.round(&stopped), others);
    assert_eq!(sent.expect("it sends").sent, 3);
    let stats = spool.stats(now()).expect("counted");
    assert_eq!((stats.pending, stats.sending), (1, 0), "the last came too late");
}
