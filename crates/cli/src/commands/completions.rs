//! `completions`: what a shell needs to complete our commands and options.

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::args::Cli;
use crate::exit::ExitCode;
use crate::output::{Form, Output};

/// Prints the script for this shell.
pub fn run(shell: Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "longshore", &mut script);
    Output::new(Form::Quiet).line(String::from_utf8(script)?.trim_end())?;
    Ok(ExitCode::Good)
}
