//! Jobs on this machine.

use std::time::Duration;

use longshore_dispatch::system::{
    BaseSystem, Exit, JobEndCause, JobState, SystemConfig, SystemError, open_system,
};

use super::cases::{Reporting, all};
use super::fixture::{SystemFixture, eventually, is_alive};

fn fixture() -> SystemFixture {
    SystemFixture::new(open_system(BaseSystem::Local, SystemConfig::default()))
}

#[tokio::test]
async fn local_does_what_every_base_system_does() {
    all(&fixture(), Reporting::All).await;
}

#[tokio::test]
async fn a_restarted_server_finds_its_jobs_again_and_ends_them() {
    let fixture = fixture();
    let id = fixture.submit("echo $$ > pid; touch ready; exec sleep 600").await;
    fixture.file("ready").await;
    let later = open_system(BaseSystem::Local, SystemConfig::default());
    let ids = [id.clone()];
    assert_eq!(later.status(&ids).await.unwrap()[&id], JobState::Running);
    later.cancel(&ids).await.unwrap();
    assert!(!is_alive(&fixture.read("pid")));
    assert_eq!(fixture.end(&id).await.exit, Some(Exit::Signal(15)));
}

#[tokio::test]
async fn what_a_job_leaves_behind_ends_with_it() {
    let fixture = fixture();
    let id = fixture.submit("sleep 600 & echo $! > child; exit 7").await;
    assert_eq!(fixture.end(&id).await.exit, Some(Exit::Code(7)));
    let child = fixture.read("child");
    eventually(async || !is_alive(&child)).await;
}

#[tokio::test]
async fn a_job_that_takes_too_long_is_ended_with_its_children() {
    let fixture = fixture();
    let mut job = fixture.job("sleep 600 & echo $! > child; wait");
    job.time = Some(Duration::from_secs(5));
    let id = fixture.system.submit(&job).await.unwrap();
    let end = fixture.end(&id).await;
    assert_eq!((end.exit, end.cause), (Some(Exit::Code(124)), JobEndCause::TimeLimit));
    let child = fixture.read("child");
    eventually(async || !is_alive(&child)).await;
}

#[tokio::test]
async fn what_this_machine_cannot_do_is_told() {
    let fixture = fixture();
    let mut job = fixture.job("exit 0");
    job.options = vec!["--gres=gpu:1".to_owned()];
    let message = fixture.system.submit(&job).await.unwrap_err().to_string();
    assert!(message.ends_with("it has no options such as `--gres=gpu:1`"), "{message}");
    let mut job = fixture.job("exit 0");
    job.dir = fixture.path("nowhere");
    let error = fixture.system.submit(&job).await.unwrap_err();
    assert!(matches!(error, SystemError::Io { .. }), "{error}");
}
