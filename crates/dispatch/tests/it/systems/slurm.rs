//! Jobs of a real Slurm.

use longshore_dispatch::system::{
    Array, BaseSystem, Cause, End, Exit, JobState, Site, SystemError, system,
};
use longshore_testkit::servers::PrivateSlurm;

use super::cases::{Tells, all, jobs_are_found_by_their_names};
use super::place::{Place, eventually, is_alive, site};

fn place(slurm: &PrivateSlurm) -> Place {
    Place::new(system(BaseSystem::Slurm, site([slurm.env()])))
}

#[tokio::test]
async fn slurm_does_what_every_base_system_does() {
    let mut slurm = PrivateSlurm::start().unwrap();
    let place = place(&slurm);
    all(&place, Tells::All).await;
    jobs_are_found_by_their_names(&place).await;
    tasks_of_an_array_have_an_index_and_a_file_each(&place).await;
    what_slurm_refuses_is_told_at_once(&place).await;
    a_lost_node_loses_its_job_and_slurm_does_not_run_it_again(&place, &mut slurm).await;
    a_job_outlives_an_outage_of_the_controller(&place, &mut slurm).await;
}

async fn tasks_of_an_array_have_an_index_and_a_file_each(place: &Place) {
    let mut job = place.job("echo $LONGSHORE_ARRAY_INDEX; exit $((LONGSHORE_ARRAY_INDEX - 1))");
    job.array = Some(Array { first: 1, last: 3, throttle: Some(2.try_into().unwrap()) });
    job.stdout = Some(place.path("task"));
    let id = place.system.submit(&job).await.unwrap();
    let end = place.end(&id).await;
    assert!(matches!(end.exit, Some(Exit::Code(1 | 2))), "{end:?}");
    let said: Vec<String> = (1..=3).map(|index| place.read(&format!("task.{index}"))).collect();
    assert_eq!(said, ["1\n", "2\n", "3\n"]);
}

async fn what_slurm_refuses_is_told_at_once(place: &Place) {
    let mut job = place.job("exit 0");
    job.terms.queue = Some("nowhere".to_owned());
    let error = place.system.submit(&job).await.unwrap_err();
    assert!(
        matches!(&error, SystemError::Refused { words, .. } if words.contains("invalid partition")),
        "{error}"
    );
    let mut job = place.job("exit 0");
    job.options = vec!["--no-such-option".to_owned()];
    let error = place.system.submit(&job).await.unwrap_err();
    assert!(matches!(error, SystemError::Refused { .. }), "{error}");
}

async fn a_lost_node_loses_its_job_and_slurm_does_not_run_it_again(
    place: &Place,
    slurm: &mut PrivateSlurm,
) {
    let mut job = place.job("echo $$ >> runs; touch lost; exec sleep 600");
    job.options = vec!["--nodelist=n2".to_owned()];
    let id = place.system.submit(&job).await.unwrap();
    place.file("lost").await;
    slurm.lose("n2").unwrap();
    let end = place.end(&id).await;
    assert_eq!((end.exit, end.cause), (None, Cause::NodeLost));
    // Its process is still there: whoever it works for must not believe it any more.
    assert!(is_alive(&place.read("runs")), "Slurm runs it again, or nothing was lost");
}

async fn a_job_outlives_an_outage_of_the_controller(place: &Place, slurm: &mut PrivateSlurm) {
    let id = place.submit("until [ -e over ]; do sleep 0.1; done; exit 5").await;
    place.running(&id).await;
    slurm.halt().unwrap();
    let error = place.system.status(std::slice::from_ref(&id)).await.unwrap_err();
    assert!(error.may_ask_again() && !matches!(error, SystemError::Silent { .. }), "{error}");
    let job = place.job("exit 6");
    let submitted = place.system.submit(&job);
    let (submitted, ()) = tokio::join!(submitted, async { slurm.go().unwrap() });
    std::fs::write(place.path("over"), "").unwrap();
    assert_eq!(place.end(&id).await.exit, Some(Exit::Code(5)));
    // It came back soon enough, or it did not: what was told is so.
    match submitted {
        Ok(id) => assert_eq!(place.end(&id).await.exit, Some(Exit::Code(6))),
        Err(error) => assert!(error.is_retryable(), "{error}"),
    }
}

/// Slurm tells it in two ways: with an error where it is asked for nothing else, else by leaving it out.
#[tokio::test]
async fn a_job_that_slurm_has_forgotten_is_gone() {
    // The shortest memory that Slurm can be given.
    let slurm = PrivateSlurm::start_with(&[("MinJobAge", "2")]).unwrap();
    let place = place(&slurm);
    let live = place.submit("sleep 600").await;
    let id = place.submit("exit 0").await;
    eventually(async || place.state(&id).await == JobState::Gone).await;
    let states = place.system.status(&[id.clone(), live.clone()]).await.unwrap();
    assert_eq!(states[&id], JobState::Gone);
    assert!(states[&live].is_live());
    assert_eq!(place.end(&id).await, End::unknown());
}

/// A site may have Slurm run such jobs again. Ours are not: their former selves may still run.
#[tokio::test]
async fn a_job_that_makes_way_for_another_is_told_so_and_not_run_again() {
    let slurm = PrivateSlurm::start_with(&[
        ("PreemptType", "preempt/partition_prio"),
        ("PreemptMode", "REQUEUE"),
        ("PartitionName", "urgent Nodes=ALL PriorityTier=100 State=UP"),
    ])
    .unwrap();
    let place = place(&slurm);
    let mut job = place.job("echo run >> runs; touch ready; exec sleep 600");
    job.threads = 2.try_into().unwrap();
    job.options = vec!["--nodelist=n1".to_owned()];
    let id = place.system.submit(&job).await.unwrap();
    place.file("ready").await;
    let mut urgent = place.job("exit 0");
    urgent.terms.queue = Some("urgent".to_owned());
    urgent.options = job.options.clone();
    let urgent = place.system.submit(&urgent).await.unwrap();
    assert_eq!(place.end(&id).await.cause, Cause::Preempted);
    assert!(place.end(&urgent).await.is_success());
    assert_eq!(place.read("runs"), "run\n");
}

#[tokio::test]
async fn a_controller_that_is_away_is_tried_again_and_then_told() {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("slurm.conf");
    let settings = "ClusterName=none\nSlurmctldHost=localhost\nSlurmctldPort=1\nAuthType=auth/none\n\
                    CredType=cred/none\nMessageTimeout=1\nNodeName=n1\nPartitionName=main Nodes=ALL\n";
    std::fs::write(&conf, settings).unwrap();
    let away = site([("SLURM_CONF", conf.display().to_string())]);
    let place = Place::new(system(BaseSystem::Slurm, away));
    let error = place.system.submit(&place.job("exit 0")).await.unwrap_err();
    assert!(
        matches!(&error, SystemError::Away { words, .. } if words.contains("Unable to contact")),
        "{error}"
    );
}

#[tokio::test]
async fn a_machine_without_slurm_is_told() {
    let env = [("PATH".to_owned(), "/nowhere".to_owned())].into();
    let place = Place::new(system(BaseSystem::Slurm, Site { env, ..Site::default() }));
    let error = place.system.submit(&place.job("exit 0")).await.unwrap_err();
    assert_eq!(error.to_string(), "slurm is not here: there is no command `sbatch`");
}
