//! Jobs of a real Slurm.

use longshore_dispatch::system::{
    BaseSystem, Exit, JobArray, JobEnd, JobEndCause, JobState, SystemConfig, SystemError, open_system,
};
use longshore_testkit::servers::PrivateSlurm;

use super::cases::{Reporting, all, jobs_are_found_by_their_names};
use super::fixture::{SystemFixture, eventually, is_alive, site};

fn fixture(slurm: &PrivateSlurm) -> SystemFixture {
    SystemFixture::new(open_system(BaseSystem::Slurm, site([slurm.env()])))
}

#[tokio::test]
async fn slurm_does_what_every_base_system_does() {
    let mut slurm = PrivateSlurm::start().unwrap();
    let fixture = fixture(&slurm);
    all(&fixture, Reporting::All).await;
    jobs_are_found_by_their_names(&fixture).await;
    tasks_of_an_array_have_an_index_and_a_file_each(&fixture).await;
    options_give_a_job_several_nodes(&fixture).await;
    what_slurm_refuses_is_told_at_once(&fixture).await;
    a_lost_node_loses_its_job_and_slurm_does_not_run_it_again(&fixture, &mut slurm).await;
    a_job_outlives_an_outage_of_the_controller(&fixture, &mut slurm).await;
}

async fn tasks_of_an_array_have_an_index_and_a_file_each(fixture: &SystemFixture) {
    let mut job = fixture.job("echo $LONGSHORE_ARRAY_INDEX; exit $((LONGSHORE_ARRAY_INDEX - 1))");
    job.array = Some(JobArray { first: 1, last: 3, throttle: Some(2.try_into().unwrap()) });
    job.stdout = Some(fixture.path("task"));
    let id = fixture.system.submit(&job).await.unwrap();
    let end = fixture.end(&id).await;
    assert!(matches!(end.exit, Some(Exit::Code(1 | 2))), "{end:?}");
    let outputs: Vec<String> = (1..=3).map(|index| fixture.read(&format!("task.{index}"))).collect();
    assert_eq!(outputs, ["1\n", "2\n", "3\n"]);
}

/// As docs/dispatch.md says for MPI: later options replace ours.
async fn options_give_a_job_several_nodes(fixture: &SystemFixture) {
    let mut job = fixture.job("echo $SLURM_JOB_NUM_NODES $SLURM_NTASKS > nodes");
    job.options = vec!["--nodes=2".to_owned(), "--ntasks=2".to_owned()];
    let id = fixture.system.submit(&job).await.unwrap();
    assert!(fixture.end(&id).await.is_success());
    assert_eq!(fixture.read("nodes"), "2 2\n");
}

async fn what_slurm_refuses_is_told_at_once(fixture: &SystemFixture) {
    let mut job = fixture.job("exit 0");
    job.attributes.queue = Some("nowhere".to_owned());
    let error = fixture.system.submit(&job).await.unwrap_err();
    assert!(
        matches!(&error, SystemError::Refused { message, .. } if message.contains("invalid partition")),
        "{error}"
    );
    let mut job = fixture.job("exit 0");
    job.options = vec!["--no-such-option".to_owned()];
    let error = fixture.system.submit(&job).await.unwrap_err();
    assert!(matches!(error, SystemError::Refused { .. }), "{error}");
}

async fn a_lost_node_loses_its_job_and_slurm_does_not_run_it_again(
    fixture: &SystemFixture,
    slurm: &mut PrivateSlurm,
) {
    let mut job = fixture.job("echo $$ >> runs; touch lost; exec sleep 600");
    job.options = vec!["--nodelist=n2".to_owned()];
    let id = fixture.system.submit(&job).await.unwrap();
    fixture.file("lost").await;
    slurm.lose_node("n2").unwrap();
    let end = fixture.end(&id).await;
    assert_eq!((end.exit, end.cause), (None, JobEndCause::NodeLost));
    // Its process still runs, but its results must not be accepted any more.
    assert!(is_alive(&fixture.read("runs")), "Slurm runs it again, or nothing was lost");
}

