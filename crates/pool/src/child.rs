//! The worker's side: turns this process into a worker that performs operations written in Rust.
//!
//! If a program's `main` begins with [`run_if_worker`], it can be its own worker
//! ([`Program::this`](crate::Program::this)):
//!
//! ```no_run
//! use std::process::ExitCode;
//! use longshore_pool::{Operations, child};
//!
//! fn main() -> ExitCode {
//!     let worker = child::run_if_worker(|pool| match pool {
//!         "maths" => Some(Box::new(Operations::stateless().add("square", |(), n: u64| Ok::<_, String>(n * n)))),
//!         _ => None,
//!     });
//!     if let Some(ended) = worker {
//!         return ended;
//!     }
//!     // The program's own work.
//!     ExitCode::SUCCESS
//! }
//! ```
//!
//! A program that is nothing but a worker calls [`serve`]. Either way standard output is
//! redirected: what the worker prints goes to the pool's log. No thread is started: while an
//! operation runs, a cancellation is read only when the operation checks for one
//! ([`PoolCall::is_cancelled`]).

use std::collections::HashMap;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::channel::Channel;
use self::input::Input;
use self::output::Output;
use crate::call::PoolCall;
use crate::call_state::CallState;
use crate::error::{ErrorKind, OperationError};
use crate::operation::{Operation, OperationSet, Operator};
use crate::payload::CallPayload;
use crate::program::WORKER_ARGUMENT;
use crate::protocol::{CallMessage, Encoding, FromWorker, Hello, Ready, VERSION};
use crate::threads::panic_message;

mod channel;
mod input;
mod output;

/// Set by [`run_if_worker`].
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// The answer to a call may be sent with the next call's answer only if that operation takes at
/// most this long on average.
const MAX_ANSWER_DELAY: Duration = Duration::from_micros(50);

/// If the pool started this process as a worker of this same program, serves calls until the pool
/// stops it. Then `main` should return the exit code that this returns. `operations` maps the name
/// of a pool to its operations.
///
/// Call it first in `main`, before arguments are parsed or threads started. A program that does so
/// is also its own orphan reaper ([`longshore_process::OrphanReaper`]).
pub fn run_if_worker(operations: impl FnOnce(&str) -> Option<Box<dyn OperationSet>>) -> Option<ExitCode> {
    // Also in a worker, since its operations may open pools of their own.
    INSTALLED.store(true, Ordering::Relaxed);
    if longshore_process::run_if_reaper() {
        return Some(ExitCode::SUCCESS);
    }
    let mut arguments = std::env::args_os().skip(1).map_while(|word| word.into_string().ok());
    match (arguments.next().as_deref(), arguments.next()) {
        (Some(WORKER_ARGUMENT), Some(pool)) => Some(match operations(&pool) {
            Some(operations) => serve(&*operations),
            None => report_failure(&format!("this program has no operations for the pool `{pool}`")),
        }),
        _ => None,
    }
}

/// Whether `main` has called [`run_if_worker`].
pub(crate) fn is_installed() -> bool {
    INSTALLED.load(Ordering::Relaxed)
}

/// Serves calls until the pool stops this worker.
pub fn serve(operations: &dyn OperationSet) -> ExitCode {
    let done = Channel::take().and_then(|channel| WorkerServer::new(channel).serve(operations));
    match done {
        Ok(code) => code,
        // The pool has ended, so the error cannot be reported.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        Err(error) => report_failure(&error.to_string()),
    }
}

fn report_failure(message: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "worker: {message}");
    ExitCode::FAILURE
}

/// A worker that serves calls.
struct WorkerServer {
    input: Arc<Mutex<Input>>,
    output: Arc<Mutex<Output>>,
    poll: Arc<dyn Fn() + Send + Sync>,
    operations: HashMap<String, OperationTiming>,
}

/// An operation and how long its calls take.
struct OperationTiming {
    name: Arc<str>,
    idempotent: bool,
    /// Moving average of the time of a call.
    mean_time: Duration,
}

impl OperationTiming {
    fn new(name: &str, idempotent: bool) -> Self {
        Self { name: name.into(), idempotent, mean_time: Duration::MAX }
    }

    /// Whether earlier answers may be held back until a call of this operation is done. The pool
    /// takes the first unanswered call for the running one, and requeues the calls behind it if
    /// this worker dies. So the running call must be idempotent, and short.
    fn may_delay_answers(&self) -> bool {
        self.idempotent && self.mean_time <= MAX_ANSWER_DELAY
    }

    fn record(&mut self, time: Duration) {
        let mean_time = if self.mean_time == Duration::MAX { MAX_ANSWER_DELAY * 8 } else { self.mean_time };
        self.mean_time = mean_time - mean_time / 8 + time / 8;
    }
}

impl WorkerServer {
    fn new(channel: Channel) -> Self {
        let output = Arc::new(Mutex::new(Output::new(channel.write)));
        let input = Arc::new(Mutex::new(Input::new(channel.read)));
        let (from, to) = (Arc::clone(&input), Arc::clone(&output));
        let poll = Arc::new(move || {
            // If another thread polls at this moment, it reads for this one too.
            if let Ok(mut input) = from.try_lock() {
                let _ = input.poll(&mut lock(&to));
            }
        });
        Self { input, output, poll, operations: HashMap::new() }
    }

