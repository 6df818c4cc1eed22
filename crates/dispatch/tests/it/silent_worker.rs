//! Workers that send nothing.

use std::collections::BTreeMap;

use longshore_dispatch::access::Access;
use longshore_dispatch::connection::{ServerConnection, connect};
use longshore_dispatch::wire::frame::{decode, encode};
use longshore_dispatch::wire::{FromWorker, PeerRole, Register, ToWorker};
use longshore_dispatch::worker::ProgramCommand;
use tokio::io::AsyncWriteExt;

use crate::pool_fixture::{LONG, Pool, once};

/// A worker that registers and sends nothing more.
async fn silent_worker(pool: &Pool) -> ServerConnection {
    let access = Access::read(pool.folder.path(), PeerRole::Worker).unwrap();
    let mut link = connect(&access, PeerRole::Worker).await.unwrap();
    let register = Register {
        uid: "silent".into(),
        host: "here".into(),
        pid: 1,
        version: "0".into(),
        launch: None,
        threads: 1,
        resources: BTreeMap::new(),
        interrupts_in: None,
        held_leases: Vec::new(),
    };
    let mut bytes = Vec::new();
    encode(&FromWorker::Register(Box::new(register)), &mut bytes).unwrap();
    link.writer.write_all(&bytes).await.unwrap();
    link.writer.flush().await.unwrap();
    link
}

#[tokio::test]
async fn a_worker_that_was_taken_for_lost_is_not_left_to_talk_to_nobody() {
    let pool = Pool::start().await;
    let mut link = silent_worker(&pool).await;
    let (id, submission) = once(pool.script("job.sh", "true"));
    pool.submit(submission).await;
    let listening = async {
        let mut messages = Vec::new();
        while let Ok(Some(frame)) = link.reader.next().await {
            messages.push(decode::<ToWorker>(&frame).unwrap());
        }
        messages
    };
    let messages = tokio::time::timeout(LONG, listening).await.expect("the line should have ended");
    let has_orders = |message: &ToWorker| matches!(message, ToWorker::Run(_));
    assert!(messages.iter().any(has_orders), "it was a worker: {messages:?}");
    // Another worker runs the script that this one may have started.
    let other = pool.worker(1);
    assert_eq!(pool.wait_for_end(id).await.state, longshore::UnitState::Done);
    other.commands.send(ProgramCommand::Drain).await.unwrap();
    assert_eq!(other.summary.await.unwrap().unwrap().done, 1);
}
