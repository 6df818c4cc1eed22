//! `#LONGSHORE` lines of a script: options of `submit`, which the command line overrides.

use std::ffi::OsString;
use std::io::Read;

use anyhow::Context;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, CommandFactory, Parser};

use super::submit_script::script_path;
use crate::args::submit::SubmitArgs;
use crate::args::{Cli, CliCommand};
use crate::error::{WithHint, usage};

/// The beginning of a directive.
const MARK: &str = "#LONGSHORE";

/// Options that a directive may set.
const ALLOWED: [&str; 23] = [
    "nthr",
    "mem",
    "time",
    "name",
    "array",
    "each_line",
    "max_fails",
    "retries",
    "crash_limit",
    "output",
    "stderr",
    "env",
    "sentinels",
    "limit",
    "cwd",
    "snapshot",
    "pin",
    "resource",
    "priority",
    "delay",
    "deadline",
    "key",
    "qsys",
];

/// Reads the script, from stdin if so typed, and adds the options of its directives to those typed.
pub fn apply(
    mut typed: SubmitArgs,
    command_line: impl Iterator<Item = OsString>,
) -> anyhow::Result<SubmitArgs> {
    if typed.script.script.is_none() {
        return Ok(typed);
    }
    let (shown, text) = if typed.script.is_stdin() {
        if typed.script.each_line.as_deref() == Some("-") {
            return Err(usage("--script - and --each-line - both read stdin"));
        }
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).context("cannot read the script from stdin")?;
        if text.trim().is_empty() {
            return Err(usage("the script from stdin is empty"));
        }
        ("stdin".to_owned(), text)
    } else {
        let dir = std::env::current_dir().context("there is no working directory")?;
        let path = script_path(&typed.script, &dir)?;
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read script {}", path.display()))?;
        (path.display().to_string(), String::from_utf8_lossy(&bytes).into_owned())
    };
    let stdin_text = typed.script.is_stdin().then(|| text.clone());
    let directives = directives(&text)?;
    if !directives.is_empty() {
        typed = merge(&directives, command_line.collect())
            .with_context(|| format!("in the {MARK} lines of {shown}"))?;
    }
    typed.script.stdin_text = stdin_text;
    Ok(typed)
}

/// The words of the directives: in the comments before the first command, as of `#SBATCH`.
fn directives(text: &str) -> anyhow::Result<Vec<String>> {
    let head = text.lines().take_while(|line| line.trim().is_empty() || line.starts_with('#'));
    let mut words = Vec::new();
    for line in head {
        let Some(rest) = line.strip_prefix(MARK) else { continue };
        if !rest.starts_with([' ', '\t']) {
            let shown = line.trim_end();
            return Err(usage(format!("`{shown}` is no directive"))).hint(format!("as `{MARK} --nthr 4`"));
        }
        words
            .extend(split_words(rest).map_err(|problem| usage(format!("`{}`: {problem}", line.trim_end())))?);
    }
    Ok(words)
}