async fn a_job_outlives_an_outage_of_the_controller(fixture: &SystemFixture, slurm: &mut PrivateSlurm) {
    let id = fixture.submit("until [ -e over ]; do sleep 0.1; done; exit 5").await;
    fixture.running(&id).await;
    slurm.stop_controller().unwrap();
    let error = fixture.system.status(std::slice::from_ref(&id)).await.unwrap_err();
    assert!(error.is_query_retryable() && !matches!(error, SystemError::NoAnswer { .. }), "{error}");
    let job = fixture.job("exit 6");
    let submitted = fixture.system.submit(&job);
    let (submitted, ()) = tokio::join!(submitted, async { slurm.start_controller().unwrap() });
    std::fs::write(fixture.path("over"), "").unwrap();
    assert_eq!(fixture.end(&id).await.exit, Some(Exit::Code(5)));
    // The controller is back in time or not; either result is consistent.
    match submitted {
        Ok(id) => assert_eq!(fixture.end(&id).await.exit, Some(Exit::Code(6))),
        Err(error) => assert!(error.is_retryable(), "{error}"),
    }
}

/// Slurm returns an error if the query has only unknown ids, and omits them otherwise.
#[tokio::test]
async fn a_job_that_slurm_has_forgotten_is_gone() {
    // The shortest `MinJobAge`.
    let slurm = PrivateSlurm::start_with(&[("MinJobAge", "2")]).unwrap();
    let fixture = fixture(&slurm);
    let live = fixture.submit("sleep 600").await;
    let id = fixture.submit("exit 0").await;
    eventually(async || fixture.state(&id).await == JobState::Gone).await;
    let states = fixture.system.status(&[id.clone(), live.clone()]).await.unwrap();
    assert_eq!(states[&id], JobState::Gone);
    assert!(states[&live].is_live());
    assert_eq!(fixture.end(&id).await, JobEnd::unknown());
}

/// A site may let Slurm requeue such jobs. Ours are not requeued, because the first run may still
/// be running.
#[tokio::test]
async fn a_job_that_makes_way_for_another_is_told_so_and_not_run_again() {
    let slurm = PrivateSlurm::start_with(&[
        ("PreemptType", "preempt/partition_prio"),
        ("PreemptMode", "REQUEUE"),
        ("PartitionName", "urgent Nodes=ALL PriorityTier=100 State=UP"),
    ])
    .unwrap();
    let fixture = fixture(&slurm);
    let mut job = fixture.job("echo run >> runs; touch ready; exec sleep 600");
    job.threads = 2.try_into().unwrap();
    job.options = vec!["--nodelist=n1".to_owned()];
    let id = fixture.system.submit(&job).await.unwrap();
    fixture.file("ready").await;
    let mut urgent = fixture.job("exit 0");
    urgent.attributes.queue = Some("urgent".to_owned());
    urgent.options = job.options.clone();
    let urgent = fixture.system.submit(&urgent).await.unwrap();
    assert_eq!(fixture.end(&id).await.cause, JobEndCause::Preempted);
    assert!(fixture.end(&urgent).await.is_success());
    assert_eq!(fixture.read("runs"), "run\n");
}

#[tokio::test]
async fn a_controller_that_is_away_is_tried_again_and_then_told() {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("slurm.conf");
    let settings = "ClusterName=none\nSlurmctldHost=localhost\nSlurmctldPort=1\nAuthType=auth/none\n\
                    CredType=cred/none\nMessageTimeout=1\nNodeName=n1\nPartitionName=main Nodes=ALL\n";
    std::fs::write(&conf, settings).unwrap();
    let away = site([("SLURM_CONF", conf.display().to_string())]);
    let fixture = SystemFixture::new(open_system(BaseSystem::Slurm, away));
    let error = fixture.system.submit(&fixture.job("exit 0")).await.unwrap_err();
    assert!(
        matches!(&error, SystemError::Unreachable { message, .. } if message.contains("Unable to contact")),
        "{error}"
    );
}

#[tokio::test]
async fn a_machine_without_slurm_is_told() {
    let env = [("PATH".to_owned(), "/nowhere".to_owned())].into();
    let fixture =
        SystemFixture::new(open_system(BaseSystem::Slurm, SystemConfig { env, ..SystemConfig::default() }));
    let error = fixture.system.submit(&fixture.job("exit 0")).await.unwrap_err();
    assert_eq!(error.to_string(), "slurm is not installed: there is no command `sbatch`");
}
