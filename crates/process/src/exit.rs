//! How a process ended.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// The signal with this number ended it.
    Signal(i32),
}

impl Exit {
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

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        Self::from_wait_status(status.into_raw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_statuses_and_shells_tell_the_same_exits() {
        assert_eq!(Exit::from_wait_status(42 << 8), Exit::Code(42));
        assert_eq!(Exit::from_wait_status(9), Exit::Signal(9));
        assert_eq!(Exit::from_wait_status(139), Exit::Signal(11), "with a core dump");
        assert_eq!(Exit::from_shell_code(139), Exit::Signal(11));
        assert_eq!(Exit::from_shell_code(127), Exit::Code(127));
        assert_eq!(Exit::from_shell_code(255), Exit::Code(255));
        assert_eq!((Exit::Code(3).shell_code(), Exit::Signal(9).shell_code()), (3, 137));
    }
}
