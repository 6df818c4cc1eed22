//! Which task comes behind which. Pure.

use super::Task;
use crate::error::{WithHint, did_you_mean, usage};

/// The tasks, each behind all that it waits for; else in the order of the file.
pub(super) fn ordered(tasks: Vec<Task>) -> anyhow::Result<Vec<Task>> {
    check_names(&tasks)?;
    let mut left = tasks;
    let mut ordered: Vec<Task> = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let ready = |task: &Task| {
            task.after.iter().all(|id| ordered.iter().any(|known: &Task| known.id == *id))
        };
        match left.iter().position(ready) {
            Some(at) => ordered.push(left.remove(at)),
            None => {
                let circle = circle(&left).join(" → ");
                return Err(usage(format!("tasks wait for each other: {circle}")));
            }
        }
    }
    Ok(ordered)
}

fn check_names(tasks: &[Task]) -> anyhow::Result<()> {
    let known = || tasks.iter().map(|task| task.id.as_str());
    for task in tasks {
        for id in &task.after {
            if known().any(|known| known == id) {
                continue;
            }
            let problem = format!("task `{}` waits for `{id}`, which is no task", task.id);
            return match did_you_mean(id, known()) {
                Some(meant) => Err(usage(format!("{problem}; did you mean `{meant}`?"))),
                None => Err(usage(problem))
                    .hint(format!("there are: {}", known().collect::<Vec<_>>().join(", "))),
            };
        }
    }
    Ok(())
}

/// Among tasks that all wait for one of themselves: the way from one of them back to it.
fn circle(left: &[Task]) -> Vec<String> {
    let mut way: Vec<&Task> = left.first().into_iter().collect();
    while let Some(last) = way.last() {
        let next = left.iter().find(|task| last.after.contains(&task.id));
        let Some(next) = next else { break };
        if let Some(at) = way.iter().position(|task| task.id == next.id) {
            let ids = way.iter().skip(at).chain([&next]).map(|task| task.id.clone());
            return ids.collect();
        }
        way.push(next);
    }
    left.iter().map(|task| task.id.clone()).collect()
}
