//! `man`: prints manual pages, made from the help texts.

use std::path::Path;

use anyhow::Context;
use clap::builder::Resettable;
use clap::{Command, CommandFactory};
use clap_mangen::Man as Page;
use clap_mangen::roff::{Roff, roman};

use crate::args::Cli;
use crate::args::meta::ManArgs;
use crate::error::{WithHint, suggestion, usage};
use crate::exit::ExitCode;
use crate::output::{Output, OutputForm};

/// Runs the command.
pub fn run(typed: &ManArgs) -> anyhow::Result<ExitCode> {
    let mut whole = Cli::command().disable_help_subcommand(true);
    // Gives the pages of commands their full names, as longshore-batch-run.
    whole.build();
    if let Some(dir) = &typed.out {
        let cannot = || format!("cannot write manual pages into {}", dir.display());
        std::fs::create_dir_all(dir).with_context(cannot)?;
        write(&whole, dir).with_context(cannot)?;
        return Ok(ExitCode::Good);
    }
    let text = page(find(&whole, &typed.command)?)?;
    Output::new(OutputForm::Quiet).line(String::from_utf8(text)?.trim_end())?;
    Ok(ExitCode::Good)
}

/// Writes the page of a command and those of its subcommands.
fn write(command: &Command, dir: &Path) -> std::io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    std::fs::write(dir.join(format!("{name}.1")), page(command)?)?;
    shown(command).try_for_each(|below| write(below, dir))
}

fn page(command: &Command) -> std::io::Result<Vec<u8>> {
    let notes = command.get_after_help().map(ToString::to_string);
    // Options that the short help hides would appear without their descriptions.
    let command = command.clone().mut_args(|arg| arg.hide_short_help(false));
    let page = Page::new(command.after_help(Resettable::Reset));
    let mut text = Vec::new();
    page.source(concat!("longshore ", env!("CARGO_PKG_VERSION"))).render(&mut text)?;
    if let Some(notes) = notes {
        section(&notes).to_writer(&mut text)?;
    }
    Ok(text)
}

/// Examples line by line: filled and justified commands can neither be read nor copied.
fn section(notes: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["NOTES"]).control("nf", []);
    for line in notes.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff
}

/// The command with this path.
fn find<'a>(whole: &'a Command, words: &[String]) -> anyhow::Result<&'a Command> {
    words.iter().try_fold(whole, |command, word| {
        let found = shown(command).find(|below| below.get_name() == word);
        let suggestion = suggestion(word, shown(command).map(Command::get_name));
        found
            .ok_or_else(|| usage(format!("there is no command `{word}`{suggestion}")))
            .hint("`longshore help` lists the commands")
    })
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set())
}
