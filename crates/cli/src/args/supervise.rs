//! Arguments of `longshore supervise`.

use clap::Args;

/// Keep worker processes alive.
#[derive(Debug, Args)]
#[command(after_help = "The configuration names the processes in sections [supervise.workers.NAME]:

  [supervise.workers.mail]
  kinds = [\"mail\"]
  count = 2

Signals: TERM and INT drain all processes and exit, a second one at once; HUP replaces all, one by one,
as `longshore workers refresh` does; TTIN adds a process to each section, TTOU removes one.")]
pub struct SuperviseArgs {}
