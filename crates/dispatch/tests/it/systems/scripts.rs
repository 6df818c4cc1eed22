//! Job scripts, compared literally.

use std::num::NonZeroU32;
use std::time::Duration;

use longshore_dispatch::system::{
    BaseSystem, Job, JobArray, JobAttributes, JobProgram, PbsDialect, SystemConfig, SystemError, open_system,
};

fn script(base: BaseSystem, job: &Job) -> Result<String, SystemError> {
    open_system(base, SystemConfig::default()).script(job)
}

fn torque(job: &Job) -> Result<String, SystemError> {
    let site = SystemConfig { dialect: Some(PbsDialect::Torque), ..SystemConfig::default() };
    open_system(BaseSystem::Pbs, site).script(job)
}

/// A job with everything that all systems support.
fn job() -> Job {
    let program = JobProgram::Script { path: "/home/a b/run.sh".into(), args: vec!["it's".to_owned()] };
    let mut job = Job::new("fit 7", program, "/home/a b");
    job.threads = NonZeroU32::new(4).unwrap();
    job.memory = Some(4001);
    job.time = Some(Duration::from_secs(26 * 3600 + 61));
    job.stdout = Some("/logs/7.out".into());
    job.env = [("MODE".to_owned(), "a\nb".to_owned())].into();
    job.attributes = JobAttributes {
        email: Some("a@example.org".to_owned()),
        queue: Some("long".to_owned()),
        ..JobAttributes::default()
    };
    job.options = vec!["-x --verbatim \"as it is\"".to_owned()];
    job
}

/// The same job as an array, with separate error files.
fn array() -> Job {
    let throttle = NonZeroU32::new(10);
    let array = Some(JobArray { first: 1, last: 100, throttle });
    Job { array, stderr: Some("/logs/7.err".into()), ..job() }
}

const BODY: &str = "cd -- '/home/a b' || exit 126\n\
                    export MODE=$'a\\012b'\n\
                    exec bash '/home/a b/run.sh' 'it'\\''s'\n";

#[test]
fn slurm_is_told_in_its_own_words() {
    let top = "#!/bin/bash\n\
               #SBATCH --job-name=fit_7\n\
               #SBATCH --no-requeue\n\
               #SBATCH --nodes=1\n\
               #SBATCH --ntasks=1\n\
               #SBATCH --cpus-per-task=4\n\
               #SBATCH --mem=4001M\n\
               #SBATCH --time=1-02:01:01\n\
               #SBATCH --output=OUT\n\
               #SBATCH --partition=long\n\
               #SBATCH --mail-user=a@example.org\n\
               #SBATCH --mail-type=FAIL\n";
    let end = "#SBATCH -x --verbatim \"as it is\"\n";
    let wanted = format!("{}{end}{BODY}", top.replace("OUT", "/logs/7.out"));
    assert_eq!(script(BaseSystem::Slurm, &job()).unwrap(), wanted);
    let top = top.replace("OUT", "/dev/null");
    let wanted = format!(
        "{top}#SBATCH --array=1-100%10\n{end}\
         export LONGSHORE_ARRAY_INDEX=\"$SLURM_ARRAY_TASK_ID\"\n\
         exec >/logs/7.out.\"$LONGSHORE_ARRAY_INDEX\" 2>/logs/7.err.\"$LONGSHORE_ARRAY_INDEX\"\n{BODY}"
    );
    assert_eq!(script(BaseSystem::Slurm, &array()).unwrap(), wanted);
}

#[test]
fn grid_engine_is_told_in_its_own_words() {
    let top = "#!/bin/bash\n\
               #$ -N fit_7\n\
               #$ -S /bin/bash\n\
               #$ -cwd\n\
               #$ -V\n\
               #$ -r n\n\
               #$ -pe smp 4\n\
               #$ -l h_vmem=1001M\n\
               #$ -l h_rt=93661\n\
               #$ -o OUT\n\
               #$ -j y\n\
               #$ -q long\n\
               #$ -M a@example.org\n\
               #$ -m a\n";
    let end = "#$ -x --verbatim \"as it is\"\n";
    let wanted = format!("{}{end}{BODY}", top.replace("OUT", "/logs/7.out"));
    assert_eq!(script(BaseSystem::Sge, &job()).unwrap(), wanted);
    let top = top.replace("OUT", "/dev/null");
    let wanted = format!(
        "{top}#$ -t 1-100\n#$ -tc 10\n{end}\
         export LONGSHORE_ARRAY_INDEX=\"$SGE_TASK_ID\"\n\
         exec >/logs/7.out.\"$LONGSHORE_ARRAY_INDEX\" 2>/logs/7.err.\"$LONGSHORE_ARRAY_INDEX\"\n{BODY}"
    );
    assert_eq!(script(BaseSystem::Sge, &array()).unwrap(), wanted);
}

