//! Child processes that leave nothing behind.
//!
//! A command is started as the leader of its own process group ([`ProcessGroup`]), so that a signal
//! reaches its children too. Its output is read within bounds ([`BoundedOutput`]), also while its
//! owner waits for something else ([`OutputReader`]). Its exit is awaited without reaping it
//! ([`ExitWatcher`]), so that the group can be killed before its id is reused.
//!
//! Two reapers find processes that left their group: an [`OrphanReaper`] after this program was
//! killed, and a [`Subreaper`] while this program runs. Another program learns from a
//! [`ProcessIdentity`] when this one and its children have ended.
//!
//! ```
//! use longshore_process::{BoundedOutput, ExitWatcher, OutputReader, ProcessGroup};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let mut command = tokio::process::Command::new("sh");
//! command.args(["-c", "echo hello; sleep 600 &"]).stdout(std::process::Stdio::piped());
//! let (mut child, group) = ProcessGroup::spawn(&mut command)?;
//! let mut output = BoundedOutput::new(0, 1000);
//! let mut reader = OutputReader::new(output.read_from(child.stdout.take()));
//! reader.read_during(ExitWatcher::new(group.leader()).wait()).await;
//! reader.finish().await;
//! group.release(); // kills `sleep`
//! assert!(child.wait().await?.success());
//! assert_eq!(output.text(|_| "…".to_owned()), "hello\n");
//! # Ok(())
//! # }
//! ```

mod exit;
mod exit_watcher;
mod identity;
mod orphan_reaper;
mod output;
mod privileges;
mod proc_fs;
mod process_group;
mod process_stat;
mod signal;
#[cfg(target_os = "linux")]
mod subreaper;

pub use exit::Exit;
pub use exit_watcher::{ExitWatcher, register_fd};
pub use identity::{InvalidIdentity, ProcessIdentity, ProcessState};
pub use orphan_reaper::{OrphanReaper, run_if_reaper};
pub use output::{BoundedOutput, OUTPUT_LINGER, OutputReader};
pub use privileges::{forbid_inspection, forbid_new_privileges};
pub use proc_fs::{resident_memory, this_program};
pub use process_group::{GroupCommand, ProcessGroup};
pub use process_stat::ProcessStat;
pub use rustix::process::{Pid, Signal};
pub use signal::{is_alive, signal_group, signal_process, to_pid};
#[cfg(target_os = "linux")]
pub use subreaper::Subreaper;
