//! `completions`: prints a shell's completion script.

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::args::Cli;
use crate::exit::ExitCode;
use crate::output::{Output, OutputForm};

/// Prints the script for this shell.
pub fn run(shell: Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "longshore", &mut script);
    Output::new(OutputForm::Quiet).line(String::from_utf8(script)?.trim_end())?;
    Ok(ExitCode::Good)
}
