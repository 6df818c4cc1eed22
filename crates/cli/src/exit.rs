//! The exit codes, a contract with scripts: they never change their meaning.

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCode {
    /// As asked.
    Good,
    /// Something did not work.
    Error,
    /// It was called in a way that makes no sense.
    Usage,
    /// The unit or batch that was waited for ended with failures.
    Failures,
    /// The unit or batch that was waited for was cancelled or paused.
    Cancelled,
    /// What was sent was refused: a bound was reached, or the tenant is suspended.
    Refused,
    /// A signal ended it before it was through.
    Interrupted,
    /// The program that was waited for ended with this code, and so do we.
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