/// Splits at spaces. Single and double quotes keep spaces; there are no escapes.
fn split_words(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in text.chars() {
        match quote {
            Some(end) if c == end => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            // The rest is a comment.
            None if c == '#' && word.is_none() => break,
            None => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed".into());
    }
    words.extend(word);
    Ok(words)
}

/// Parses the command line again, with the directives' options that it does not have.
fn merge(directives: &[String], command_line: Vec<OsString>) -> anyhow::Result<SubmitArgs> {
    let typed = Cli::command().try_get_matches_from(&command_line)?;
    let typed = typed.subcommand_matches("submit").context("the command is not `submit`")?;
    let added = options(directives, typed)?;
    let end = command_line.iter().position(|arg| arg == "--").unwrap_or(command_line.len());
    let (before, after) = command_line.split_at(end);
    let all = before.iter().cloned().chain(added).chain(after.iter().cloned());
    match Cli::try_parse_from(all).map_err(one_line)?.command {
        CliCommand::Submit(submit) => Ok(*submit),
        _ => Err(usage("the command is not `submit`")),
    }
}

/// The options of the directives as words, except the options that were typed.
fn options(directives: &[String], typed: &ArgMatches) -> anyhow::Result<Vec<OsString>> {
    // Options of `submit` exclude the program's own `--store`. A script is required by most options.
    let command = Command::new(MARK).no_binary_name(true).disable_help_flag(true);
    let command = SubmitArgs::augment_args(command.arg(Arg::new("store").long("store")));
    let words = ["--script=-"].into_iter().chain(directives.iter().map(String::as_str));
    let given = command.clone().try_get_matches_from(words).map_err(one_line)?;
    let is_given = |matches: &ArgMatches, id: &str| {
        matches.value_source(id).is_some_and(|source| source == ValueSource::CommandLine)
    };
    let mut options = Vec::new();
    for arg in command.get_arguments().filter(|arg| is_given(&given, arg.get_id().as_str())) {
        let id = arg.get_id().as_str();
        if id == "script" {
            continue;
        }
        let Some(long) = arg.get_long().filter(|_| ALLOWED.contains(&id)) else {
            return Err(usage(format!("`{id}` cannot be set in a script")))
                .hint(format!("a script may set --{}", ALLOWED.map(|id| id.replace('_', "-")).join(", --")));
        };
        if is_given(typed, id) {
            continue;
        }
        if !arg.get_action().takes_values() {
            options.push(format!("--{long}").into());
            continue;
        }
        for value in given.get_raw(id).into_iter().flatten() {
            let mut option = OsString::from(format!("--{long}="));
            option.push(value);
            options.push(option);
        }
    }
    Ok(options)
}

/// The first paragraph of clap's error.
fn one_line(error: clap::Error) -> anyhow::Error {
    let rendered = error.render().to_string();
    let first = rendered.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first.trim_start_matches("error: ").split_whitespace().collect();
    usage(words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(script: &str, typed: &[&str]) -> anyhow::Result<SubmitArgs> {
        let start = ["longshore", "submit", "--script", "job.sh"];
        let line = start.iter().chain(typed).map(OsString::from);
        merge(&directives(script)?, line.collect())
    }

    #[test]
    fn directives_are_options_that_the_command_line_overrides() {
        let script = "#!/bin/bash\n# a job\n\n#LONGSHORE --nthr 4 --mem 8GB  # as much as that\n\
                      #LONGSHORE --name='my job' --env A=1 --env B=\"x y\"\necho\n#LONGSHORE --nthr 99\n";
        let submit = merged(script, &["--mem", "1GB", "--wait", "--", "--nthr", "7"]).unwrap();
        let call = submit.script;
        assert_eq!((call.nthr, call.mem.unwrap().0), (Some(4), 1_000_000_000));
        assert_eq!(call.name.as_deref(), Some("my job"));
        assert_eq!(call.env, ["A=1", "B=x y"]);
        assert_eq!(call.args, ["--nthr", "7"], "arguments of the script are left alone");
        assert!(submit.wait);
    }

    #[test]
    fn a_wrong_directive_is_named() {
        for (line, words) in [
            ("#LONGSHORE --nthr none", "invalid value 'none'"),
            ("#LONGSHORE --nthrs 4", "unexpected argument '--nthrs'"),
            ("#LONGSHORE --wait", "`wait` cannot be set in a script"),
            ("#LONGSHORE --script x", "cannot be used multiple times"),
            ("#LONGSHORE-nthr 4", "is no directive"),
            ("#LONGSHORE --name 'a", "a quote is not closed"),
            ("#LONGSHORE exec", "cannot be used with"),
        ] {
            let error = merged(line, &[]).unwrap_err();
            assert!(error.to_string().contains(words), "{line}: {error}");
        }
    }
}
