//! Programs that the configuration counts on: worker processes, and commands of a queue system.

use std::path::{Path, PathBuf};

use longshore_dispatch::system::BaseSystem;

use super::finding::Finding;
use crate::settings::{Run, Settings};

/// Looks for all of them.
pub(super) fn look(settings: &Settings) -> Vec<Finding> {
    let mut all = vec![scheduler(settings.dispatch.qsys.base)];
    let pools = settings
        .pools
        .iter()
        .map(|pool| (format!("workers.{}.command", pool.name), pool.command.first(), &pool.dir));
    let supervised = settings.supervise.workers.iter().filter_map(|worker| match &worker.run {
        Run::Longshore(_) => None,
        Run::Command(words) => {
            let key = format!("supervise.workers.{}.command", worker.shape.name);
            Some((key, words.first(), &worker.dir))
        }
    });
    for (key, program, dir) in pools.chain(supervised) {
        let Some(program) = program else { continue };
        all.push(match find(program, dir) {
            Some(path) => Finding::good("programs", format!("`{key}` is {}", path.display())),
            None => Finding::wrong(
                "programs",
                format!("`{key}` names `{program}`, which is not there or may not be run"),
                format!("install it, or write its path; it runs in {}", dir.display()),
            ),
        });
    }
    all
}

/// The commands by which jobs are started, seen and ended.
fn commands(system: BaseSystem) -> &'static [&'static str] {
    match system {
        BaseSystem::Local => &[],
        BaseSystem::Slurm => &["sbatch", "squeue", "scancel"],
        BaseSystem::Sge | BaseSystem::Pbs => &["qsub", "qstat", "qdel"],
        BaseSystem::Lsf => &["bsub", "bjobs", "bkill"],
    }
}

/// A command that only this system has: `qsub` is two systems'.
fn tell_tale(system: BaseSystem) -> Option<&'static str> {
    match system {
        BaseSystem::Local => None,
        BaseSystem::Slurm => Some("sbatch"),
        BaseSystem::Sge => Some("qconf"),
        BaseSystem::Pbs => Some("pbsnodes"),
        BaseSystem::Lsf => Some("bsub"),
    }
}

fn scheduler(system: BaseSystem) -> Finding {
    let here = Path::new(".");
    let missing = |wanted: BaseSystem| -> Vec<&str> {
        commands(wanted).iter().copied().filter(|name| find(name, here).is_none()).collect()
    };
    let lacking = missing(system);
    if !lacking.is_empty() {
        let says = format!("{system} starts workers, but {} is not found", lacking.join(", "));
        let mend = "add its folder to PATH (module load …), or choose another `dispatch.qsys`";
        return Finding::wrong("scheduler", says, mend);
    }
    let others = BaseSystem::ALL.into_iter().filter(|other| *other != system);
    let others: Vec<&str> = others
        .filter(|other| tell_tale(*other).is_some_and(|name| find(name, here).is_some()))
        .map(BaseSystem::name)
        .collect();
    let beside = match others.as_slice() {
        [] => String::new(),
        some => format!("; there is also {}", some.join(" or ")),
    };
    Finding::good("scheduler", format!("{system} can start workers{beside}"))
}

/// Where a program is, as a shell in this folder would find it.
fn find(program: &str, dir: &Path) -> Option<PathBuf> {
    let candidates: Vec<PathBuf> = match program.contains('/') {
        true => vec![dir.join(program)],
        false => {
            let path = std::env::var_os(crate::env::PATH).unwrap_or_default();
            std::env::split_paths(&path).map(|folder| folder.join(program)).collect()
        }
    };
    let may_run = |path: &PathBuf| {
        path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
    };
    candidates.into_iter().find(may_run)
}
