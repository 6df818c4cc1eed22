//! Jobs of PBS: Torque's dialect on a real Slurm, OpenPBS on a fake with recorded answers.

use std::num::NonZeroU32;
use std::time::Duration;

use longshore_dispatch::system::{
    BaseSystem, Exit, JobArray, JobEnd, JobEndCause, JobId, JobState, SystemConfig, SystemError, open_system,
};
use longshore_testkit::servers::{DaemonState, FakeBatchSystem, PrivateSlurm};

use super::cases::{Reporting, all};
use super::fixture::{SystemFixture, site};

#[tokio::test]
async fn torque_on_slurm_does_what_every_base_system_does() {
    let slurm = PrivateSlurm::start().unwrap();
    let site = SystemConfig { bin: Some(slurm.torque_commands().unwrap()), ..site([slurm.env()]) };
    let fixture = SystemFixture::new(open_system(BaseSystem::Pbs, site));
    all(&fixture, Reporting::Nothing).await;
    let id = fixture.submit("sleep 600").await;
    let reported = slurm.run("scontrol", &["show", "job", id.as_str()]).unwrap();
    assert!(reported.contains("Requeue=0"), "{reported}");
    let mut job = fixture.job("exit 0");
    job.attributes.queue = Some("nowhere".to_owned());
    let error = fixture.system.submit(&job).await.unwrap_err();
    let reported = matches!(&error, SystemError::Refused { message, .. } if message.contains("nowhere"));
    assert!(reported, "{error}");
}

fn openpbs() -> (FakeBatchSystem, SystemFixture) {
    let fake = FakeBatchSystem::start().unwrap();
    let site = SystemConfig { bin: Some(fake.bin()), ..site([fake.env()]) };
    (fake, SystemFixture::new(open_system(BaseSystem::Pbs, site)))
}

#[tokio::test]
async fn openpbs_does_what_every_base_system_does() {
    let (_fake, fixture) = openpbs();
    all(&fixture, Reporting::All).await;
}

#[tokio::test]
async fn tasks_of_an_openpbs_array_have_an_index_and_a_file_each() {
    let (_fake, fixture) = openpbs();
    let mut job = fixture.job("echo $LONGSHORE_ARRAY_INDEX");
    job.array = Some(JobArray { first: 0, last: 2, throttle: NonZeroU32::new(2) });
    job.stdout = Some(fixture.path("task"));
    let id = fixture.system.submit(&job).await.unwrap();
    assert_eq!(id.as_str(), "1[].vm");
    assert!(fixture.end(&id).await.is_success());
    let outputs: Vec<String> = (0..=2).map(|index| fixture.read(&format!("task.{index}"))).collect();
    assert_eq!(outputs, ["0\n", "1\n", "2\n"]);
}

#[tokio::test]
async fn openpbs_refuses_a_directive_in_its_own_words() {
    let (_fake, fixture) = openpbs();
    let mut job = fixture.job("exit 0");
    job.attributes.queue = Some("nowhere".to_owned());
    let message = fixture.system.submit(&job).await.unwrap_err().to_string();
    assert_eq!(message, "pbs refused: qsub: Unknown queue");
    let mut job = fixture.job("exit 0");
    job.options = vec!["-l nodes=1:ppn=4".to_owned()];
    let message = fixture.system.submit(&job).await.unwrap_err().to_string();
    assert_eq!(message, "pbs refused: qsub: Unknown resource Resource_List.nodes");
}

#[tokio::test]
async fn a_job_that_openpbs_can_never_run_is_stuck() {
    let (_fake, fixture) = openpbs();
    let mut job = fixture.job("exit 0");
    job.threads = NonZeroU32::new(9999).unwrap();
    let id = fixture.system.submit(&job).await.unwrap();
    let state = fixture.state(&id).await;
    let reported = matches!(&state, JobState::Stuck { why } if why.starts_with("Can Never Run"));
    assert!(reported, "{state:?}");
}

#[tokio::test]
async fn an_openpbs_job_that_takes_too_long_is_told_so() {
    let (_fake, fixture) = openpbs();
    let mut job = fixture.job("exec sleep 600");
    job.time = Some(Duration::from_secs(1));
    let id = fixture.system.submit(&job).await.unwrap();
    assert_eq!(fixture.end(&id).await, JobEnd { exit: None, cause: JobEndCause::TimeLimit });
}

#[tokio::test]
async fn without_a_history_a_finished_openpbs_job_is_gone() {
    let (fake, fixture) = openpbs();
    let id = fixture.submit("exit 3").await;
    assert_eq!(fixture.end(&id).await.exit, Some(Exit::Code(3)));
    fake.disable_history().unwrap();
    let live = fixture.submit("sleep 600").await;
    let states = fixture.system.status(&[id.clone(), live.clone()]).await.unwrap();
    assert_eq!((&states[&id], &states[&live]), (&JobState::Gone, &JobState::Running));
    fixture.system.cancel(&[id.clone(), live]).await.unwrap();
    assert_eq!(fixture.end(&id).await, JobEnd::unknown());
}

#[tokio::test]
async fn an_openpbs_server_that_is_away_is_tried_again_and_then_told() {
    let (fake, fixture) = openpbs();
    fake.set_daemon_state(DaemonState::Yes).unwrap();
    let error = fixture.system.submit(&fixture.job("exit 0")).await.unwrap_err();
    assert!(matches!(error, SystemError::Unreachable { .. }), "{error}");
    let error = fixture.system.status(&[JobId::new("1.vm")]).await.unwrap_err();
    assert!(matches!(error, SystemError::Unreachable { .. }), "{error}");
    fake.set_daemon_state(DaemonState::No).unwrap();
    let id = fixture.submit("exit 0").await;
    assert!(fixture.end(&id).await.is_success());
}