#[test]
fn a_site_names_its_own_parallel_environment() {
    let job = Job { options: vec!["-pe openmp 4".to_owned()], ..job() };
    let script = script(BaseSystem::Sge, &job).unwrap();
    assert!(script.contains("#$ -pe openmp 4\n") && !script.contains("smp"), "{script}");
}

#[test]
fn openpbs_is_told_in_its_own_words() {
    let top = "#!/bin/bash\n\
               #PBS -N fit_7\n\
               #PBS -S /bin/bash\n\
               #PBS -V\n\
               #PBS -r n\n\
               #PBS -l select=1:ncpus=4:mem=4001mb\n\
               #PBS -l walltime=26:01:01\n";
    let end = "#PBS -o /dev/null\n\
               #PBS -j oe\n\
               #PBS -q long\n\
               #PBS -M a@example.org\n\
               #PBS -m a\n\
               #PBS -x --verbatim \"as it is\"\n";
    let wanted = format!("{top}{end}exec >/logs/7.out 2>&1\n{BODY}");
    assert_eq!(script(BaseSystem::Pbs, &job()).unwrap(), wanted);
    let wanted = format!(
        "{top}#PBS -J 1-100%10\n{end}\
         export LONGSHORE_ARRAY_INDEX=\"$PBS_ARRAY_INDEX\"\n\
         exec >/logs/7.out.\"$LONGSHORE_ARRAY_INDEX\" 2>/logs/7.err.\"$LONGSHORE_ARRAY_INDEX\"\n{BODY}"
    );
    assert_eq!(script(BaseSystem::Pbs, &array()).unwrap(), wanted);
}

#[test]
fn torque_is_told_in_its_own_words() {
    let wanted = format!(
        "#!/bin/bash\n\
         #PBS -N fit_7\n\
         #PBS -S /bin/bash\n\
         #PBS -V\n\
         #PBS -r n\n\
         #PBS -l nodes=1:ppn=4\n\
         #PBS -l mem=4001mb\n\
         #PBS -l walltime=26:01:01\n\
         #PBS -t 1-100%10\n\
         #PBS -o /dev/null\n\
         #PBS -j oe\n\
         #PBS -q long\n\
         #PBS -M a@example.org\n\
         #PBS -m a\n\
         #PBS -x --verbatim \"as it is\"\n\
         export LONGSHORE_ARRAY_INDEX=\"$PBS_ARRAYID\"\n\
         exec >/logs/7.out.\"$LONGSHORE_ARRAY_INDEX\" 2>/logs/7.err.\"$LONGSHORE_ARRAY_INDEX\"\n{BODY}"
    );
    assert_eq!(torque(&array()).unwrap(), wanted);
}

#[test]
fn kubernetes_is_told_in_its_own_words() {
    let options = ["--image=registry.example/longshore:1", "--gpus=2", "--grace-period=90"];
    let options = options.map(str::to_owned).into();
    let job = Job { options, attributes: JobAttributes::default(), ..job() };
    let manifest: serde_json::Value =
        serde_json::from_str(&script(BaseSystem::Kubernetes, &job).unwrap()).unwrap();
    let labels = serde_json::json!({ "app.kubernetes.io/managed-by": "longshore" });
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    let wanted = serde_json::json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "generateName": "fit-7-", "labels": labels, "annotations": { "longshore/name": "fit 7" } },
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": 3600,
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "restartPolicy": "Never",
                    "activeDeadlineSeconds": 93_661,
                    "automountServiceAccountToken": false,
                    "enableServiceLinks": false,
                    "terminationGracePeriodSeconds": 90,
                    "securityContext": { "runAsUser": user, "runAsGroup": group },
                    "containers": [{
                        "name": "longshore",
                        "image": "registry.example/longshore:1",
                        // The kubelet makes `$` of `$$`.
                        "command": ["bash", "-c", format!("#!/bin/bash\nexec >/logs/7.out 2>&1\n{BODY}").replace('$', "$$")],
                        "resources": {
                            "requests": { "cpu": "4", "memory": "4001Mi" },
                            "limits": { "memory": "4001Mi", "nvidia.com/gpu": "2" },
                        },
                    }],
                },
            },
        },
    });
    assert_eq!(manifest, wanted);
    let refused = |job: &Job| script(BaseSystem::Kubernetes, job).unwrap_err().to_string();
    let message = refused(&Job { options: Vec::new(), ..job.clone() });
    assert!(message.ends_with("the image is missing; name it with --image= or in the file of --patch-file="));
    let message = refused(&Job { options: vec!["--namespace=x".to_owned()], ..job.clone() });
    assert!(message.contains("not `--namespace=x`; a patch changes the rest"), "{message}");
    let message = refused(&Job { array: array().array, ..job });
    assert!(message.ends_with("it has no arrays; submit the tasks one by one"), "{message}");
}

