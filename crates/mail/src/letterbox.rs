//! Letters that come one by one and are kept many at a time.

use std::sync::{Arc, Mutex, PoisonError};

use longshore::Clock;
use serde_json::Value;
use tokio::sync::oneshot::{self, error::TryRecvError};
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
    /// Held by whatever is at the disk: that goes on when whoever waits for it is dropped.
    turn: Arc<tokio::sync::Mutex<()>>,
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
        let (gathered, turn) = (Mutex::default(), Arc::default());
        Self(Arc::new(Inner { spool, clock, gathered, turn }))
    }

    /// Keeps a letter. Once this returned it will be sent, whatever dies; if it fails, or is dropped, it may
    /// be kept all the same, and may be put again.
    pub async fn put(&self, letter: Letter) -> Result<Kept, Arc<SpoolError>> {
        let (told, mut hears) = oneshot::channel();
        self.gathered().push(Waiting { letter, told });
        loop {
            let turn = Arc::clone(&self.0.turn).lock_owned().await;
            // Somebody else's turn may have been ours.
            match hears.try_recv() {
                Ok(kept) => return kept,
                Err(TryRecvError::Closed) => return Err(Arc::new(SpoolError::Unheard)),
                // So it is still among those that gathered.
                Err(TryRecvError::Empty) => {}
            }
            let (inner, group) = (Arc::clone(&self.0), self.group());
            let put = spawn_blocking(move || {
                inner.keep(group);
                drop(turn);
            });
            if let Err(error) = put.await {
                // It panicked, and so do we: there is one place that knows about panics.
                std::panic::resume_unwind(error.into_panic());
            }
            // Without another turn, for which there may be a queue.
            if let Ok(kept) = hears.try_recv() {
                return kept;
            }
        }
    }

    /// Who is next. Who was dropped puts it again, or does not want it any more.
    fn group(&self) -> Vec<Waiting> {
        let mut gathered = self.gathered();
        gathered.retain(|one| !one.told.is_closed());
        let most = gathered.len().min(GROUP);
        gathered.drain(..most).collect()
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
