//! Cases for every base system.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use longshore_dispatch::system::{Exit, JobEndCause, JobId, JobState, SystemError, wait_for_jobs};

use super::fixture::{PACE, SystemFixture, code, eventually, is_alive};

/// What a system reports about jobs that were signalled or cancelled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reporting {
    /// The signal and the cause.
    All,
    /// The signal without the cause.
    Signals,
    /// Only the end of the job.
    Nothing,
}

/// All cases in a row, because starting a system takes longer than running them.
pub(super) async fn all(fixture: &SystemFixture, reporting: Reporting) {
    exits_are_told(fixture, reporting).await;
    what_a_job_is_told_arrives(fixture).await;
    outputs_go_where_they_should(fixture).await;
    a_cancelled_job_ends_with_its_children(fixture, reporting).await;
    what_nobody_knows_is_gone(fixture).await;
    a_job_that_cannot_be_told_is_refused(fixture).await;
}

async fn exits_are_told(fixture: &SystemFixture, reporting: Reporting) {
    let mut ids = Vec::new();
    for lines in ["exit 0", "exit 42", "kill -11 $$", "exit 3", "no-such-command-here"] {
        ids.push(fixture.submit(lines).await);
    }
    let distinct: BTreeSet<&JobId> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len());
    let states = fixture.system.status(&ids).await.unwrap();
    assert!(ids.iter().all(|id| states.contains_key(id)), "{states:?}");
    let ends = wait_for_jobs(fixture.system.as_ref(), &ids, PACE).await.unwrap();
    let exits: Vec<Option<Exit>> = ids.iter().map(|id| ends[id].exit).collect();
    let wanted = [Exit::Code(0), Exit::Code(42), Exit::Signal(11), Exit::Code(3), Exit::Code(127)];
    if reporting == Reporting::Nothing {
        assert_eq!(exits, [None; 5]);
    } else {
        assert_eq!(exits, wanted.map(Some));
    }
}

async fn what_a_job_is_told_arrives(fixture: &SystemFixture) {
    let out = fixture.path("what/it said");
    let mut job = fixture.job(r#"printf '%s|' "$PWD" "$A" "$LONGSHORE_X" "$#" "$@""#);
    let odd = "it's \"$HOME\"\nsecond line\\";
    job.env = [("A", odd), ("LONGSHORE_X", "ours")].map(|(a, b)| (a.into(), b.into())).into();
    if let longshore_dispatch::system::JobProgram::Script { args, .. } = &mut job.program {
        *args = vec![odd.to_owned(), "-x".to_owned(), String::new()];
    }
    job.stdout = Some(out);
    job.threads = NonZeroU32::new(2).unwrap();
    job.memory = Some(1024);
    job.time = Some(Duration::from_secs(90));
    let id = fixture.system.submit(&job).await.unwrap();
    fixture.end(&id).await;
    let dir = job.dir.display();
    let wanted = format!("{dir}|{odd}|ours|3|{odd}|-x||");
    eventually(async || fixture.read("what/it said") == wanted).await;
}

async fn outputs_go_where_they_should(fixture: &SystemFixture) {
    let plain = tempfile::tempdir().unwrap();
    let path = |name: &str| plain.path().join(name);
    let read = |name: &str| std::fs::read_to_string(path(name)).unwrap_or_default();
    let mut both = fixture.job("echo out; echo err >&2");
    both.stdout = Some(path("both"));
    let mut each = both.clone();
    (each.stdout, each.stderr) = (Some(path("out")), Some(path("err")));
    let mut same = both.clone();
    (same.stdout, same.stderr) = (Some(path("same")), Some(path("same")));
    for job in [&both, &each, &same] {
        let id = fixture.system.submit(job).await.unwrap();
        fixture.end(&id).await;
    }
    for name in ["both", "same"] {
        eventually(async || read(name) == "out\nerr\n").await;
    }
    eventually(async || read("out") == "out\n" && read("err") == "err\n").await;
}

async fn a_cancelled_job_ends_with_its_children(fixture: &SystemFixture, reporting: Reporting) {
    let lines =
        "sleep 600 & echo $! > \"child.$1\"; trap '' TERM; touch \"ready.$1\"; while :; do wait; done";
    let mut ids = Vec::new();
    for name in ["a", "b"] {
        let mut job = fixture.job(lines);
        if let longshore_dispatch::system::JobProgram::Script { args, .. } = &mut job.program {
            args.push(name.to_owned());
        }
        ids.push(fixture.system.submit(&job).await.unwrap());
    }
    for (id, name) in ids.iter().zip(["a", "b"]) {
        fixture.file(&format!("ready.{name}")).await;
        fixture.running(id).await;
    }
    fixture.system.cancel(&ids).await.unwrap();
    for (id, name) in ids.iter().zip(["a", "b"]) {
        let end = fixture.end(id).await;
        assert!(!end.is_success(), "{end:?}");
        if reporting == Reporting::All {
            assert_eq!(end.cause, JobEndCause::Cancelled);
        }
        let child = fixture.read(&format!("child.{name}"));
        eventually(async || !is_alive(&child)).await;
    }
    fixture.system.cancel(&ids).await.unwrap();
}

async fn what_nobody_knows_is_gone(fixture: &SystemFixture) {
    let live = fixture.submit("sleep 600").await;
    let strange = [JobId::new("999999"), JobId::new("999998")];
    for id in &strange {
        assert_eq!(fixture.state(id).await, JobState::Gone, "alone");
    }
    let all = [strange[0].clone(), live.clone(), strange[1].clone()];
    let states = fixture.system.status(&all).await.unwrap();
    assert_eq!(states[&strange[0]], JobState::Gone);
    assert_eq!(states[&strange[1]], JobState::Gone);
    assert!(states[&live].is_live(), "{states:?}");
    assert!(fixture.system.status(&[]).await.unwrap().is_empty());
    fixture.system.cancel(&all).await.unwrap();
    assert_ne!(fixture.end(&live).await, code(0));
}

/// For systems that can look up jobs by name.
pub(super) async fn jobs_are_found_by_their_names(fixture: &SystemFixture) {
    let names = ["first of ours", "nobody's", "second-of-ours"].map(str::to_owned);
    assert_eq!(fixture.system.find(&names).await.unwrap(), []);
    let mut ids = Vec::new();
    for name in [&names[0], &names[2]] {
        let mut job = fixture.job("sleep 600");
        job.name.clone_from(name);
        ids.push(fixture.system.submit(&job).await.unwrap());
    }
    let mut found = fixture.system.find(&names).await.unwrap();
    found.sort();
    let wanted = [(names[0].clone(), ids[0].clone()), (names[2].clone(), ids[1].clone())];
    assert_eq!(found, wanted);
    fixture.system.cancel(&ids).await.unwrap();
    for id in &ids {
        fixture.end(id).await;
    }
    assert_eq!(fixture.system.find(&names).await.unwrap(), []);
}

async fn a_job_that_cannot_be_told_is_refused(fixture: &SystemFixture) {
    let mut job = fixture.job("exit 0");
    job.name = "two\nlines".to_owned();
    let error = fixture.system.submit(&job).await.unwrap_err();
    assert!(matches!(error, SystemError::InvalidJob { .. }), "{error}");
    let mut job = fixture.job("exit 0");
    job.stdout = Some("relative".into());
    let error = fixture.system.submit(&job).await.unwrap_err();
    assert!(error.to_string().contains("`a job\\'s name`: the path relative is not absolute"), "{error}");
}
