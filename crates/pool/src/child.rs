//! The worker's side: turns this process into one that performs operations written in Rust.
//!
//! A program whose `main` begins with [`run_if_worker`] can be its own worker
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
//!     // What the program is really about.
//!     ExitCode::SUCCESS
//! }
//! ```
//!
//! A program that is a worker and nothing else calls [`serve`]. Either way standard output is moved
//! out of the way: what is printed goes to the pool's log. No thread is started: while an operation
//! runs, word that nobody wants it is looked for when it asks ([`Call::is_cancelled`]).

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
use crate::call::Call;
use crate::error::{ErrorKind, OperationError};
use crate::operation::{Operation, OperationSet, Operator};
use crate::payload::Payload;
use crate::program::WORKER;
use crate::protocol::{CallMessage, Encoding, FromWorker, Hello, Ready, VERSION};
use crate::reins::Reins;
use crate::threads::words;
use crate::warden::{self, WARDEN};

mod channel;
mod input;
mod output;

/// Set by [`run_if_worker`].
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// An answer may wait for the next call to be done only if that one has been as quick as this.
const QUICK: Duration = Duration::from_micros(50);

/// If this process was started as a worker of this very program, is one until it is told to stop;
/// then `main` should return what this returns. `operations` says what the pool of that name does.
///
/// Call it first in `main`, before arguments are looked at or threads started. A program that does
/// so is also its own [`crate::warden`].
pub fn run_if_worker(
    operations: impl FnOnce(&str) -> Option<Box<dyn OperationSet>>,
) -> Option<ExitCode> {
    // Also in a worker: its operations may have pools of their own.
    INSTALLED.store(true, Ordering::Relaxed);
    let mut arguments = std::env::args_os().skip(1).map_while(|word| word.into_string().ok());
    match (arguments.next().as_deref(), arguments.next()) {
        (Some(WARDEN), Some(mark)) => {
            warden::watch_over(io::stdin().lock(), &mark);
            Some(ExitCode::SUCCESS)
        }
        (Some(WORKER), Some(pool)) => Some(match operations(&pool) {
            Some(operations) => serve(&*operations),
            None => complain(&format!("this program has no operations for the pool `{pool}`")),
        }),
        _ => None,
    }
}

/// Whether `main` is known to begin with [`run_if_worker`].
pub(crate) fn is_installed() -> bool {
    INSTALLED.load(Ordering::Relaxed)
}

/// Is a worker until it is told to stop.
pub fn serve(operations: &dyn OperationSet) -> ExitCode {
    let done = Channel::take().and_then(|channel| Server::new(channel).serve(operations));
    match done {
        Ok(code) => code,
        // The pool is gone; nobody is left to tell.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        Err(error) => complain(&error.to_string()),
    }
}

fn complain(words: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "worker: {words}");
    ExitCode::FAILURE
}

/// A worker at work.
struct Server {
    input: Arc<Mutex<Input>>,
    output: Arc<Mutex<Output>>,
    look: Arc<dyn Fn() + Send + Sync>,
    operations: HashMap<String, Habit>,
}

/// What we know of an operation.
struct Habit {
    name: Arc<str>,
    idempotent: bool,
    /// How long it took lately.
    lately: Duration,
}

impl Habit {
    fn new(name: &str, idempotent: bool) -> Self {
        Self { name: name.into(), idempotent, lately: Duration::MAX }
    }

    /// Whether answers may wait until it is done. The pool takes the first call without an answer for
    /// the one that runs, and gives those behind it to others should we die: so this may only be a call
    /// that can be made twice, and it must be done soon.
    fn may_keep_waiting(&self) -> bool {
        self.idempotent && self.lately <= QUICK
    }

    fn took(&mut self, time: Duration) {
        let lately = if self.lately == Duration::MAX { QUICK * 8 } else { self.lately };
        self.lately = lately - lately / 8 + time / 8;
    }
}

impl Server {
    fn new(channel: Channel) -> Self {
        let output = Arc::new(Mutex::new(Output::new(channel.write)));
        let input = Arc::new(Mutex::new(Input::new(channel.read)));
        let (from, to) = (Arc::clone(&input), Arc::clone(&output));
        let look = Arc::new(move || {
            // Who looks at this moment looks for all.
            if let Ok(mut input) = from.try_lock() {
                let _ = input.look(&mut lock(&to));
            }
        });
        Self { input, output, look, operations: HashMap::new() }
    }

