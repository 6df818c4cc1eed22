//! What a worker process runs, and its environment: directory, variables, priority, channel.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use longshore_process::this_program;

/// What a worker process runs.
///
/// ```
/// use longshore_pool::Program;
///
/// let program = Program::command("python3").arg("worker.py").nice(5).env("TZ", "UTC");
/// ```
#[derive(Debug, Clone)]
pub struct Program {
    executable: Executable,
    arguments: Vec<OsString>,
    wrapper: Vec<OsString>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) nice: Option<i32>,
    inherited: Inherited,
    set: BTreeMap<OsString, OsString>,
    pub(crate) channel: Channel,
    pub(crate) ping_every: Duration,
}

#[derive(Debug, Clone)]
enum Executable {
    This,
    Command(OsString),
}

/// Which of the pool's environment variables a worker inherits.
#[derive(Debug, Clone)]
enum Inherited {
    All,
    These(Vec<OsString>),
}

/// Environment variables for [`Program::inherit_only`]: what programs need to run at all, and library
/// paths of languages. A pool's environment may hold secrets, which do not concern its workers.
pub const BASIC_VARIABLES: [&str; 10] =
    ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "NODE_PATH", "PERL5LIB"];

/// What the messages are sent over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Channel {
    /// Standard input and output, which every language can use.
    #[default]
    Stdio,
    /// A socket, with its descriptor number in `LONGSHORE_WORKER_FD`. What the worker prints goes
    /// to the log and cannot corrupt the messages, even if its language cannot redirect standard
    /// output.
    Descriptor,
}

/// The variable that tells a worker how many levels of workers are above it.
const DEPTH_VARIABLE: &str = "LONGSHORE_WORKER_DEPTH";
/// Workers at this depth cannot start workers.
const MAX_DEPTH: u32 = 4;

/// The argument that turns this program into a worker; see [`crate::child`].
pub(crate) const WORKER_ARGUMENT: &str = "__longshore_worker";

impl Program {
    /// This same program. Its `main` must begin with [`crate::child::run_if_worker`].
    pub fn this() -> Self {
        Self::new(Executable::This)
    }

    /// A command, found in `PATH` as a shell does.
    pub fn command(program: impl Into<OsString>) -> Self {
        Self::new(Executable::Command(program.into()))
    }

    fn new(executable: Executable) -> Self {
        Self {
            executable,
            arguments: Vec::new(),
            wrapper: Vec::new(),
            directory: None,
            nice: None,
            inherited: Inherited::All,
            set: BTreeMap::new(),
            channel: Channel::Stdio,
            ping_every: Duration::from_secs(30),
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Runs it through a wrapper command, which gets the program as its last arguments:
    /// `["prlimit", "--nofile=64"]`, `["bwrap", …]`.
    #[must_use]
    pub fn wrapped_in<A: Into<OsString>>(mut self, wrapper: impl IntoIterator<Item = A>) -> Self {
        self.wrapper = wrapper.into_iter().map(Into::into).collect();
        self
    }

    /// Its working directory. Default: the pool's.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Its nice value, at most 19. Values below 0 need privileges.
    #[must_use]
    pub fn nice(mut self, nice: i32) -> Self {
        self.nice = Some(nice.clamp(-20, 19));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.set.insert(name.into(), value.into());
        self
    }

    /// Inherits only these variables, as [`BASIC_VARIABLES`]. By default it inherits all.
    #[must_use]
    pub fn inherit_only<N: Into<OsString>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.inherited = Inherited::These(names.into_iter().map(Into::into).collect());
        self
    }

    /// What the messages are sent over.
    #[must_use]
    pub fn channel(mut self, channel: Channel) -> Self {
        self.channel = channel;
        self
    }

    /// How long a worker may be silent before the pool pings it. Default: 30 s.
    #[must_use]
    pub fn ping_every(mut self, silence: Duration) -> Self {
        self.ping_every = silence.max(Duration::from_millis(1));
        self
    }

    /// The program's name, for messages.
    pub(crate) fn name(&self) -> String {
        match (&self.executable, self.wrapper.first()) {
            (_, Some(wrapper)) => wrapper.to_string_lossy().into_owned(),
            (Executable::This, None) => "this program".to_owned(),
            (Executable::Command(program), None) => program.to_string_lossy().into_owned(),
        }
    }

    /// The message for a program that cannot be run. For a missing directory the system reports the
    /// same error as for a missing program, so it is checked here.
    pub(crate) fn cannot_run(&self, cause: &dyn std::fmt::Display) -> String {
        let name = self.name();
        match &self.directory {
            Some(directory) if !directory.is_dir() => {
                format!("cannot run {name}: there is no directory {}", directory.display())
            }
            _ => format!("cannot run {name}: {cause}"),
        }
    }

    /// The command, without its channel.
    pub(crate) fn to_command(&self, pool: &str) -> io::Result<Command> {
        let mut command_line: Vec<OsString> = self.wrapper.clone();
        match &self.executable {
            Executable::Command(program) => command_line.push(program.clone()),
            Executable::This if !crate::child::is_installed() => {
                return Err(missing_run_if_worker());
            }
            Executable::This => {
                // In a wrapper `/proc/self/exe` would be the wrapper itself.
                let direct = self.wrapper.is_empty();
                command_line.push(if direct { this_program()? } else { std::env::current_exe()?.into() });
                command_line.extend([OsString::from(WORKER_ARGUMENT), OsString::from(pool)]);
            }
        }
        command_line.extend(self.arguments.iter().cloned());
        let mut command_line = command_line.into_iter();
        let mut command = Command::new(command_line.next().unwrap_or_default());
        command.args(command_line);
        if let Inherited::These(names) = &self.inherited {
            let own = |name: &OsString| Some((name.clone(), std::env::var_os(name)?));
            command.env_clear().envs(names.iter().filter_map(own));
        }
        // If this process is itself a worker, its own descriptor must not be inherited.
        command.env_remove("LONGSHORE_WORKER_FD").envs(&self.set);
        command.env(DEPTH_VARIABLE, next_depth()?.to_string());
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        Ok(command)
    }
}

fn missing_run_if_worker() -> io::Error {
    io::Error::other(
        "its `main` does not begin with `child::run_if_worker`: it would start itself without end",
    )
}

/// The depth of this process's workers. Without the limit, a program that starts itself and does
/// not recognise that it is a worker would recurse without end.
fn next_depth() -> io::Result<u32> {
    let own = std::env::var(DEPTH_VARIABLE).ok().and_then(|depth| depth.parse().ok()).unwrap_or(0);
    match own {
        0..MAX_DEPTH => Ok(own + 1),
        _ => Err(io::Error::other(format!(
            "this is a worker of a worker, {own} deep; does the program start itself for ever?"
        ))),
    }
}
