//! Kubernetes.
//!
//! `kubectl create` submits a Job with one pod, one `kubectl get` queries Jobs and pods, and `kubectl
//! delete` cancels them. The cluster, the namespace and the user are `kubectl`'s own. A Job never
//! replaces its pod. Ended Jobs are listed for an hour.

use std::collections::BTreeMap;
use std::path::Path;

use async_trait::async_trait;
use longshore_process::Exit;
use serde::Deserialize;
use serde_json::{Value, json};

use super::command::{CommandRunner, ErrorPatterns, MAX_IDS, retry};
use super::config::SystemConfig;
use super::error::SystemError;
use super::job::Job;
use super::job_script::{OutputOpenedBy, ScriptWriter};
use super::job_state::{JobEnd, JobEndCause, JobId, JobState, merge_states};
use super::queue_system::BaseSystem;
use super::{System, duration};

const ERROR_PATTERNS: ErrorPatterns = ErrorPatterns {
    unreachable: &[
        "was refused - did you specify the right host or port",
        "connection refused",
        "no such host",
        "no route to host",
        "TLS handshake timeout",
        "ServiceUnavailable",
        "TooManyRequests",
        "currently unable to handle the request",
    ],
    ambiguous: &[
        "Unable to connect to the server",
        "connection reset",
        "connection lost",
        "EOF",
        "Timeout",
        "timed out",
        "deadline exceeded",
    ],
};
/// Selects the Jobs and pods of Longshore.
const LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "longshore");
const SELECTOR: &str = "app.kubernetes.io/managed-by=longshore";
/// Annotation with the name of the job.
const NAME_ANNOTATION: &str = "longshore/name";
/// The container that runs the job.
const CONTAINER: &str = "longshore";
/// How long an ended Job is listed.
const LISTED_SECONDS: u64 = 3600;
/// Time between TERM and KILL, unless `--grace-period` names another.
const GRACE_SECONDS: u64 = 60;
/// Why a container does not start without intervention.
const STUCK: [&str; 6] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
];

/// The Kubernetes system.
#[derive(Debug)]
pub(super) struct Kubernetes {
    runner: CommandRunner,
}

impl Kubernetes {
    pub(super) fn new(site: SystemConfig) -> Self {
        Self { runner: CommandRunner::new(BaseSystem::Kubernetes, site) }
    }

    /// Runs `kubectl` and returns what it printed.
    async fn run(&self, args: &[&str], input: &str) -> Result<String, SystemError> {
        let output = self.runner.run_with_input("kubectl", args, Path::new("."), input).await?;
        if output.is_ok() { Ok(output.out) } else { Err(self.runner.failure(&output, &ERROR_PATTERNS)) }
    }

    /// The objects of Longshore with these kinds.
    async fn get(&self, kinds: &str) -> Result<Vec<Object>, SystemError> {
        let args = ["get", kinds, "--selector", SELECTOR, "--output", "json"];
        let output = self.run(&args, "").await?;
        let objects = serde_json::from_str(&output);
        let ObjectList { items } =
            objects.map_err(|_| self.runner.unexpected_output("kubectl get", &output))?;
        Ok(items)
    }
}

#[async_trait]
impl System for Kubernetes {
    fn base(&self) -> BaseSystem {
        BaseSystem::Kubernetes
    }

    fn script(&self, job: &Job) -> Result<String, SystemError> {
        Ok(format!("{:#}\n", manifest(job)?.0))
    }

    async fn submit(&self, job: &Job) -> Result<JobId, SystemError> {
        let (manifest, patch) = manifest(job)?;
        let mut manifest = manifest.to_string();
        job.create_output_folders()?;
        if let Some(patch) = patch {
            let args = ["patch", "--local", "--filename", "-", "--patch-file", patch, "--output", "json"];
            manifest = self.run(&args, &manifest).await?;
        }
        let manifest = &manifest;
        retry(self.runner.site.retries, move || async move {
            let args = ["create", "--filename", "-", "--output", "name"];
            let output = self.run(&args, manifest).await?;
            let name = output.trim().strip_prefix("job.batch/");
            name.map(JobId::new).ok_or_else(|| self.runner.unexpected_output("kubectl create", &output))
        })
        .await
    }

