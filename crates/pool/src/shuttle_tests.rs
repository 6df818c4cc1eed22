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

use crate::backend::CancelReason;
use crate::error::{CancelEffect, ErrorKind, OperationError};
use crate::job::{CallFailure, CallResult, Job, Work};
use crate::operation::{Operation, OperationSet, Operator};
use crate::scheduler::Ticket;
use crate::shared::{Shared, SubmitResult};
use crate::threads::Threads;
use crate::{CallPayload, PoolCall, PoolSettings, WhenQueueFull};

/// Schedules per scenario and strategy.
const SCHEDULES: usize = 2_000;

/// Operations that count how often each call was started.
#[derive(Default)]
struct StartCounts {
    started: [AtomicUsize; 8],
    panics: bool,
}

struct CountingOperator(Arc<StartCounts>);

impl OperationSet for Arc<StartCounts> {
    fn list(&self) -> Vec<Operation> {
        Vec::new()
    }

    fn open(&self) -> Result<Box<dyn Operator>, OperationError> {
        Ok(Box::new(CountingOperator(Arc::clone(self))))
    }
}

impl Operator for CountingOperator {
    fn perform(&mut self, _: &PoolCall, arguments: CallPayload) -> Result<CallPayload, OperationError> {
        let number = usize::from(arguments.as_bytes()[0]);
        self.0.started[number].fetch_add(1, Ordering::SeqCst);
        thread::yield_now();
        assert!(!(self.0.panics && number == 0), "as told");
        Ok(arguments)
    }
}

/// A pool without its public type.
struct Scenario {
    shared: Arc<Shared>,
    starts: Arc<StartCounts>,
}

impl Scenario {
    fn new(settings: PoolSettings, panics: bool) -> Arc<Self> {
        let starts = Arc::new(StartCounts { panics, ..StartCounts::default() });
        let backend = Threads::new(Arc::new(Arc::clone(&starts)));
        let shared = Arc::new(Shared::new("scenario".to_owned(), settings, Box::new(backend)));
        Arc::new(Self { shared, starts })
    }

    fn submit(&self, number: u8, when_full: WhenQueueFull) -> Option<SubmittedCall> {
        let (reply, answer) = oneshot::channel();
        let now = Instant::now();
        let job = Job {
            operation: "count".into(),
            work: Work::Operation { arguments: CallPayload::bytes(vec![number]), reply },
            priority: 5,
            sent: now,
            deadline: now + Duration::from_secs(3600),
            call_state: Arc::default(),
            isolated: false,
            progress: None,
            span: tracing::Span::none(),
        };
        let call_state = Arc::clone(&job.call_state);
        match self.shared.submit(job, when_full) {
            SubmitResult::Accepted(ticket) => Some((ticket, call_state, answer)),
            SubmitResult::Rejected(..) | SubmitResult::Full { .. } => None,
        }
    }

    /// Calls and waits; true if the call succeeded.
    fn call(&self, number: u8, when_full: WhenQueueFull) -> bool {
        let Some((_, _, answer)) = self.submit(number, when_full) else {
            self.assert_started(number, 0);
            return false;
        };
        match block_on(answer) {
            Ok(Ok(result)) => {
                assert_eq!(result.as_bytes(), [number], "another call's answer");
                self.assert_started(number, 1);
                true
            }
            Ok(Err(CallFailure { kind: ErrorKind::Panic { .. }, .. })) => {
                self.assert_started(number, 1);
                false
            }
            Ok(Err(CallFailure { kind: ErrorKind::ShuttingDown, .. })) => {
                self.assert_started(number, 0);
                false
            }
            other => panic!("{other:?}"),
        }
    }

    /// Calls, and cancels at once.
    fn call_and_cancel(&self, number: u8, reason: CancelReason) {
        let Some((ticket, call_state, answer)) = self.submit(number, WhenQueueFull::Wait) else {
            return;
        };
        let deadline = Instant::now();
        match self.shared.cancel(ticket, &call_state, deadline, reason) {
            Some(CancelEffect::NotStarted) => self.assert_started(number, 0),
            Some(_) => {}
            None => assert!(block_on(answer).is_ok(), "it is answered"),
        }
    }

    fn assert_started(&self, number: u8, times: usize) {
        let started = self.starts.started[usize::from(number)].load(Ordering::SeqCst);
        assert_eq!(started, times, "call {number}");
    }

    /// Runs maintenance until the last worker has ended.
    fn maintain(&self) {
        loop {
            self.shared.run_maintenance();
            let counts = self.shared.counts();
            if counts.closing && counts.workers + counts.abandoned == 0 {
                break;
            }
            block_on(self.shared.maintenance_due.notified());
        }
        let counts = self.shared.counts();
        assert_eq!((counts.queue, counts.overflow), (0, 0), "nothing is left");
        for started in &self.starts.started {
            assert!(started.load(Ordering::SeqCst) <= 1, "a call was done twice");
        }
    }
}

