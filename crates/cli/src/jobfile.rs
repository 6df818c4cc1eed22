//! Parses a job file: scripts with dependencies, in TOML. The whole file is checked before anything
//! is submitted, which `commands/submit_job.rs` does.

mod task;
mod topological_sort;

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use longshore::Priority;
use serde::Deserialize;
use toml::Spanned;

pub use task::JobTask;

use crate::error::{WithHint, did_you_mean, hinted, usage};
use task::TaskSpec;

/// A job: its tasks, each after its dependencies.
#[derive(Debug)]
pub struct JobPlan {
    /// Its name.
    pub name: String,
    /// Number of failures at which the rest is cancelled.
    pub max_fails: Option<u64>,
    /// The folder of the file, in which scripts are found and run.
    pub dir: PathBuf,
    /// The tasks.
    pub tasks: Vec<JobTask>,
}

/// The schema of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobFile {
    name: Option<String>,
    max_fails: Option<NonZeroU64>,
    #[serde(default)]
    defaults: TaskSpec,
    #[serde(default)]
    task: Vec<Spanned<TaskSpec>>,
}

/// Reads and checks a file.
pub fn read(path: &Path) -> anyhow::Result<JobPlan> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    let dir = path.canonicalize()?.parent().map(Path::to_path_buf).unwrap_or_default();
    let stem = path.file_stem().map_or_else(|| "job".into(), |stem| stem.to_string_lossy());
    parse(&text, &shown, &stem, dir)
}

fn parse(text: &str, shown: &str, stem: &str, dir: PathBuf) -> anyhow::Result<JobPlan> {
    let at = |offset: usize| format!("in {shown}, line {}", line_of(text, offset));
    let file: JobFile = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        explain(error.message()).context(at(offset))
    })?;
    let JobFile { name, max_fails, defaults, task } = file;
    defaults.check_defaults().with_context(|| format!("in {shown}, in [defaults]"))?;
    if task.is_empty() {
        return Err(usage(format!("{shown} has no tasks"))).hint("a task begins with [[task]]");
    }
    let mut tasks: Vec<JobTask> = Vec::new();
    for written in task {
        let offset = written.span().start;
        let task = written.into_inner().with_defaults(&defaults).and_then(JobTask::new);
        let task = task.with_context(|| at(offset))?;
        if tasks.iter().any(|known| known.id == task.id) {
            return Err(usage(format!("there are two tasks `{}`", task.id))).with_context(|| at(offset));
        }
        tasks.push(task);
    }
    let tasks = topological_sort::sort(tasks).with_context(|| format!("in {shown}"))?;
    let max_fails = max_fails.map(NonZeroU64::get);
    Ok(JobPlan { name: name.unwrap_or_else(|| stem.to_owned()), max_fails, dir, tasks })
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset.min(text.len())).unwrap_or_default();
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

/// The parser's message, with a suggestion for an unknown key.
fn explain(message: &str) -> anyhow::Error {
    let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let [given, known @ ..] = words.as_slice() else { return usage(message.trim().to_owned()) };
    if !message.starts_with("unknown field") {
        return usage(message.trim().to_owned());
    }
    match did_you_mean(given, known.iter().copied()) {
        Some(suggestion) => usage(format!("unknown key `{given}`, did you mean `{suggestion}`?")),
        None => {
            let known = format!("known keys: {}", known.join(", "));
            hinted(usage(format!("unknown key `{given}`")), known)
        }
    }
}

/// Parses a priority.
fn priority(text: &str) -> anyhow::Result<Priority> {
    text.parse().map_err(|error| anyhow!("{error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(text: &str) -> anyhow::Result<JobPlan> {
        parse(text, "job.toml", "job", "/data".into())
    }

    fn complaint(text: &str) -> String {
        let error = job(text).unwrap_err();
        let words = error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ");
        format!("{words} {error:?}")
    }

    #[test]
    fn defaults_hold_where_a_task_says_nothing() {
        let job = job("
            name = 'etl'
            [defaults]
            nthr = 2
            time = '1h'
            env = { LANG = 'C' }
            [[task]]
            id = 'b'
            script = 'b.sh'
            after = ['a']
            nthr = 4
            env = { MODE = 'fast' }
            [[task]]
            id = 'a'
            script = 'a.sh'
            array = '1-10%4'
        ");
        let job = job.unwrap();
        let seen: Vec<(&str, Option<u32>)> =
            job.tasks.iter().map(|task| (task.id.as_str(), task.call.nthr)).collect();
        assert_eq!(seen, [("a", Some(2)), ("b", Some(4))], "each after its dependencies");
        assert_eq!(job.tasks[1].call.env, ["LANG=C", "MODE=fast"]);
        assert_eq!(job.tasks[0].call.array.as_ref().unwrap().at_most, Some(4));
        assert_eq!(job.tasks[0].call.time.unwrap().0.as_secs(), 3600);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let task = "[[task]]\nid = 'a'\nscript = 'a.sh'\n";
        for (text, words) in [
            (format!("{task}nthrs = 2"), vec!["line 4", "unknown key `nthrs`", "`nthr`"]),
            (format!("{task}max_fails = 1"), vec!["`max_fails`", "whole job"]),
            (format!("{task}array = '5-1'"), vec!["line 4", "not a range"]),
            (format!("{task}time = 'long'"), vec!["line 4", "not a length of time"]),
            (format!("{task}\n{task}"), vec!["line 5", "two tasks `a`"]),
            ("[[task]]\nscript = 'a.sh'".to_owned(), vec!["line 1", "has no id"]),
            ("[[task]]\nid = 'a'".to_owned(), vec!["line 1", "has no script"]),
            (format!("[defaults]\nid = 'a'\n{task}"), vec!["[defaults]", "`id`"]),
            (
                format!("{task}after = ['fetsh']\n[[task]]\nid = 'fetch'\nscript = 'f'"),
                vec!["task `a`", "`fetsh`", "did you mean `fetch`"],
            ),
            (
                format!("{task}after = ['b']\n[[task]]\nid = 'b'\nscript = 'b'\nafter = ['a']"),
                vec!["wait for each other", "a → b → a"],
            ),
            (format!("{task}after = ['a']"), vec!["a → a"]),
            (String::new(), vec!["no tasks"]),
        ] {
            let error = complaint(&text);
            for word in words {
                assert!(error.contains(word), "{text}\nmisses {word}: {error}");
            }
        }
    }
}