    fn serve(mut self, operations: &dyn OperationSet) -> io::Result<ExitCode> {
        let Some(hello) = lock(&self.input).hello()? else { return Ok(ExitCode::SUCCESS) };
        let mut operator =
            match open_operator(operations).and_then(|operator| check_version(&hello, operator)) {
                Ok(operator) => operator,
                Err(message) => {
                    self.send(&FromWorker::Failed(message))?;
                    return Ok(ExitCode::FAILURE);
                }
            };
        let about = operations.list();
        let timing = |one: &Operation| (one.name.clone(), OperationTiming::new(&one.name, one.idempotent));
        self.operations = about.iter().map(timing).collect();
        self.ready(&hello, about)?;
        while let Some(call) = self.next()? {
            if !self.perform(&mut *operator, call)? {
                // After a panic the operator's state may be broken, so it is never used again.
                operator = open_operator(operations).map_err(io::Error::other)?;
                self.send(&FromWorker::Retire)?;
            }
        }
        let _ = catch_unwind(AssertUnwindSafe(|| operator.close()));
        Ok(ExitCode::SUCCESS)
    }

    fn ready(&self, hello: &Hello, operations: Vec<Operation>) -> io::Result<()> {
        let binary = hello.encodings.contains(&Encoding::Binary);
        let encoding = if binary { Encoding::Binary } else { Encoding::Json };
        self.send(&FromWorker::Ready(Ready {
            version: VERSION,
            pid: Some(std::process::id()),
            encoding,
            operations,
            concurrency: 1,
            name: Some(concat!("longshore-pool ", env!("CARGO_PKG_VERSION")).to_owned()),
        }))?;
        lock(&self.input).switch(encoding);
        lock(&self.output).switch(encoding, hello.max_frame);
        Ok(())
    }

    fn send(&self, message: &FromWorker) -> io::Result<()> {
        let mut output = lock(&self.output);
        output.put(message)?;
        output.flush()
    }

    /// The next call; `None` once the pool has closed the channel.
    fn next(&self) -> io::Result<Option<CallMessage>> {
        loop {
            let mut input = lock(&self.input);
            if let Some(call) = input.pop() {
                return Ok(Some(call));
            }
            let mut output = lock(&self.output);
            output.flush()?;
            if input.is_closed() {
                return Ok(None);
            }
            drop(output);
            input.wait(&self.output)?;
        }
    }

    /// Performs a call and answers it. False if the operation panicked.
    fn perform(&mut self, operator: &mut dyn Operator, message: CallMessage) -> io::Result<bool> {
        let timing = self.operations.get(&message.operation);
        let name = timing.map_or_else(|| message.operation.as_str().into(), |it| it.name.clone());
        if !timing.is_some_and(OperationTiming::may_delay_answers) {
            lock(&self.output).flush()?;
        }
        let started = Instant::now();
        let call_state = Arc::new(CallState::default());
        call_state.assign(1);
        lock(&self.input).current = Some((message.id, Arc::clone(&call_state)));
        let deadline = message.timeout.and_then(|limit| started.checked_add(limit));
        let report = message.progress.then(|| self.reporter(message.id));
        let call = PoolCall::new(Arc::clone(&name), deadline, call_state, report).polling(&self.poll);
        let arguments = message.arguments;
        let performed = catch_unwind(AssertUnwindSafe(|| operator.perform(&call, arguments)));
        let succeeded = performed.is_ok();
        lock(&self.input).current = None;
        self.answer(
            message.id,
            performed.unwrap_or_else(|panic| {
                Err(OperationError(ErrorKind::Panic { message: panic_message(&*panic) }))
            }),
        )?;
        match self.operations.get_mut(&message.operation) {
            Some(timing) if timing.idempotent => timing.record(started.elapsed()),
            // The operation is not idempotent: the pool must learn at once that it is done.
            _ => lock(&self.output).flush()?,
        }
        Ok(succeeded)
    }

    fn answer(&self, id: u64, answer: Result<CallPayload, OperationError>) -> io::Result<()> {
        let mut output = lock(&self.output);
        match answer {
            Ok(value) => output.result(id, value),
            Err(OperationError(error)) => output.put(&FromWorker::Error { id, error }),
        }
    }

    fn reporter(&self, id: u64) -> Arc<dyn Fn(CallPayload) + Send + Sync> {
        let output = Arc::clone(&self.output);
        Arc::new(move |value| {
            let mut output = lock(&output);
            // A lost progress report does not stop the call. Sending the answer reports the same
            // error.
            let _ = output.put(&FromWorker::Progress { id, value });
            let _ = output.flush();
        })
    }
}

fn open_operator(operations: &dyn OperationSet) -> Result<Box<dyn Operator>, String> {
    match catch_unwind(AssertUnwindSafe(|| operations.open())) {
        Ok(opened) => opened.map_err(|error| error.to_string()),
        Err(panic) => Err(panic_message(&*panic)),
    }
}

fn check_version<T>(hello: &Hello, operator: T) -> Result<T, String> {
    match hello.version {
        VERSION => Ok(operator),
        other => Err(format!("the pool speaks version {other}, not {VERSION}")),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