type SubmittedCall = (Option<Ticket>, Arc<crate::call_state::CallState>, oneshot::Receiver<CallResult>);

/// Explores a scenario: these callers run at the same time, then the pool is closed, unless a
/// caller did so.
fn explore(settings: fn() -> PoolSettings, panics: bool, callers: &'static [fn(&Scenario)]) {
    let scenario = move || {
        let scenario = Scenario::new(settings(), panics);
        let maintenance = {
            let scenario = Arc::clone(&scenario);
            thread::spawn(move || scenario.maintain())
        };
        let callers: Vec<_> = callers
            .iter()
            .map(|caller| {
                let scenario = Arc::clone(&scenario);
                thread::spawn(move || caller(&scenario))
            })
            .collect();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        scenario.shared.close();
        maintenance.join().unwrap();
    };
    shuttle::check_random(scenario, SCHEDULES);
    shuttle::check_pct(scenario, SCHEDULES, 3);
}

fn small() -> PoolSettings {
    PoolSettings { min: 0, max: 2, queue: 1, max_calls: None, ..PoolSettings::default() }
}

/// Workers that wait for their first call.
fn waiting() -> PoolSettings {
    PoolSettings { min: 2, ..small() }
}

#[test]
fn calls_that_wait_for_places_are_all_done() {
    explore(
        small,
        false,
        &[
            |scenario| assert!(scenario.call(0, WhenQueueFull::Wait)),
            |scenario| assert!(scenario.call(1, WhenQueueFull::Wait)),
            |scenario| assert!(scenario.call(2, WhenQueueFull::Wait)),
            |scenario| {
                assert!(scenario.call(3, WhenQueueFull::Wait));
                assert!(scenario.call(4, WhenQueueFull::Wait));
            },
        ],
    );
}

#[test]
fn a_call_given_up_before_it_began_is_never_done_and_disturbs_nobody() {
    explore(
        small,
        false,
        &[
            |scenario| assert!(scenario.call(0, WhenQueueFull::Wait)),
            |scenario| scenario.call_and_cancel(1, CancelReason::Timeout),
            |scenario| scenario.call_and_cancel(2, CancelReason::Caller),
            |scenario| assert!(scenario.call(3, WhenQueueFull::Wait)),
        ],
    );
}

#[test]
fn a_call_given_up_on_its_way_to_a_waiting_worker_disturbs_nobody() {
    explore(
        waiting,
        false,
        &[
            |scenario| {
                assert!(scenario.call(0, WhenQueueFull::Wait));
                scenario.call_and_cancel(1, CancelReason::Timeout);
                assert!(scenario.call(2, WhenQueueFull::Wait));
            },
            |scenario| {
                scenario.call_and_cancel(3, CancelReason::Timeout);
                assert!(scenario.call(4, WhenQueueFull::Wait));
            },
            |scenario| assert!(scenario.call(5, WhenQueueFull::Wait)),
        ],
    );
}

#[test]
fn closing_in_the_middle_leaves_no_call_without_an_answer() {
    explore(
        small,
        false,
        &[
            |scenario| _ = scenario.call(0, WhenQueueFull::Wait),
            |scenario| _ = scenario.call(1, WhenQueueFull::Refuse),
            |scenario| scenario.call_and_cancel(2, CancelReason::Timeout),
            |scenario| _ = scenario.call(3, WhenQueueFull::Wait),
            |scenario| scenario.shared.close(),
        ],
    );
}

#[test]
fn a_worker_that_panics_takes_only_its_own_call_with_it() {
    explore(
        || PoolSettings { max: 1, ..small() },
        true,
        &[
            |scenario| assert!(!scenario.call(0, WhenQueueFull::Wait)),
            |scenario| assert!(scenario.call(1, WhenQueueFull::Wait)),
            |scenario| assert!(scenario.call(2, WhenQueueFull::Wait)),
        ],
    );
}

#[test]
fn workers_are_replaced_without_losing_a_call() {
    explore(
        || PoolSettings { min: 1, max_calls: Some(1), ..small() },
        false,
        &[
            |scenario| assert!(scenario.call(0, WhenQueueFull::Wait)),
            |scenario| assert!(scenario.call(1, WhenQueueFull::Wait)),
            |scenario| assert!(scenario.call(2, WhenQueueFull::Wait)),
        ],
    );
}

#[test]
fn killing_everybody_while_calls_come_leaves_nobody_waiting() {
    explore(
        waiting,
        false,
        &[
            |scenario| _ = scenario.call(0, WhenQueueFull::Wait),
            |scenario| {
                scenario.call(1, WhenQueueFull::Wait);
                scenario.call(2, WhenQueueFull::Wait);
            },
            |scenario| {
                scenario.shared.close();
                scenario.shared.kill_all();
            },
        ],
    );
}
