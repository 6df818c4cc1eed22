//! Jobs of a fake LSF that follows the documentation.

use std::num::NonZeroU32;

use longshore_dispatch::system::{BaseSystem, JobArray, JobId, SystemConfig, SystemError, open_system};
use longshore_testkit::servers::{DaemonState, FakeBatchSystem};

use super::cases::{Reporting, all};
use super::fixture::{SystemFixture, site};

fn lsf() -> (FakeBatchSystem, SystemFixture) {
    let fake = FakeBatchSystem::start().unwrap();
    let site = SystemConfig { bin: Some(fake.bin()), ..site([fake.env()]) };
    (fake, SystemFixture::new(open_system(BaseSystem::Lsf, site)))
}

#[tokio::test]
async fn lsf_does_what_every_base_system_does() {
    let (_fake, fixture) = lsf();
    all(&fixture, Reporting::All).await;
}

#[tokio::test]
async fn tasks_of_an_lsf_array_have_an_index_and_a_file_each() {
    let (_fake, fixture) = lsf();
    let mut job = fixture.job("echo $LONGSHORE_ARRAY_INDEX; exit $((LONGSHORE_ARRAY_INDEX - 1))");
    job.array = Some(JobArray { first: 1, last: 3, throttle: NonZeroU32::new(2) });
    job.stdout = Some(fixture.path("task"));
    let id = fixture.system.submit(&job).await.unwrap();
    let end = fixture.end(&id).await;
    assert!(!end.is_success(), "{end:?}");
    let outputs: Vec<String> = (1..=3).map(|index| fixture.read(&format!("task.{index}"))).collect();
    assert_eq!(outputs, ["1\n", "2\n", "3\n"]);
}

#[tokio::test]
async fn lsf_refuses_a_directive_in_its_own_words() {
    let (_fake, fixture) = lsf();
    let mut job = fixture.job("exit 0");
    job.attributes.queue = Some("nowhere".to_owned());
    let message = fixture.system.submit(&job).await.unwrap_err().to_string();
    assert_eq!(message, "lsf refused: nowhere: No such queue. Job not submitted.");
    let mut job = fixture.job("exit 0");
    job.options = vec!["-zzz 3".to_owned()];
    let error = fixture.system.submit(&job).await.unwrap_err();
    assert!(matches!(error, SystemError::Refused { .. }), "{error}");
}

#[tokio::test]
async fn an_lsf_that_is_away_is_tried_again_and_then_told() {
    let (fake, fixture) = lsf();
    fake.set_daemon_state(DaemonState::Yes).unwrap();
    let error = fixture.system.submit(&fixture.job("exit 0")).await.unwrap_err();
    assert!(matches!(error, SystemError::Unreachable { .. }), "{error}");
    let error = fixture.system.status(&[JobId::new("1")]).await.unwrap_err();
    assert!(matches!(error, SystemError::Unreachable { .. }), "{error}");
    fake.set_daemon_state(DaemonState::No).unwrap();
    let id = fixture.submit("exit 0").await;
    assert!(fixture.end(&id).await.is_success());
}