#[test]
fn lsf_is_told_in_its_own_words() {
    let top = "#!/bin/bash\n\
               #BSUB -J \"fit_7TASKS\"\n\
               #BSUB -rn\n\
               #BSUB -n 4\n\
               #BSUB -R \"span[hosts=1]\"\n\
               #BSUB -R \"rusage[mem=4001]\"\n\
               #BSUB -W 26:02\n\
               #BSUB -oo /dev/null\n\
               #BSUB -q long\n\
               #BSUB -u a@example.org\n\
               #BSUB -N\n\
               #BSUB -x --verbatim \"as it is\"\n";
    let wanted = format!("{}exec >/logs/7.out 2>&1\n{BODY}", top.replace("TASKS", ""));
    assert_eq!(script(BaseSystem::Lsf, &job()).unwrap(), wanted);
    let wanted = format!(
        "{}export LONGSHORE_ARRAY_INDEX=\"$LSB_JOBINDEX\"\n\
         exec >/logs/7.out.\"$LONGSHORE_ARRAY_INDEX\" 2>/logs/7.err.\"$LONGSHORE_ARRAY_INDEX\"\n{BODY}",
        top.replace("TASKS", "[1-100]%10")
    );
    assert_eq!(script(BaseSystem::Lsf, &array()).unwrap(), wanted);
}

#[test]
fn this_machine_needs_no_script() {
    let job = Job { options: Vec::new(), ..job() };
    let wanted = "timeout --kill-after 5 93661 bash '/home/a b/run.sh' 'it'\\''s'";
    assert_eq!(script(BaseSystem::Local, &job).unwrap(), wanted);
}

#[test]
fn nothing_breaks_out_of_a_directive() {
    let evil = "main\n#SBATCH --uid=0";
    for base in BaseSystem::ALL {
        let queue = JobAttributes { queue: Some(evil.to_owned()), ..JobAttributes::default() };
        let quoted = JobAttributes { queue: Some("a\" -R \"b".to_owned()), ..JobAttributes::default() };
        for bad in [
            Job { name: evil.to_owned(), options: Vec::new(), ..job() },
            Job { attributes: queue, options: Vec::new(), ..job() },
            Job { attributes: quoted, options: Vec::new(), ..job() },
            Job { options: vec![evil.to_owned()], ..job() },
            Job { env: [("A=1\nB".to_owned(), String::new())].into(), options: Vec::new(), ..job() },
        ] {
            // The local system has no queues, so a bad queue name does no harm there.
            let is_bad = base != BaseSystem::Local || bad.attributes.email.is_some();
            let answer = script(base, &bad);
            assert_eq!(matches!(answer, Err(SystemError::InvalidJob { .. })), is_bad, "{answer:?}");
        }
        let is_kubernetes = base == BaseSystem::Kubernetes;
        let odd = Job {
            stdout: Some("/logs/%j $JOB_ID\n#SBATCH --x".into()),
            program: JobProgram::Command(vec!["a\n#$ -o /x".to_owned()]),
            options: is_kubernetes.then(|| "--image=i".to_owned()).into_iter().collect(),
            attributes: if is_kubernetes { JobAttributes::default() } else { job().attributes },
            ..job()
        };
        let text = script(base, &odd).unwrap();
        assert!(!text.lines().any(|line| line.ends_with("--x") || line.ends_with("/x")), "{text}");
    }
}

#[test]
fn what_a_system_does_not_have_is_not_left_out_in_silence() {
    let asks = |change: fn(&mut JobAttributes)| {
        let mut job = Job { options: Vec::new(), ..job() };
        change(&mut job.attributes);
        job
    };
    let account = asks(|terms| terms.account = Some("x".to_owned()));
    let qos = asks(|terms| terms.qos = Some("x".to_owned()));
    let reservation = asks(|terms| terms.reservation = Some("x".to_owned()));
    let project = asks(|terms| terms.project = Some("x".to_owned()));
    let has = |job: &Job| {
        let cluster = [BaseSystem::Slurm, BaseSystem::Sge, BaseSystem::Pbs, BaseSystem::Lsf];
        let mut has: Vec<bool> = cluster.map(|base| script(base, job).is_ok()).into();
        has.push(torque(job).is_ok());
        has
    };
    // Slurm, Grid Engine, OpenPBS, LSF, Torque.
    assert_eq!(has(&account), [true, true, true, false, true]);
    assert_eq!(has(&qos), [true, false, false, false, true]);
    assert_eq!(has(&reservation), [true, true, false, true, false]);
    assert_eq!(has(&project), [false, true, true, true, false]);
    let message = script(BaseSystem::Lsf, &account).unwrap_err().to_string();
    assert_eq!(message, "lsf cannot run job `fit 7`: it has no accounts; name the project instead");
}
