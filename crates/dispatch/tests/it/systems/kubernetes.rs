//! Jobs of a fake Kubernetes, which checks manifests as the API server does.

use std::time::Duration;

use longshore_dispatch::system::{
    BaseSystem, Exit, Job, JobEnd, JobEndCause, JobState, SystemConfig, SystemError, open_system,
};
use longshore_testkit::servers::{DaemonState, FakeBatchSystem};
use serde_json::Value;

use super::cases::{Reporting, all, jobs_are_found_by_their_names};
use super::fixture::{SystemFixture, eventually, site};

const IMAGE: &str = "--image=registry.example/longshore:1";

fn kubernetes() -> (FakeBatchSystem, SystemFixture) {
    let fake = FakeBatchSystem::start().unwrap();
    let site = SystemConfig { bin: Some(fake.bin()), ..site([fake.env()]) };
    let system = open_system(BaseSystem::Kubernetes, site);
    (fake, SystemFixture::with_options(system, &[IMAGE]))
}

fn with_options(fixture: &SystemFixture, lines: &str, options: &[&str]) -> Job {
    let options = [IMAGE].iter().chain(options).map(ToString::to_string).collect();
    Job { options, ..fixture.job(lines) }
}

#[tokio::test]
async fn kubernetes_does_what_every_base_system_does() {
    let (_fake, fixture) = kubernetes();
    all(&fixture, Reporting::Signals).await;
    jobs_are_found_by_their_names(&fixture).await;
}

#[tokio::test]
async fn a_patch_changes_what_the_manifest_does_not_say() {
    let (fake, fixture) = kubernetes();
    let patch = fixture.path("pod.yaml");
    std::fs::write(
        &patch,
        "spec:
  template:
    spec:
      priorityClassName: batch
      containers:
        - name: longshore
          resources: {limits: {nvidia.com/gpu: null, amd.com/gpu: '2'}}
          volumeMounts: [{name: pool, mountPath: /pool}]
      volumes: [{name: pool, persistentVolumeClaim: {claimName: pool}}]
",
    )
    .unwrap();
    let patch = format!("--patch-file={}", patch.display());
    let job = with_options(&fixture, "exit 0", &[&patch, "--gpus=2"]);
    let id = fixture.system.submit(&job).await.unwrap();
    assert!(fixture.end(&id).await.is_success());
    let manifest: Value = serde_json::from_str(&fake.script(1).unwrap()).unwrap();
    let pod = &manifest["spec"]["template"]["spec"];
    assert_eq!((&pod["priorityClassName"], &pod["restartPolicy"]), (&"batch".into(), &"Never".into()));
    let container = &pod["containers"][0];
    assert_eq!(container["resources"]["limits"], serde_json::json!({ "amd.com/gpu": "2" }));
    assert_eq!(container["image"], "registry.example/longshore:1");
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/pool");
}

#[tokio::test]
async fn what_kubernetes_refuses_is_told_in_its_words() {
    let (_fake, fixture) = kubernetes();
    let patch = fixture.path("typo.yaml");
    std::fs::write(&patch, "spec: {template: {spec: {nodeSelektor: {disk: ssd}}}}\n").unwrap();
    let patch = format!("--patch-file={}", patch.display());
    let error = fixture.system.submit(&with_options(&fixture, "exit 0", &[&patch])).await.unwrap_err();
    let refused = |error: &SystemError, words: &str| matches!(error, SystemError::Refused { message, .. } if message.contains(words));
    assert!(refused(&error, "unknown field \"spec.template.spec.nodeSelektor\""), "{error}");
    let missing = with_options(&fixture, "exit 0", &["--patch-file=/no/such/file"]);
    let error = fixture.system.submit(&missing).await.unwrap_err();
    assert!(refused(&error, "unable to read patch file"), "{error}");
}

#[tokio::test]
async fn a_pod_that_no_node_has_room_for_waits_and_says_why() {
    let (_fake, fixture) = kubernetes();
    let mut job = fixture.job("exit 0");
    job.threads = 65.try_into().unwrap();
    let id = fixture.system.submit(&job).await.unwrap();
    let state = fixture.state(&id).await;
    let told = matches!(&state, JobState::Waiting { why: Some(why) } if why.contains("Insufficient cpu"));
    assert!(told, "{state:?}");
    fixture.system.cancel(std::slice::from_ref(&id)).await.unwrap();
    eventually(async || fixture.state(&id).await == JobState::Gone).await;
}

#[tokio::test]
async fn a_pod_may_not_run_longer_than_it_said() {
    let (_fake, fixture) = kubernetes();
    let mut job = fixture.job("exec sleep 600");
    job.time = Some(Duration::from_secs(1));
    let id = fixture.system.submit(&job).await.unwrap();
    let end = JobEnd { exit: None, cause: JobEndCause::TimeLimit };
    assert_eq!(fixture.end(&id).await, end);
}

#[tokio::test]
async fn an_api_server_that_is_away_is_tried_again_and_then_told() {
    let (fake, fixture) = kubernetes();
    fake.set_daemon_state(DaemonState::Yes).unwrap();
    let error = fixture.system.submit(&fixture.job("exit 0")).await.unwrap_err();
    assert!(matches!(error, SystemError::Unreachable { .. }), "{error}");
    fake.set_daemon_state(DaemonState::No).unwrap();
    let id = fixture.submit("exit 3").await;
    assert_eq!(fixture.end(&id).await.exit, Some(Exit::Code(3)));
}