    async fn status(&self, ids: &[JobId]) -> Result<BTreeMap<JobId, JobState>, SystemError> {
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let (jobs, pods): (Vec<_>, Vec<_>) =
            self.get("jobs,pods").await?.into_iter().partition(|object| object.kind == "Job");
        let pods: BTreeMap<&str, &Object> =
            pods.iter().filter_map(|pod| Some((pod.metadata.owner_job()?, pod))).collect();
        let states = jobs.iter().map(|job| {
            let name = job.metadata.name.as_str();
            (JobId::new(name), state(job, pods.get(name).copied()))
        });
        Ok(merge_states(ids, states))
    }

    async fn cancel(&self, ids: &[JobId]) -> Result<(), SystemError> {
        for ids in ids.chunks(MAX_IDS) {
            // In the foreground: the Job is listed until its pod is gone.
            let mut args =
                vec!["delete", "jobs", "--ignore-not-found", "--cascade=foreground", "--wait=false"];
            args.extend(ids.iter().map(JobId::as_str));
            self.run(&args, "").await?;
        }
        Ok(())
    }

    async fn find(&self, names: &[String]) -> Result<Vec<(String, JobId)>, SystemError> {
        let live = self.get("jobs").await?.into_iter().filter(|job| state(job, None).is_live());
        let found = live.filter_map(|job| {
            let name = names.iter().find(|name| job.metadata.annotations.get(NAME_ANNOTATION) == Some(name));
            Some((name?.clone(), JobId::new(job.metadata.name)))
        });
        Ok(found.collect())
    }
}

/// Options that this file understands; the rest of a manifest is changed by a patch.
struct Options<'a> {
    image: Option<&'a str>,
    patch_file: Option<&'a str>,
    gpus: u64,
    grace: u64,
}

impl<'a> Options<'a> {
    fn parse(job: &'a Job) -> Result<Self, String> {
        let mut options = Self { image: None, patch_file: None, gpus: 0, grace: GRACE_SECONDS };
        for option in &job.options {
            let number = |text: &str| text.parse().map_err(|_| format!("`{option}` has no whole number"));
            match option.split_once('=') {
                Some(("--image", image)) => options.image = Some(image),
                Some(("--patch-file", file)) => options.patch_file = Some(file),
                Some(("--gpus", count)) => options.gpus = number(count)?,
                Some(("--grace-period", seconds)) => options.grace = number(seconds)?,
                _ => {
                    let known = "--image=, --patch-file=, --gpus= and --grace-period=";
                    return Err(format!("its options are {known}, not `{option}`; a patch changes the rest"));
                }
            }
        }
        if options.image.is_none() && options.patch_file.is_none() {
            return Err("the image is missing; name it with --image= or in the file of --patch-file=".into());
        }
        Ok(options)
    }
}

/// The manifest of a Job, and the file with the patch to apply to it.
fn manifest(job: &Job) -> Result<(Value, Option<&str>), SystemError> {
    let script = ScriptWriter::new(BaseSystem::Kubernetes, "#", job, OutputOpenedBy::Bash)?;
    let options = Options::parse(job).map_err(|what| script.invalid_job(what))?;
    let terms = &job.attributes;
    let attributes = [
        ("queues", &terms.queue),
        ("accounts", &terms.account),
        ("quality of service", &terms.qos),
        ("reservations", &terms.reservation),
        ("projects", &terms.project),
        ("notification", &terms.email),
    ];
    for (what, value) in attributes {
        script.reject_unsupported(
            what,
            value.as_deref(),
            "set labels or a priority class by --patch-file=",
        )?;
    }
    if job.array.is_some() {
        return Err(script.invalid_job("it has no arrays; submit the tasks one by one"));
    }
    let name = generated_name(&job.name);
    let labels = json!({ LABEL.0: LABEL.1 });
    let annotations = json!({ NAME_ANNOTATION: job.name });
    let mut requests = json!({ "cpu": job.threads.to_string() });
    let mut limits = json!({});
    if let Some(memory) = job.memory {
        requests["memory"] = json!(format!("{memory}Mi"));
        limits["memory"] = requests["memory"].clone();
    }
    if options.gpus > 0 {
        limits["nvidia.com/gpu"] = json!(options.gpus.to_string());
    }
    let mut container = json!({
        "name": CONTAINER,
        // The kubelet replaces `$(NAME)`, and `$$` by `$`.
        "command": ["bash", "-c", script.finish("JOB_COMPLETION_INDEX")?.replace('$', "$$")],
        "resources": { "requests": requests, "limits": limits },
    });
    if let Some(image) = options.image {
        container["image"] = json!(image);
    }
    let mut pod = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": options.grace,
        "securityContext": {
            "runAsUser": rustix::process::geteuid().as_raw(),
            "runAsGroup": rustix::process::getegid().as_raw(),
        },
        "containers": [container],
    });
    if let Some(time) = job.time {
        // Of the pod, because the Job's would also count the time in which the pod waits for a node.
        pod["activeDeadlineSeconds"] = json!(duration::seconds(time));
    }
    let manifest = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "generateName": name, "labels": labels, "annotations": annotations },
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": LISTED_SECONDS,
            "template": { "metadata": { "labels": labels }, "spec": pod },
        },
    });
    Ok((manifest, options.patch_file))
}

