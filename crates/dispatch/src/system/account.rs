//! Small steps that every system takes around its commands.

use std::collections::BTreeMap;

use super::error::SystemError;
use super::job::Job;
use super::state::{JobId, JobState};

/// Makes the folders of a job's output: a scheduler fails such a job, some of them without a word.
pub(super) fn prepare(job: &Job) -> Result<(), SystemError> {
    let files = [&job.stdout, &job.stderr].into_iter().flatten();
    for folder in files.filter_map(|file| file.parent()) {
        std::fs::create_dir_all(folder)
            .map_err(|error| SystemError::io(format!("no folder {}", folder.display()), error))?;
    }
    Ok(())
}

/// The state of each of `ids`: what was seen of it, tasks of an array together, or that it is gone.
pub(super) fn states(
    ids: &[JobId],
    seen: impl IntoIterator<Item = (JobId, JobState)>,
) -> BTreeMap<JobId, JobState> {
    let mut states: BTreeMap<JobId, JobState> =
        ids.iter().map(|id| (id.clone(), JobState::Gone)).collect();
    for (id, state) in seen {
        if let Some(known) = states.get_mut(&id) {
            *known = std::mem::replace(known, JobState::Gone).with(state);
        }
    }
    states
}
