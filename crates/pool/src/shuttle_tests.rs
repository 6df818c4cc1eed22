//! Concurrency tests under shuttle: callers, workers, a caller that cancels, a thread that closes
//! the pool, in every order that some thousands of schedules reach. No call is lost, none runs
//! twice or after it was cancelled, and no thread waits for ever (shuttle reports a deadlock).
//!
//! `cargo test -p longshore-pool --lib --features _shuttle shuttle_tests`
#![expect(clippy::panic, clippy::unwrap_used, reason = "test helpers may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use shuttle::{future::block_on, thread};
use tokio::sync::oneshot;

use crate::backend::Why;
use crate::error::{ErrorKind, Fate, OperationError};
use crate::job::{Answer, Job, Work};
use crate::operation::{Operation, OperationSet, Operator};
use crate::scheduler::Ticket;
use crate::shared::{Placed, Shared};
use crate::threads::Threads;
use crate::{Call, Payload, Settings, WhenFull};

/// Schedules per scenario and strategy.
const SCHEDULES: usize = 2_000;

/// Operations that count how often each call was started.
#[derive(Default)]
struct Ledger {
    begun: [AtomicUsize; 8],
    panics: bool,
}

struct Clerk(Arc<Ledger>);

impl OperationSet for Arc<Ledger> {
    fn list(&self) -> Vec<Operation> {
        Vec::new()
    }

    fn open(&self) -> Result<Box<dyn Operator>, OperationError> {
        Ok(Box::new(Clerk(Arc::clone(self))))
    }
}

impl Operator for Clerk {
    fn perform(&mut self, _: &Call, arguments: Payload) -> Result<Payload, OperationError> {
        let number = usize::from(arguments.as_bytes()[0]);
        self.0.begun[number].fetch_add(1, Ordering::SeqCst);
        thread::yield_now();
        assert!(!(self.0.panics && number == 0), "as told");
        Ok(arguments)
    }
}

/// A pool without its public type.
struct Scene {
    shared: Arc<Shared>,
    ledger: Arc<Ledger>,
}

impl Scene {
    fn new(settings: Settings, panics: bool) -> Arc<Self> {
        let ledger = Arc::new(Ledger { panics, ..Ledger::default() });
        let crew = Threads::new(Arc::new(Arc::clone(&ledger)));
        let shared = Arc::new(Shared::new("scene".to_owned(), settings, Box::new(crew)));
        Arc::new(Self { shared, ledger })
    }

    fn submit(&self, number: u8, when_full: WhenFull) -> Option<Waiting> {
        let (reply, answer) = oneshot::channel();
        let now = Instant::now();
        let job = Job {
            operation: "count".into(),
            work: Work::Operation { arguments: Payload::bytes(vec![number]), reply },
            priority: 5,
            sent: now,
            deadline: now + Duration::from_secs(3600),
            reins: Arc::default(),
            progress: None,
            span: tracing::Span::none(),
        };
        let reins = Arc::clone(&job.reins);
        match self.shared.submit(job, when_full) {
            Placed::Taken(ticket) => Some((ticket, reins, answer)),
            Placed::Refused(..) | Placed::Full { .. } => None,
        }
    }

    /// Calls and waits; true if the call succeeded.
    fn call(&self, number: u8, when_full: WhenFull) -> bool {
        let Some((_, _, answer)) = self.submit(number, when_full) else {
            self.begun(number, 0);
            return false;
        };
        match block_on(answer) {
            Ok(Ok(result)) => {
                assert_eq!(result.as_bytes(), [number], "somebody else's answer");
                self.begun(number, 1);
                true
            }
            Ok(Err((ErrorKind::Panic { .. }, _))) => {
                self.begun(number, 1);
                false
            }
            Ok(Err((ErrorKind::ShuttingDown, _))) => {
                self.begun(number, 0);
                false
            }
            other => panic!("{other:?}"),
        }
    }

    /// Calls, and cancels at once.
    fn call_and_give_up(&self, number: u8, why: Why) {
        let Some((ticket, reins, answer)) = self.submit(number, WhenFull::Wait) else { return };
        let deadline = Instant::now();
        match self.shared.give_up(ticket, &reins, deadline, why) {
            Some(Fate::NotStarted) => self.begun(number, 0),
            Some(_) => {}
            None => assert!(block_on(answer).is_ok(), "it is answered"),
        }
    }

    fn begun(&self, number: u8, times: usize) {
        let begun = self.ledger.begun[usize::from(number)].load(Ordering::SeqCst);
        assert_eq!(begun, times, "call {number}");
    }

