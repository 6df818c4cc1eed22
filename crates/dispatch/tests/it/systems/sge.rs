//! Jobs of a real Grid Engine.

use std::time::Duration;

use longshore_dispatch::system::{
    BaseSystem, Exit, JobArray, JobEndCause, JobState, SystemError, open_system,
};
use longshore_testkit::servers::PrivateGridEngine;

use super::cases::{Reporting, all, jobs_are_found_by_their_names};
use super::fixture::{SystemFixture, eventually, site};

#[tokio::test]
async fn grid_engine_does_what_every_base_system_does() {
    let mut sge = PrivateGridEngine::start().unwrap();
    let fixture = SystemFixture::new(open_system(BaseSystem::Sge, site(sge.env())));
    all(&fixture, Reporting::Signals).await;
    jobs_are_found_by_their_names(&fixture).await;
    tasks_of_an_array_have_an_index_and_a_file_each(&fixture).await;
    what_grid_engine_refuses_is_told_at_once(&fixture).await;
    a_job_in_the_error_state_is_stuck_and_says_why(&fixture, &sge).await;
    a_job_may_not_run_longer_than_it_said(&fixture).await;
    a_job_outlives_an_outage_of_the_master(&fixture, &mut sge).await;
}

async fn tasks_of_an_array_have_an_index_and_a_file_each(fixture: &SystemFixture) {
    let mut job = fixture.job("echo $LONGSHORE_ARRAY_INDEX; exit $((LONGSHORE_ARRAY_INDEX - 1))");
    job.array = Some(JobArray { first: 1, last: 3, throttle: Some(2.try_into().unwrap()) });
    job.stdout = Some(fixture.path("task"));
    let id = fixture.system.submit(&job).await.unwrap();
    assert!(id.as_str().parse::<u32>().is_ok(), "{id}");
    let end = fixture.end(&id).await;
    assert!(!end.is_success(), "{end:?}");
    let outputs: Vec<String> = (1..=3).map(|index| fixture.read(&format!("task.{index}"))).collect();
    assert_eq!(outputs, ["1\n", "2\n", "3\n"]);
}

async fn what_grid_engine_refuses_is_told_at_once(fixture: &SystemFixture) {
    let mut job = fixture.job("exit 0");
    job.attributes.queue = Some("nowhere.q".to_owned());
    let error = fixture.system.submit(&job).await.unwrap_err();
    let reported =
        matches!(&error, SystemError::Refused { message, .. } if message.contains("unknown queue"));
    assert!(reported, "{error}");
    let mut job = fixture.job("exit 0");
    job.options = vec!["-no-such-option".to_owned()];
    let error = fixture.system.submit(&job).await.unwrap_err();
    assert!(matches!(error, SystemError::Refused { .. }), "{error}");
}

async fn a_job_in_the_error_state_is_stuck_and_says_why(fixture: &SystemFixture, sge: &PrivateGridEngine) {
    let mut job = fixture.job("exit 0");
    job.options = vec!["-wd /no/such/folder".to_owned()];
    let id = fixture.system.submit(&job).await.unwrap();
    eventually(async || matches!(fixture.state(&id).await, JobState::Stuck { .. })).await;
    let state = fixture.state(&id).await;
    let reported =
        matches!(&state, JobState::Stuck { why } if why.contains("can't chdir to /no/such/folder"));
    assert!(reported, "{state:?}");
    assert!(sge.run("qstat", &[]).unwrap().contains("Eqw"));
    fixture.system.cancel(std::slice::from_ref(&id)).await.unwrap();
    eventually(async || fixture.state(&id).await == JobState::Gone).await;
}

async fn a_job_may_not_run_longer_than_it_said(fixture: &SystemFixture) {
    let mut job = fixture.job("exec sleep 600");
    job.time = Some(Duration::from_secs(1));
    let id = fixture.system.submit(&job).await.unwrap();
    let end = fixture.end(&id).await;
    assert_eq!(end.exit, Some(Exit::Signal(9)), "{end:?}");
    assert_ne!(end.cause, JobEndCause::Cancelled);
}

async fn a_job_outlives_an_outage_of_the_master(fixture: &SystemFixture, sge: &mut PrivateGridEngine) {
    let id = fixture.submit("exec sleep 600").await;
    fixture.running(&id).await;
    sge.halt().unwrap();
    let error = fixture.system.submit(&fixture.job("exit 6")).await.unwrap_err();
    assert!(matches!(error, SystemError::Unreachable { .. }), "{error}");
    let error = fixture.system.status(std::slice::from_ref(&id)).await.unwrap_err();
    assert!(matches!(error, SystemError::Unreachable { .. }), "{error}");
    sge.go().unwrap();
    let next = fixture.submit("exit 0").await;
    // The host reports to the new master only after half a minute, so the end is not awaited.
    assert_eq!(fixture.state(&id).await, JobState::Running);
    assert!(fixture.state(&next).await.is_live());
}
