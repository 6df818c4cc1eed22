//! Connection of a worker: decodes its messages for the core and encodes the core's replies.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use super::core::Event;
use super::handshake::{AuthenticatedPeer, Reader, Writer};
use crate::wire::frame::{decode, encode};
use crate::wire::{FromWorker, ToWorker};

/// Identifies one connection of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ConnectionId(pub(super) u64);

/// Messages to a worker. The number of assigned tasks bounds them, not the channel.
pub(super) type WorkerSender = mpsc::UnboundedSender<ToWorker>;

/// Transfers messages both ways until one side is gone.
pub(super) async fn run(peer: AuthenticatedPeer, events: mpsc::Sender<Event>) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let connection = ConnectionId(NEXT.fetch_add(1, Ordering::Relaxed));
    let (sender, messages) = mpsc::unbounded_channel();
    let AuthenticatedPeer { reader, writer, .. } = peer;
    tokio::select! {
        error = read_messages(reader, connection, sender, &events) => tracing::debug!(?connection, ?error, "worker connection closed"),
        error = write_messages(writer, messages) => tracing::debug!(?connection, ?error, "writing to a worker failed"),
    }
    let _ = events.send(Event::Disconnected(connection)).await;
}

async fn read_messages(
    mut reader: Reader,
    connection: ConnectionId,
    sender: WorkerSender,
    events: &mpsc::Sender<Event>,
) -> std::io::Result<()> {
    // Passed on with the registration: when the core removes the worker, it drops the sender and
    // the connection ends. A worker that was wrongly considered dead then reconnects and learns
    // which tasks to drop.
    let mut sender = Some(sender);
    while let Some(frame) = reader.next().await? {
        let event = match decode(&frame)? {
            FromWorker::Register(register) => match sender.take() {
                Some(sender) => Event::Registered(connection, register, sender),
                None => return Err(std::io::Error::other("the worker registered twice")),
            },
            message => Event::Message(connection, message),
        };
        if events.send(event).await.is_err() {
            break;
        }
    }
    Ok(())
}

async fn write_messages(
    mut writer: Writer,
    mut messages: mpsc::UnboundedReceiver<ToWorker>,
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    while let Some(message) = messages.recv().await {
        bytes.clear();
        encode(&message, &mut bytes)?;
        while let Ok(message) = messages.try_recv() {
            encode(&message, &mut bytes)?;
        }
        writer.write_all(&bytes).await?;
        writer.flush().await?;
    }
    writer.shutdown().await
}
