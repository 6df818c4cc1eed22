//! `longshore supervise` as typed.

use clap::Args;

/// Keep worker processes alive.
#[derive(Debug, Args)]
#[command(
    after_help = "What is kept alive stands in the configuration, in sections [supervise.workers.NAME]:

  [supervise.workers.mail]
  kinds = [\"mail\"]
  count = 2

Signals: TERM and INT drain all and end, a second one at once; HUP replaces all, one after the other,
as `longshore workers refresh` does; TTIN adds a process to each section, TTOU takes one away."
)]
pub struct Supervise {}