/// The beginning of a Job's name: lower case letters, digits and `-`. The API server appends five characters.
fn generated_name(name: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let mut kept: String = name.chars().map(keep).collect();
    if !kept.starts_with(|c: char| c.is_ascii_alphabetic()) {
        kept.insert(0, 'j');
    }
    kept.truncate(57);
    kept + "-"
}

#[derive(Deserialize)]
struct ObjectList {
    items: Vec<Object>,
}

/// A Job or a pod.
#[derive(Deserialize)]
struct Object {
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    owner_references: Vec<OwnerReference>,
}

impl Metadata {
    /// The Job that a pod belongs to.
    fn owner_job(&self) -> Option<&str> {
        let owner = self.owner_references.iter().find(|owner| owner.kind == "Job");
        owner.map(|owner| owner.name.as_str())
    }
}

#[derive(Deserialize)]
struct OwnerReference {
    kind: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: String,
    reason: String,
    conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
}

impl Status {
    /// A condition that holds.
    fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind && condition.status == "True")
    }
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct ContainerStatus {
    name: String,
    #[serde(default)]
    state: ContainerState,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<WaitingContainer>,
    terminated: Option<TerminatedContainer>,
}

#[derive(Deserialize)]
struct WaitingContainer {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TerminatedContainer {
    exit_code: i32,
    #[serde(default)]
    reason: String,
}

/// The state of a Job with this pod.
fn state(job: &Object, pod: Option<&Object>) -> JobState {
    let pod = pod.map(|pod| &pod.status);
    if job.status.condition("Complete").is_some() {
        return JobState::Ended(JobEnd::exited(Exit::Code(0)));
    }
    if job.status.condition("Failed").is_some() {
        return JobState::Ended(pod.map_or_else(JobEnd::unknown, failed_end));
    }
    let Some(pod) = pod else { return JobState::Waiting { why: None } };
    if !["Pending", ""].contains(&pod.phase.as_str()) {
        return JobState::Running;
    }
    let waiting = pod.container_statuses.iter().find_map(|container| container.state.waiting.as_ref());
    if let Some(WaitingContainer { reason, message }) = waiting
        && STUCK.contains(&reason.as_str())
    {
        return JobState::Stuck { why: format!("{reason}: {message}") };
    }
    let unscheduled =
        |condition: &&Condition| condition.kind == "PodScheduled" && condition.status == "False";
    let why = pod.conditions.iter().find(unscheduled).map(|condition| condition.message.clone());
    JobState::Waiting { why: why.filter(|why| !why.is_empty()) }
}

/// How the pod of a failed Job ended.
fn failed_end(pod: &Status) -> JobEnd {
    let ours = pod.container_statuses.iter().find(|container| container.name == CONTAINER);
    let terminated = ours.and_then(|container| container.state.terminated.as_ref());
    let disruption = pod.condition("DisruptionTarget").map(|condition| condition.reason.as_str());
    let cause = match (pod.reason.as_str(), terminated.map(|ended| ended.reason.as_str()), disruption) {
        ("DeadlineExceeded", ..) => JobEndCause::TimeLimit,
        (_, Some("OOMKilled"), _) => JobEndCause::Memory,
        (_, _, Some("PreemptionByScheduler")) => JobEndCause::Preempted,
        ("Evicted" | "NodeLost" | "NodeShutdown" | "Terminated" | "Shutdown", ..) | (_, _, Some(_)) => {
            JobEndCause::NodeLost
        }
        (_, Some(_), None) => JobEndCause::Exited,
        (_, None, None) => JobEndCause::Unknown,
    };
    let exit = terminated.map(|ended| Exit::from_shell_code(ended.exit_code));
    JobEnd { exit: exit.filter(|exit| *exit != Exit::Code(0)), cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, status: Value) -> Object {
        let object = json!({ "kind": kind, "metadata": { "name": "j" }, "status": status });
        serde_json::from_value(object).unwrap()
    }

    fn running_job() -> Object {
        object("Job", json!({ "active": 1, "ready": 0 }))
    }

    #[test]
    fn a_pod_says_why_it_waits_and_what_it_needs_help_with() {
        let state_of = |pod| state(&running_job(), Some(&object("Pod", pod)));
        let unscheduled = json!({ "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
              "message": "0/3 nodes are available: 3 Insufficient cpu." }] });
        let why = Some("0/3 nodes are available: 3 Insufficient cpu.".to_owned());
        assert_eq!(state_of(unscheduled), JobState::Waiting { why });
        let starting = json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "True" }],
            "containerStatuses": [{ "name": "longshore", "state": { "waiting": { "reason": "ContainerCreating" } } }] });
        assert_eq!(state_of(starting), JobState::Waiting { why: None });
        let without_image = json!({ "phase": "Pending", "containerStatuses": [{ "name": "longshore",
            "state": { "waiting": { "reason": "ImagePullBackOff", "message": "Back-off pulling image \"x\"" } } }] });
        let why = "ImagePullBackOff: Back-off pulling image \"x\"".to_owned();
        assert_eq!(state_of(without_image), JobState::Stuck { why });
        assert_eq!(state_of(json!({ "phase": "Running" })), JobState::Running);
        assert_eq!(state_of(json!({ "phase": "Failed" })), JobState::Running, "the Job has not seen it yet");
        assert_eq!(state(&running_job(), None), JobState::Waiting { why: None });
    }

    #[test]
    fn a_failed_job_says_who_ended_it() {
        let failed = object("Job", json!({ "conditions": [{ "type": "Failed", "status": "True" }] }));
        let container = |code: i32, reason: &str| json!([{ "name": "longshore", "state": { "terminated": { "exitCode": code, "reason": reason } } }]);
        let disrupted =
            |reason: &str| json!([{ "type": "DisruptionTarget", "status": "True", "reason": reason }]);
        let cases = [
            (
                json!({ "containerStatuses": container(42, "Error") }),
                Some(Exit::Code(42)),
                JobEndCause::Exited,
            ),
            (
                json!({ "containerStatuses": container(139, "Error") }),
                Some(Exit::Signal(11)),
                JobEndCause::Exited,
            ),
            (
                json!({ "containerStatuses": container(137, "OOMKilled") }),
                Some(Exit::Signal(9)),
                JobEndCause::Memory,
            ),
            (json!({ "reason": "DeadlineExceeded" }), None, JobEndCause::TimeLimit),
            (json!({ "reason": "Evicted" }), None, JobEndCause::NodeLost),
            (
                json!({ "conditions": disrupted("PreemptionByScheduler"), "containerStatuses": container(143, "Error") }),
                Some(Exit::Signal(15)),
                JobEndCause::Preempted,
            ),
            (json!({ "conditions": disrupted("DeletionByTaintManager") }), None, JobEndCause::NodeLost),
            (json!({}), None, JobEndCause::Unknown),
        ];
        for (pod, exit, cause) in cases {
            let pod = object("Pod", pod);
            assert_eq!(state(&failed, Some(&pod)), JobState::Ended(JobEnd { exit, cause }));
        }
        assert_eq!(state(&failed, None), JobState::Ended(JobEnd::unknown()));
    }

    #[test]
    fn a_name_is_one_that_kubernetes_takes() {
        assert_eq!(generated_name("longshore-0001-a1b2c3"), "longshore-0001-a1b2c3-");
        assert_eq!(generated_name("Fit 3/4"), "fit-3-4-");
        assert_eq!(generated_name("7 ä"), "j7---");
        assert_eq!(generated_name(&"x".repeat(80)).len(), 58);
    }
}
