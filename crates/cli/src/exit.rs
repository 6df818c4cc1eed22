//! The exit codes, a contract with scripts: their meaning never changes.

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCode {
    /// Success.
    Good,
    /// An error.
    Error,
    /// An invalid command line.
    Usage,
    /// The unit or batch that was waited for ended with failures.
    Failures,
    /// The unit or batch that was waited for was cancelled or paused.
    Cancelled,
    /// A submission was refused: a bound was reached, or the tenant is suspended.
    Refused,
    /// A signal interrupted it.
    Interrupted,
    /// The exit code of a program that was waited for.
    Program(u8),
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(match code {
            ExitCode::Good => 0,
            ExitCode::Error => 1,
            ExitCode::Usage => 2,
            ExitCode::Failures => 3,
            ExitCode::Cancelled => 4,
            ExitCode::Refused => 5,
            ExitCode::Interrupted => 130,
            ExitCode::Program(code) => code,
        })
    }
}
