//! A worker's line: bytes to words and back. Decides nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use super::core::Event;
use super::door::{Guest, Reader, Writer};
use crate::wire::frame::{put, take};
use crate::wire::{FromWorker, ToWorker};

/// One connection of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LineId(u64);

/// Where words to a worker go. Bounded by what workers are given, not by the channel.
pub(super) type Out = mpsc::UnboundedSender<ToWorker>;

/// Carries words both ways until either side has gone.
pub(super) async fn carry(guest: Guest, events: mpsc::Sender<Event>) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let line = LineId(NEXT.fetch_add(1, Ordering::Relaxed));
    let (out, words) = mpsc::unbounded_channel();
    let Guest { reader, writer, .. } = guest;
    tokio::select! {
        error = hear(reader, line, out, &events) => tracing::debug!(?line, ?error, "a worker's line ended"),
        error = speak(writer, words) => tracing::debug!(?line, ?error, "a worker cannot be told"),
    }
    let _ = events.send(Event::Gone(line)).await;
}

async fn hear(
    mut reader: Reader,
    line: LineId,
    out: Out,
    events: &mpsc::Sender<Event>,
) -> std::io::Result<()> {
    // Given away with the introduction: once the core has forgotten its worker, the line ends, and
    // a worker that was taken for dead comes back on another and hears what it has to forget.
    let mut out = Some(out);
    while let Some(frame) = reader.next().await? {
        let event = match take(&frame)? {
            FromWorker::Register(register) => match out.take() {
                Some(out) => Event::Joined(line, register, out),
                None => return Err(std::io::Error::other("it introduced itself twice")),
            },
            words => Event::Words(line, words),
        };
        if events.send(event).await.is_err() {
            break;
        }
    }
    Ok(())
}

async fn speak(
    mut writer: Writer,
    mut words: mpsc::UnboundedReceiver<ToWorker>,
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    while let Some(word) = words.recv().await {
        bytes.clear();
        put(&word, &mut bytes)?;
        while let Ok(word) = words.try_recv() {
            put(&word, &mut bytes)?;
        }
        writer.write_all(&bytes).await?;
        writer.flush().await?;
    }
    writer.shutdown().await
}
