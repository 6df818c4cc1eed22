//! Jobs of a real Grid Engine.

use std::time::Duration;

use longshore_dispatch::system::{Array, BaseSystem, Cause, Exit, JobState, SystemError, system};
use longshore_testkit::servers::PrivateGridEngine;

use super::cases::{Tells, all, jobs_are_found_by_their_names};
use super::place::{Place, eventually, site};

#[tokio::test]
async fn grid_engine_does_what_every_base_system_does() {
    let mut sge = PrivateGridEngine::start().unwrap();
    let place = Place::new(system(BaseSystem::Sge, site(sge.env())));
    all(&place, Tells::Signals).await;
    jobs_are_found_by_their_names(&place).await;
    tasks_of_an_array_have_an_index_and_a_file_each(&place).await;
    what_grid_engine_refuses_is_told_at_once(&place).await;
    a_job_in_the_error_state_is_stuck_and_says_why(&place, &sge).await;
    a_job_may_not_run_longer_than_it_said(&place).await;
    a_job_outlives_an_outage_of_the_master(&place, &mut sge).await;
}

async fn tasks_of_an_array_have_an_index_and_a_file_each(place: &Place) {
    let mut job = place.job("echo $LONGSHORE_ARRAY_INDEX; exit $((LONGSHORE_ARRAY_INDEX - 1))");
    job.array = Some(Array { first: 1, last: 3, throttle: Some(2.try_into().unwrap()) });
    job.stdout = Some(place.path("task"));
    let id = place.system.submit(&job).await.unwrap();
    assert!(id.as_str().parse::<u32>().is_ok(), "{id}");
    let end = place.end(&id).await;
    assert!(!end.is_success(), "{end:?}");
    let said: Vec<String> = (1..=3).map(|index| place.read(&format!("task.{index}"))).collect();
    assert_eq!(said, ["1\n", "2\n", "3\n"]);
}

async fn what_grid_engine_refuses_is_told_at_once(place: &Place) {
    let mut job = place.job("exit 0");
    job.terms.queue = Some("nowhere.q".to_owned());
    let error = place.system.submit(&job).await.unwrap_err();
    let told =
        matches!(&error, SystemError::Refused { words, .. } if words.contains("unknown queue"));
    assert!(told, "{error}");
    let mut job = place.job("exit 0");
    job.options = vec!["-no-such-option".to_owned()];
    let error = place.system.submit(&job).await.unwrap_err();
    assert!(matches!(error, SystemError::Refused { .. }), "{error}");
}

async fn a_job_in_the_error_state_is_stuck_and_says_why(place: &Place, sge: &PrivateGridEngine) {
    let mut job = place.job("exit 0");
    job.options = vec!["-wd /no/such/folder".to_owned()];
    let id = place.system.submit(&job).await.unwrap();
    eventually(async || matches!(place.state(&id).await, JobState::Stuck { .. })).await;
    let state = place.state(&id).await;
    let told =
        matches!(&state, JobState::Stuck { why } if why.contains("can't chdir to /no/such/folder"));
    assert!(told, "{state:?}");
    assert!(sge.run("qstat", &[]).unwrap().contains("Eqw"));
    place.system.cancel(std::slice::from_ref(&id)).await.unwrap();
    eventually(async || place.state(&id).await == JobState::Gone).await;
}

async fn a_job_may_not_run_longer_than_it_said(place: &Place) {
    let mut job = place.job("exec sleep 600");
    job.time = Some(Duration::from_secs(1));
    let id = place.system.submit(&job).await.unwrap();
    let end = place.end(&id).await;
    assert_eq!(end.exit, Some(Exit::Signal(9)), "{end:?}");
    assert_ne!(end.cause, Cause::Cancelled);
}

async fn a_job_outlives_an_outage_of_the_master(place: &Place, sge: &mut PrivateGridEngine) {
    let id = place.submit("exec sleep 600").await;
    place.running(&id).await;
    sge.halt().unwrap();
    let error = place.system.submit(&place.job("exit 6")).await.unwrap_err();
    assert!(matches!(error, SystemError::Away { .. }), "{error}");
    let error = place.system.status(std::slice::from_ref(&id)).await.unwrap_err();
    assert!(matches!(error, SystemError::Away { .. }), "{error}");
    sge.go().unwrap();
    let next = place.submit("exit 0").await;
    // Its host takes half a minute to report to the new master: ends would be told then.
    assert_eq!(place.state(&id).await, JobState::Running);
    assert!(place.state(&next).await.is_live());
}
