//! Sorts tasks by their dependencies. Pure.

use super::JobTask;
use crate::error::{WithHint, did_you_mean, usage};

/// The tasks, each after its dependencies; otherwise in the order of the file.
pub(super) fn sort(tasks: Vec<JobTask>) -> anyhow::Result<Vec<JobTask>> {
    check_names(&tasks)?;
    let mut left = tasks;
    let mut ordered: Vec<JobTask> = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let ready = |task: &JobTask| {
            task.after.iter().all(|id| ordered.iter().any(|known: &JobTask| known.id == *id))
        };
        match left.iter().position(ready) {
            Some(at) => ordered.push(left.remove(at)),
            None => {
                let cycle = cycle(&left).join(" → ");
                return Err(usage(format!("tasks wait for each other: {cycle}")));
            }
        }
    }
    Ok(ordered)
}

fn check_names(tasks: &[JobTask]) -> anyhow::Result<()> {
    let known = || tasks.iter().map(|task| task.id.as_str());
    for task in tasks {
        for id in &task.after {
            if known().any(|known| known == id) {
                continue;
            }
            let problem = format!("task `{}` waits for `{id}`, which is no task", task.id);
            return match did_you_mean(id, known()) {
                Some(suggestion) => Err(usage(format!("{problem}; did you mean `{suggestion}`?"))),
                None => Err(usage(problem))
                    .hint(format!("known tasks: {}", known().collect::<Vec<_>>().join(", "))),
            };
        }
    }
    Ok(())
}

/// A cycle among tasks that all depend on one of themselves.
fn cycle(left: &[JobTask]) -> Vec<String> {
    let mut path: Vec<&JobTask> = left.first().into_iter().collect();
    while let Some(last) = path.last() {
        let next = left.iter().find(|task| last.after.contains(&task.id));
        let Some(next) = next else { break };
        if let Some(at) = path.iter().position(|task| task.id == next.id) {
            let ids = path.iter().skip(at).chain([&next]).map(|task| task.id.clone());
            return ids.collect();
        }
        path.push(next);
    }
    left.iter().map(|task| task.id.clone()).collect()
}
