//! Checks programs that the configuration names: worker processes, and commands of a queue system.

use std::path::{Path, PathBuf};

use longshore_dispatch::system::BaseSystem;

use super::check_result::CheckResult;
use crate::settings::{Settings, SupervisedCommand};

/// Checks all programs.
pub(super) fn check(settings: &Settings) -> Vec<CheckResult> {
    let mut all = vec![scheduler(settings.dispatch.qsys.base)];
    let pools = settings
        .pools
        .iter()
        .map(|pool| (format!("workers.{}.command", pool.name), pool.command.first(), &pool.dir));
    let supervised = settings.supervise.workers.iter().filter_map(|worker| match &worker.run {
        SupervisedCommand::Longshore(_) => None,
        SupervisedCommand::Command(words) => {
            let key = format!("supervise.workers.{}.command", worker.spec.name);
            Some((key, words.first(), &worker.dir))
        }
    });
    for (key, program, dir) in pools.chain(supervised) {
        let Some(program) = program else { continue };
        all.push(match find(program, dir) {
            Some(path) => CheckResult::good("programs", format!("`{key}` is {}", path.display())),
            None => CheckResult::wrong(
                "programs",
                format!("`{key}` names `{program}`, which is missing or not executable"),
                format!("install it, or write its path; it runs in {}", dir.display()),
            ),
        });
    }
    all
}

/// The commands that submit, list and cancel jobs.
fn commands(system: BaseSystem) -> &'static [&'static str] {
    match system {
        BaseSystem::Local => &[],
        BaseSystem::Slurm => &["sbatch", "squeue", "scancel"],
        BaseSystem::Sge | BaseSystem::Pbs => &["qsub", "qstat", "qdel"],
        BaseSystem::Lsf => &["bsub", "bjobs", "bkill"],
        BaseSystem::Kubernetes => &["kubectl"],
    }
}

/// A command that only this system has: Grid Engine and PBS both have `qsub`.
fn marker_command(system: BaseSystem) -> Option<&'static str> {
    match system {
        BaseSystem::Local => None,
        BaseSystem::Slurm => Some("sbatch"),
        BaseSystem::Sge => Some("qconf"),
        BaseSystem::Pbs => Some("pbsnodes"),
        BaseSystem::Lsf => Some("bsub"),
        BaseSystem::Kubernetes => Some("kubectl"),
    }
}

fn scheduler(system: BaseSystem) -> CheckResult {
    let here = Path::new(".");
    let missing = |wanted: BaseSystem| -> Vec<&str> {
        commands(wanted).iter().copied().filter(|name| find(name, here).is_none()).collect()
    };
    let lacking = missing(system);
    if !lacking.is_empty() {
        let says = format!("{system} starts workers, but {} is not found", lacking.join(", "));
        let mend = "add its folder to PATH (module load …), or choose another `dispatch.qsys`";
        return CheckResult::wrong("scheduler", says, mend);
    }
    let others = BaseSystem::ALL.into_iter().filter(|other| *other != system);
    let others: Vec<&str> = others
        .filter(|other| marker_command(*other).is_some_and(|name| find(name, here).is_some()))
        .map(BaseSystem::name)
        .collect();
    let beside = match others.as_slice() {
        [] => String::new(),
        some => format!("; also installed: {}", some.join(" or ")),
    };
    CheckResult::good("scheduler", format!("{system} can start workers{beside}"))
}

/// The path of a program, as a shell in this folder would find it.
fn find(program: &str, dir: &Path) -> Option<PathBuf> {
    let candidates: Vec<PathBuf> = match program.contains('/') {
        true => vec![dir.join(program)],
        false => {
            let path = std::env::var_os(crate::env::PATH).unwrap_or_default();
            std::env::split_paths(&path).map(|folder| folder.join(program)).collect()
        }
    };
    let may_run =
        |path: &PathBuf| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    candidates.into_iter().find(may_run)
}
