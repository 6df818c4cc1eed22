//! How a process ended.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// It exited with this code.
    Code(i32),
    /// The signal with this number ended it.
    Signal(i32),
}

impl ExitStatus {
    /// Decodes the kernel's wait status.
    pub fn from_wait_status(status: i32) -> Self {
        match status & 0x7f {
            0 => Self::Code((status >> 8) & 0xff),
            signal => Self::Signal(signal),
        }
    }

    /// Decodes a shell's `$?`: 129 to 192 are signals.
    pub fn from_shell_code(code: i32) -> Self {
        if (129..=192).contains(&code) { Self::Signal(code - 128) } else { Self::Code(code) }
    }

    /// The exit code as a shell reports it: 128 + N after signal N.
    pub fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

impl From<ExitStatus> for ExitStatus {
    fn from(status: ExitStatus) -> Self {
        Self::from_wait_status(status.into_raw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_statuses_and_shells_tell_the_same_exits() {
        assert_eq!(ExitStatus::from_wait_status(42 << 8), ExitStatus::Code(42));
        assert_eq!(ExitStatus::from_wait_status(9), ExitStatus::Signal(9));
        assert_eq!(ExitStatus::from_wait_status(139), ExitStatus::Signal(11), "with a core dump");
        assert_eq!(ExitStatus::from_shell_code(139), ExitStatus::Signal(11));
        assert_eq!(ExitStatus::from_shell_code(127), ExitStatus::Code(127));
        assert_eq!(ExitStatus::from_shell_code(255), ExitStatus::Code(255));
        assert_eq!((ExitStatus::Code(3).shell_code(), ExitStatus::Signal(9).shell_code()), (3, 137));
    }
}
