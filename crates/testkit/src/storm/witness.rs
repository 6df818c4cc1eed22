//! The witness: hears every process on a connection of its own, one line at a time.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use longshore_core::PermitId;

use super::books::Books;

/// What is said to the witness; it answers each line with one, `go` or `enough`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// Before an ask, or an extension, is sent.
    Asks(PermitId),
    /// After it was told to wait.
    Waits(PermitId),
    /// After it was given a permit with this fence and weight.
    Holds(PermitId, u64, u32),
    /// After its lease began anew.
    Extended(PermitId),
    /// Before it is given back, or after it was lost.
    Drops(PermitId),
}

impl std::fmt::Display for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Asks(id) => write!(f, "asks {id}"),
            Self::Waits(id) => write!(f, "waits {id}"),
            Self::Holds(id, fence, weight) => write!(f, "holds {id} {fence} {weight}"),
            Self::Extended(id) => write!(f, "extended {id}"),
            Self::Drops(id) => write!(f, "drops {id}"),
        }
    }
}

impl Word {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (verb, id) = (words.next()?, words.next()?.parse().ok()?);
        Some(match verb {
            "asks" => Self::Asks(id),
            "waits" => Self::Waits(id),
            "holds" => Self::Holds(id, words.next()?.parse().ok()?, words.next()?.parse().ok()?),
            "extended" => Self::Extended(id),
            "drops" => Self::Drops(id),
            _ => return None,
        })
    }
}

/// A witness that listens for as long as the test runs.
#[derive(Debug, Clone)]
pub(super) struct Witness {
    books: Arc<Mutex<Books>>,
    over: Arc<AtomicBool>,
}

impl Witness {
    /// Begins to listen; where.
    pub(super) fn start(books: Books) -> std::io::Result<(Self, SocketAddr)> {
        let witness = Self { books: Arc::new(Mutex::new(books)), over: Arc::default() };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (address, own) = (listener.local_addr()?, witness.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let own = own.clone();
                std::thread::spawn(move || own.hear(&client));
            }
        });
        Ok((witness, address))
    }

    /// Its books.
    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All are to end.
    pub(super) fn is_over(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Until the client goes.
    fn hear(&self, client: &TcpStream) {
        // Else each answer would wait for more to say.
        let _ = client.set_nodelay(true);
        for line in BufReader::new(client).lines().map_while(Result::ok) {
            let Some(word) = Word::read(&line) else { return };
            let answer = if self.note(word) { "enough\n" } else { "go\n" };
            let mut client = client;
            if client.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    /// Whether the storm is over.
    fn note(&self, word: Word) -> bool {
        let mut books = self.books();
        // Under the lock: what is noted later happened later.
        let now = Instant::now();
        match word {
            Word::Asks(id) => books.asks(id, now),
            Word::Waits(id) => books.waits(id, now),
            Word::Holds(id, fence, weight) => books.holds(id, fence, weight, now),
            Word::Extended(id) => books.extended(id, now),
            Word::Drops(id) => books.drops(id),
        }
        self.over.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_as_it_was_said() {
        let id = PermitId::new();
        let words = [
            Word::Asks(id),
            Word::Waits(id),
            Word::Holds(id, 7, 2),
            Word::Extended(id),
            Word::Drops(id),
        ];
        for word in words {
            assert_eq!(Word::read(&word.to_string()), Some(word));
        }
        assert_eq!(Word::read("lies"), None);
    }
}
