//! Reports clap's errors in the form of all other errors: `error:`, and a `hint:` that names the
//! help of the command.

use std::ffi::OsString;

use clap::error::{ContextKind, ErrorKind};
use clap::{Command, CommandFactory};

use crate::args::Cli;
use crate::error::{hinted, report, usage};
use crate::exit::ExitCode;

/// Prints the help that was requested, or the error of invalid arguments.
pub fn ended(rendered: &clap::Error) -> ExitCode {
    let is_help = rendered.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if rendered.use_stderr() && !is_help {
        let command = command_of(Cli::command(), std::env::args_os().skip(1));
        let tip = script_tip(rendered.kind(), &command).or_else(|| pool_tip(rendered, &command));
        return report(&explain(&rendered.render().to_string(), &command, tip));
    }
    let _ = rendered.print();
    if is_help { ExitCode::Usage } else { ExitCode::Good }
}

/// The error in one line. Suggestions become part of the hint; the usage is in the command's help.
fn explain(rendered: &str, command: &str, tip: Option<String>) -> anyhow::Error {
    let mut paragraphs = rendered.split("\n\n").map(str::trim);
    let error = paragraphs.next().unwrap_or_default().trim_start_matches("error: ");
    let mut lines = error.lines().map(str::trim);
    let first = lines.next().unwrap_or_default();
    let more = lines.collect::<Vec<_>>().join(", ");
    let error = if more.is_empty() { first.to_owned() } else { format!("{first} {more}") };
    let tips = paragraphs.flat_map(str::lines).filter_map(|line| line.trim().strip_prefix("tip: "));
    let help = format!("`longshore{command} --help` shows what it takes");
    let hint = tip.into_iter().chain(tips.map(str::to_owned)).chain([help]).collect::<Vec<_>>().join("; ");
    hinted(usage(error), hint)
}

/// How to submit a file that was named where `submit` expects a kind.
fn script_tip(kind: ErrorKind, command: &str) -> Option<String> {
    if command != " submit" || kind != ErrorKind::MissingRequiredArgument {
        return None;
    }
    let named = std::env::args_os().skip_while(|arg| arg != "submit").nth(1)?;
    let is_file = std::path::Path::new(&named).is_file();
    is_file.then(|| format!("`longshore submit --script {}` submits the script", named.to_string_lossy()))
}

/// Why a command of batches takes no pool.
fn pool_tip(error: &clap::Error, command: &str) -> Option<String> {
    let unknown = error.get(ContextKind::InvalidArg)?.to_string();
    let is_pool = error.kind() == ErrorKind::UnknownArgument && unknown.starts_with("--dir");
    let words = "batches of rows are in a store: a pool has arrays, jobs and single scripts";
    (is_pool && command.starts_with(" batch")).then(|| words.to_owned())
}

/// The command as far as it was named: ` batch watch`.
fn command_of(mut root: Command, args: impl Iterator<Item = OsString>) -> String {
    // Options for all commands are added to each command only by this.
    root.build();
    let (mut command, mut path) = (&root, String::new());
    let mut args = args.map(|arg| arg.to_string_lossy().into_owned());
    while let Some(arg) = args.next() {
        if arg.starts_with('-') {
            if takes_next(command, &arg) {
                args.next();
            }
            continue;
        }
        let Some(named) = command.find_subcommand(&arg) else { break };
        path.extend([" ", named.get_name()]);
        command = named;
    }
    path
}

/// Whether the next argument is this option's value.
fn takes_next(command: &Command, option: &str) -> bool {
    let long = option.strip_prefix("--");
    let short = option.strip_prefix('-').filter(|rest| rest.chars().count() == 1);
    command.get_arguments().any(|known| {
        let is_it = long.is_some() && known.get_long() == long
            || short.is_some() && known.get_short() == short.and_then(|short| short.chars().next());
        is_it && known.get_action().takes_values()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(line: &str) -> String {
        command_of(Cli::command(), line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn the_help_that_is_named_is_that_of_the_command_that_was_meant() {
        for (line, command) in [
            ("", ""),
            ("bath list", ""),
            ("-x", ""),
            ("batch watch --jsn", " batch watch"),
            ("batch --json watch b", " batch watch"),
            ("--store batch queue list now", " queue list"),
            ("--store=x queue set batch --weight 0", " queue set"),
            ("submit batch run", " submit"),
        ] {
            assert_eq!(meant(line), command, "{line}");
        }
    }

    #[test]
    fn what_was_said_in_paragraphs_is_an_error_and_a_hint() {
        let rendered = "error: these are missing:\n  <A>\n  <B>\n\n  tip: a similar one exists: 'c'\n\n\
                    Usage: longshore x\n\nFor more information, try '--help'.\n";
        let error = explain(rendered, " x", None);
        assert_eq!(error.to_string(), "these are missing: <A>, <B>");
    }
}
