//! Letters that come one by one and are kept many at a time.

use std::sync::{Arc, Mutex, PoisonError};

use longshore::Clock;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use crate::spool::{Letter, Put, Spool, SpoolError};

/// Where letters are put that are to be kept: whatever gathers while the disk is waited for goes with the
/// next wait. Cheap to clone; all clones share their waits.
#[derive(Clone)]
pub struct Letterbox(Arc<Inner>);

struct Inner {
    spool: Spool,
    clock: Arc<dyn Clock>,
    gathered: Mutex<Vec<Waiting>>,
    /// Held by whoever waits for the disk.
    turn: tokio::sync::Mutex<()>,
}

struct Waiting {
    letter: Letter,
    told: oneshot::Sender<Result<Kept, Arc<SpoolError>>>,
}

/// What became of a letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Whether it is new.
    pub put: Put,
    /// What is known of the message that is kept: the letter's own words, or those of the one that was
    /// there before.
    pub about: Option<Value>,
}

/// Letters that are put with one wait for the disk, at most: a group keeps all of its bodies in memory.
const GROUP: usize = 256;

impl Letterbox {
    /// A box of this spool.
    pub fn new(spool: Spool, clock: Arc<dyn Clock>) -> Self {
        let (gathered, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        Self(Arc::new(Inner { spool, clock, gathered, turn }))
    }

    /// Keeps a letter. Once this returned it will be sent, whatever dies; if it fails, or is dropped, it may
    /// be kept all the same, and may be put again.
    pub async fn put(&self, letter: Letter) -> Result<Kept, Arc<SpoolError>> {
        let (told, mut hears) = oneshot::channel();
        self.gathered().push(Waiting { letter, told });
        loop {
            let turn = self.0.turn.lock().await;
            // Somebody else's turn may have been ours.
            if let Ok(kept) = hears.try_recv() {
                return kept;
            }
            let group = {
                let mut gathered = self.gathered();
                let most = gathered.len().min(GROUP);
                gathered.drain(..most).collect::<Vec<_>>()
            };
            let inner = Arc::clone(&self.0);
            let put = spawn_blocking(move || inner.keep(group)).await;
            drop(turn);
            if let Err(error) = put {
                // It panicked, and so do we: there is one place that knows about panics.
                std::panic::resume_unwind(error.into_panic());
            }
        }
    }

    fn gathered(&self) -> std::sync::MutexGuard<'_, Vec<Waiting>> {
        self.0.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn keep(&self, group: Vec<Waiting>) {
        let (letters, told): (Vec<_>, Vec<_>) =
            group.into_iter().map(|one| (one.letter, one.told)).unzip();
        match self.spool.put(&letters, self.clock.now()) {
            Err(error) => {
                let error = Arc::new(error);
                // Who does not listen any more puts it again.
                told.into_iter().for_each(|told| drop(told.send(Err(Arc::clone(&error)))));
            }
            Ok(puts) => {
                for ((letter, put), told) in letters.into_iter().zip(puts).zip(told) {
                    let _ = told.send(self.known(letter, put).map_err(Arc::new));
                }
            }
        }
    }

    fn known(&self, letter: Letter, put: Put) -> Result<Kept, SpoolError> {
        let about = match put {
            Put::Created => letter.about,
            Put::Existing => self.spool.message(&letter.key)?.about,
        };
        Ok(Kept { put, about })
    }
}