    /// Runs maintenance until the last worker has ended.
    fn keep(&self) {
        loop {
            self.shared.tend_now();
            let counts = self.shared.counts();
            if counts.closing && counts.workers + counts.abandoned == 0 {
                break;
            }
            block_on(self.shared.tend.notified());
        }
        let counts = self.shared.counts();
        assert_eq!((counts.queue, counts.line), (0, 0), "nothing is left");
        for begun in &self.ledger.begun {
            assert!(begun.load(Ordering::SeqCst) <= 1, "a call was done twice");
        }
    }
}

type Waiting = (Option<Ticket>, Arc<crate::call_state::Reins>, oneshot::Receiver<Answer>);

/// Explores a scenario: these callers run at the same time, then the pool is closed, unless a
/// caller did so.
fn play(settings: fn() -> Settings, panics: bool, callers: &'static [fn(&Scene)]) {
    let scene = move || {
        let scene = Scene::new(settings(), panics);
        let keeper = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || scene.keep())
        };
        let callers: Vec<_> = callers
            .iter()
            .map(|caller| {
                let scene = Arc::clone(&scene);
                thread::spawn(move || caller(&scene))
            })
            .collect();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        scene.shared.close();
        keeper.join().unwrap();
    };
    shuttle::check_random(scene, SCHEDULES);
    shuttle::check_pct(scene, SCHEDULES, 3);
}

fn small() -> Settings {
    Settings { min: 0, max: 2, queue: 1, max_calls: None, ..Settings::default() }
}

/// Workers that wait for their first call.
fn waiting() -> Settings {
    Settings { min: 2, ..small() }
}

#[test]
fn calls_that_wait_for_places_are_all_done() {
    play(
        small,
        false,
        &[
            |scene| assert!(scene.call(0, WhenFull::Wait)),
            |scene| assert!(scene.call(1, WhenFull::Wait)),
            |scene| assert!(scene.call(2, WhenFull::Wait)),
            |scene| {
                assert!(scene.call(3, WhenFull::Wait));
                assert!(scene.call(4, WhenFull::Wait));
            },
        ],
    );
}

#[test]
fn a_call_given_up_before_it_began_is_never_done_and_disturbs_nobody() {
    play(
        small,
        false,
        &[
            |scene| assert!(scene.call(0, WhenFull::Wait)),
            |scene| scene.call_and_give_up(1, Why::TimedOut),
            |scene| scene.call_and_give_up(2, Why::TakenBack),
            |scene| assert!(scene.call(3, WhenFull::Wait)),
        ],
    );
}

#[test]
fn a_call_given_up_on_its_way_to_a_waiting_worker_disturbs_nobody() {
    play(
        waiting,
        false,
        &[
            |scene| {
                assert!(scene.call(0, WhenFull::Wait));
                scene.call_and_give_up(1, Why::TimedOut);
                assert!(scene.call(2, WhenFull::Wait));
            },
            |scene| {
                scene.call_and_give_up(3, Why::TimedOut);
                assert!(scene.call(4, WhenFull::Wait));
            },
            |scene| assert!(scene.call(5, WhenFull::Wait)),
        ],
    );
}

#[test]
fn closing_in_the_middle_leaves_no_call_without_an_answer() {
    play(
        small,
        false,
        &[
            |scene| _ = scene.call(0, WhenFull::Wait),
            |scene| _ = scene.call(1, WhenFull::Refuse),
            |scene| scene.call_and_give_up(2, Why::TimedOut),
            |scene| _ = scene.call(3, WhenFull::Wait),
            |scene| scene.shared.close(),
        ],
    );
}

#[test]
fn a_worker_that_panics_takes_only_its_own_call_with_it() {
    play(
        || Settings { max: 1, ..small() },
        true,
        &[
            |scene| assert!(!scene.call(0, WhenFull::Wait)),
            |scene| assert!(scene.call(1, WhenFull::Wait)),
            |scene| assert!(scene.call(2, WhenFull::Wait)),
        ],
    );
}

#[test]
fn workers_are_replaced_without_losing_a_call() {
    play(
        || Settings { min: 1, max_calls: Some(1), ..small() },
        false,
        &[
            |scene| assert!(scene.call(0, WhenFull::Wait)),
            |scene| assert!(scene.call(1, WhenFull::Wait)),
            |scene| assert!(scene.call(2, WhenFull::Wait)),
        ],
    );
}

#[test]
fn killing_everybody_while_calls_come_leaves_nobody_waiting() {
    play(
        waiting,
        false,
        &[
            |scene| _ = scene.call(0, WhenFull::Wait),
            |scene| {
                scene.call(1, WhenFull::Wait);
                scene.call(2, WhenFull::Wait);
            },
            |scene| {
                scene.shared.close();
                scene.shared.kill_all();
            },
        ],
    );
}