    fn serve(mut self, operations: &dyn OperationSet) -> io::Result<ExitCode> {
        let Some(hello) = lock(&self.input).hello()? else { return Ok(ExitCode::SUCCESS) };
        let mut operator = match open(operations).and_then(|operator| fits(&hello, operator)) {
            Ok(operator) => operator,
            Err(message) => {
                self.say(&FromWorker::Failed(message))?;
                return Ok(ExitCode::FAILURE);
            }
        };
        let about = operations.list();
        let habit = |one: &Operation| (one.name.clone(), Habit::new(&one.name, one.idempotent));
        self.operations = about.iter().map(habit).collect();
        self.ready(&hello, about)?;
        while let Some(call) = self.next()? {
            if !self.perform(&mut *operator, call)? {
                // What a panic left behind is not touched again.
                operator = open(operations).map_err(io::Error::other)?;
                self.say(&FromWorker::Retire)?;
            }
        }
        let _ = catch_unwind(AssertUnwindSafe(|| operator.close()));
        Ok(ExitCode::SUCCESS)
    }

    fn ready(&self, hello: &Hello, operations: Vec<Operation>) -> io::Result<()> {
        let binary = hello.encodings.contains(&Encoding::Binary);
        let encoding = if binary { Encoding::Binary } else { Encoding::Json };
        self.say(&FromWorker::Ready(Ready {
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

    fn say(&self, message: &FromWorker) -> io::Result<()> {
        let mut output = lock(&self.output);
        output.put(message)?;
        output.flush()
    }

    /// The next call; `None` if there will be none.
    fn next(&self) -> io::Result<Option<CallMessage>> {
        loop {
            let mut input = lock(&self.input);
            if let Some(call) = input.pop() {
                return Ok(Some(call));
            }
            let mut output = lock(&self.output);
            output.flush()?;
            if input.is_over() {
                return Ok(None);
            }
            drop(output);
            input.wait(&self.output)?;
        }
    }

    /// Performs a call and answers it; false if it panicked.
    fn perform(&mut self, operator: &mut dyn Operator, message: CallMessage) -> io::Result<bool> {
        let habit = self.operations.get(&message.operation);
        let name = habit.map_or_else(|| message.operation.as_str().into(), |it| it.name.clone());
        if !habit.is_some_and(Habit::may_keep_waiting) {
            lock(&self.output).flush()?;
        }
        let begun = Instant::now();
        let reins = Arc::new(Reins::default());
        reins.begin(1);
        lock(&self.input).current = Some((message.id, Arc::clone(&reins)));
        let deadline = message.timeout.and_then(|limit| begun.checked_add(limit));
        let report = message.progress.then(|| self.reporter(message.id));
        let call = Call::new(Arc::clone(&name), deadline, reins, report).looking(&self.look);
        let arguments = message.arguments;
        let performed = catch_unwind(AssertUnwindSafe(|| operator.perform(&call, arguments)));
        let sound = performed.is_ok();
        lock(&self.input).current = None;
        self.answer(
            message.id,
            performed.unwrap_or_else(|panic| {
                Err(OperationError(ErrorKind::Panic { message: words(&*panic) }))
            }),
        )?;
        match self.operations.get_mut(&message.operation) {
            Some(habit) if habit.idempotent => habit.took(begun.elapsed()),
            // Nobody should doubt that it is done.
            _ => lock(&self.output).flush()?,
        }
        Ok(sound)
    }

    fn answer(&self, id: u64, answer: Result<Payload, OperationError>) -> io::Result<()> {
        let mut output = lock(&self.output);
        match answer {
            Ok(value) => output.result(id, value),
            Err(OperationError(error)) => output.put(&FromWorker::Error { id, error }),
        }
    }

    fn reporter(&self, id: u64) -> Arc<dyn Fn(Payload) + Send + Sync> {
        let output = Arc::clone(&self.output);
        Arc::new(move |value| {
            let mut output = lock(&output);
            // Word that does not arrive is no reason to stop; the answer will notice.
            let _ = output.put(&FromWorker::Progress { id, value });
            let _ = output.flush();
        })
    }
}

fn open(operations: &dyn OperationSet) -> Result<Box<dyn Operator>, String> {
    match catch_unwind(AssertUnwindSafe(|| operations.open())) {
        Ok(opened) => opened.map_err(|error| error.to_string()),
        Err(panic) => Err(words(&*panic)),
    }
}

fn fits<T>(hello: &Hello, operator: T) -> Result<T, String> {
    match hello.version {
        VERSION => Ok(operator),
        other => Err(format!("the pool speaks version {other}, not {VERSION}")),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
