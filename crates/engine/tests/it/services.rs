//! Maintenance services: one leader, tolerance of outages, punctuality.

use std::sync::Arc;
use std::time::Duration;

use longshore::services::{
    Elector, MAINTENANCE_ROLE, Promoter, Pruner, Rescuer, Service, ServiceReport, run_all,
};
use longshore::store::{Queries, Retention, WorkerApi};
use longshore::{LogAlertSink, Scope, Services, SessionId, UnitState, worker_session::NewSession};
use longshore_process::ProcessIdentity;
use longshore_testkit::Fault;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::harness::{AlertLog, Harness, Script, unit};

async fn silent_session(harness: &Harness) {
    let session = NewSession::new(SessionId::new(), "silent");
    harness.store.open_session(session).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_reclaimer_ends_a_session_only_after_watching_it_for_its_ttl() {
    let harness = Harness::new();
    silent_session(&harness).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    let mut reclaimer = Rescuer::new(harness.store.clone());
    let mut seconds = 0;
    while !harness.store.sessions().await.unwrap().is_empty() {
        reclaimer.run_once(Instant::now()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        seconds += 1;
    }
    assert_eq!(seconds, 16, "the first look only begins the watch");
}

#[tokio::test(start_paused = true)]
async fn an_error_makes_the_reclaimer_watch_anew() {
    let harness = Harness::new();
    silent_session(&harness).await;
    let mut reclaimer = Rescuer::new(harness.store.clone());
    for _ in 0..14 {
        reclaimer.run_once(Instant::now()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    harness.store.set_default_fault("session_beats", Some(Fault::FailBefore));
    reclaimer.run_once(Instant::now()).await.unwrap();
    harness.store.set_default_fault("session_beats", None);
    tokio::time::sleep(Duration::from_secs(2)).await;
    reclaimer.run_once(Instant::now()).await.unwrap();
    assert_eq!(harness.store.sessions().await.unwrap().len(), 1);
}

/// Runs rounds of a rescuer for this long.
async fn run_rounds(rescuer: &mut Rescuer, time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        let report = rescuer.run_once(Instant::now()).await.unwrap();
        tokio::time::sleep(report.next.unwrap()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_session_is_found_although_every_poll_is_slow() {
    let harness = Harness::new();
    silent_session(&harness).await;
    harness.store.set_default_fault("session_beats", Some(Fault::Delay(Duration::from_secs(4))));
    let mut rescuer = Rescuer::new(harness.store.clone());
    run_rounds(&mut rescuer, Duration::from_secs(60)).await;
    assert!(harness.store.sessions().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_session_that_beats_is_not_ended_however_slow_the_polls_are() {
    let harness = Harness::new();
    let session = NewSession::new(SessionId::new(), "alive");
    let id = session.id;
    harness.store.open_session(session).await.unwrap();
    harness.store.set_default_fault("session_beats", Some(Fault::Delay(Duration::from_secs(9))));
    let mut rescuer = Rescuer::new(harness.store.clone());
    let beats = async {
        loop {
            harness.store.heartbeat(id, longshore::store::Heartbeat::default()).await.unwrap();
            tokio::time::sleep(Duration::from_secs(14)).await;
        }
    };
    tokio::select! {
        () = beats => {}
        () = run_rounds(&mut rescuer, Duration::from_secs(600)) => {}
    }
    assert_eq!(harness.store.sessions().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_alert_tells_that_dead_workers_are_not_detected_or_late() {
    let harness = Harness::new();
    silent_session(&harness).await;
    let log = Arc::new(AlertLog::default());
    let mut rescuer = Rescuer::new(harness.store.clone()).alert_sink(log.clone());
    for (fault, words) in [
        (Fault::FailBefore, "are not detected"),
        (Fault::Delay(Duration::from_secs(4)), "are detected late"),
        (Fault::Delay(Duration::from_secs(60)), "no answer within 10s"),
    ] {
        harness.store.set_default_fault("session_beats", Some(fault));
        run_rounds(&mut rescuer, Duration::from_secs(40)).await;
        let alerts = log.take();
        assert!(alerts.len() == 1 && alerts[0].contains(words), "{alerts:?}");
        harness.store.set_default_fault("session_beats", None);
        run_rounds(&mut rescuer, Duration::from_secs(40)).await;
    }
    silent_session(&harness).await;
    harness.store.set_default_fault("reclaim", Some(Fault::FailBefore));
    run_rounds(&mut rescuer, Duration::from_secs(60)).await;
    assert!(log.take()[0].contains("cannot be rescued"));
    harness.store.set_default_fault("reclaim", None);
    run_rounds(&mut rescuer, Duration::from_secs(5)).await;
    assert!(harness.store.sessions().await.unwrap().is_empty(), "the next round tries again");
}

#[tokio::test(start_paused = true)]
async fn polls_of_which_some_fail_find_dead_sessions_or_raise_an_alert() {
    for (every, found) in [(5, true), (2, false)] {
        let (harness, log) = (Harness::new(), Arc::new(AlertLog::default()));
        silent_session(&harness).await;
        let calls = std::sync::atomic::AtomicU32::new(0);
        harness.store.set_fault_source(Some(Box::new(move |method| {
            let fails = method == "session_beats"
                && calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed).is_multiple_of(every);
            fails.then_some(Fault::FailBefore)
        })));
        let mut rescuer = Rescuer::new(harness.store.clone()).alert_sink(log.clone());
        run_rounds(&mut rescuer, Duration::from_secs(90)).await;
        assert_eq!(harness.store.sessions().await.unwrap().is_empty(), found);
        assert!(!log.take().is_empty(), "a success in between does not end the trouble");
    }
}

#[tokio::test(start_paused = true)]
async fn an_alert_tells_that_maintenance_does_not_run() {
    let slow = Fault::Delay(Duration::from_secs(5));
    for (method, fault, words) in [
        ("promote", Fault::FailBefore, "rounds of the promoter fail"),
        ("prune", Fault::BrokenStream, "rounds of the pruner fail"),
        ("schedules", Fault::FailBefore, "rounds of the scheduler fail"),
        ("acquire_leadership", Fault::FailBefore, "maintenance does not run"),
        ("acquire_leadership", slow, "its answer takes 5.0s"),
    ] {
        let (harness, log) = (Harness::new(), Arc::new(AlertLog::default()));
        let session =
            NewSession { ttl: Duration::from_secs(3600), ..NewSession::new(SessionId::new(), "leader") };
        let id = session.id;
        harness.store.open_session(session).await.unwrap();
        let services =
            run_all(harness.store.clone(), || Some(id), Arc::default(), Retention::default(), log.clone());
        let driver = async {
            tokio::time::sleep(Duration::from_secs(300)).await;
            assert_eq!(log.take(), Vec::<String>::new());
            harness.store.set_default_fault(method, Some(fault));
            tokio::time::sleep(Duration::from_secs(300)).await;
            let alerts = log.take();
            assert!(alerts.iter().any(|alert| alert.contains(words)), "{method}: {alerts:?}");
            assert!(alerts.len() <= 6, "{alerts:?}");
        };
        tokio::select! {
            () = services => {}
            () = driver => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_promoter_comes_back_when_the_next_unit_is_due() {
    let harness = Harness::new();
    let mut later = unit(&Script::Ok(json!(1)));
    let now = harness.now();
    later.not_before = Some(now + Duration::from_millis(300));
    let id = harness.client.send(later).await.unwrap();
    let mut promoter = Promoter::new(harness.store.clone(), Arc::default());
    let report = promoter.run_once(Instant::now()).await.unwrap();
    assert_eq!(report.next, Some(Duration::from_millis(300)));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let report = promoter.run_once(Instant::now()).await.unwrap();
    assert_eq!(report, ServiceReport { moved: 1, more: false, next: None });
    assert_eq!(harness.unit(id).await.state, UnitState::Ready);
}

#[tokio::test(start_paused = true)]
async fn the_pruner_removes_what_was_kept_long_enough() {
    let harness = Harness::new();
    let id = harness.send(Script::Ok(json!(1))).await;
    harness.worker(1).until_idle(true).build().unwrap().run().await.unwrap();
    let retention = Retention { done: Duration::from_secs(60), ..Retention::default() };
    let mut pruner = Pruner::new(harness.store.clone(), retention);
    assert_eq!(pruner.run_once(Instant::now()).await.unwrap().moved, 0);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(pruner.run_once(Instant::now()).await.unwrap().moved, 2, "the unit and its empty queue");
    assert!(harness.store.unit(&Scope::All, id).await.is_err());
}

/// The number of `promote` calls in a minute of this many workers.
async fn promotions(workers: usize, services: Services) -> u64 {
    let harness = Harness::new();
    let build = |_| harness.worker(1).services(services).build().unwrap();
    let workers: Vec<_> = (0..workers).map(build).collect();
    let controls: Vec<_> = workers.iter().map(longshore::Worker::control).collect();
    let mut runs = tokio::task::JoinSet::new();
    for worker in workers {
        runs.spawn(worker.run());
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let calls = harness.store.calls("promote");
    controls.iter().for_each(longshore::WorkerControl::drain);
    for report in runs.join_all().await {
        report.unwrap();
    }
    harness.assert_clean().await;
    calls
}

#[tokio::test(start_paused = true)]
async fn one_of_many_workers_does_the_upkeep() {
    assert_eq!(promotions(1, Services::None).await, 0);
    let (one, many) = (promotions(1, Services::All).await, promotions(5, Services::All).await);
    assert!((55..=125).contains(&one), "{one} rounds in a minute");
    assert!(many <= one + one / 4, "{many} rounds by five workers, {one} by one");
}

#[tokio::test(start_paused = true)]
async fn when_the_leader_dies_another_takes_over_within_seconds() {
    let harness = Harness::new();
    let first = harness.worker(1).build().unwrap();
    tokio::select! {
        _ = first.run() => unreachable!(),
        () = tokio::time::sleep(Duration::from_secs(20)) => {}
    }
    let mut later = unit(&Script::Ok(json!(1)));
    later.not_before = Some(harness.now() + Duration::from_secs(1));
    let id = harness.client.send(later).await.unwrap();
    let second = harness.worker(1).build().unwrap();
    let control = second.control();
    let watcher = async {
        let unit = harness.client.wait(id, Some(Duration::from_secs(60))).await.unwrap();
        let took = unit.since.since(unit.created_at);
        assert!(took < Duration::from_secs(12), "{took:?}");
        control.drain();
    };
    let (report, ()) = tokio::join!(second.run(), watcher);
    assert_eq!(report.unwrap().done, 1);
}

/// Opens a session of a process: the identity of this one, with another start time or host.
async fn session_of_process(harness: &Harness, changed: impl Fn(u64, &str) -> (u64, String)) {
    let text = ProcessIdentity::current().unwrap().to_string();
    let mut parts = text.splitn(3, ' ');
    let mut next = || parts.next().unwrap();
    let (pid, start_time, host) = (next(), next(), next());
    let (start_time, host) = changed(start_time.parse().unwrap(), host);
    let process = Some(format!("{pid} {start_time} {host}"));
    let session = NewSession { process, ..NewSession::new(SessionId::new(), "of a process") };
    harness.store.open_session(session).await.unwrap();
}

#[tokio::test]
async fn a_session_ends_at_once_if_its_process_on_this_host_has_ended() {
    let harness = Harness::new();
    session_of_process(&harness, |start_time, host| (start_time - 1, host.to_owned())).await;
    Rescuer::new(harness.store.clone()).run_once(Instant::now()).await.unwrap();
    assert_eq!(harness.store.sessions().await.unwrap(), []);
}

#[tokio::test]
async fn a_session_of_a_running_or_unknown_process_waits_for_its_ttl() {
    let harness = Harness::new();
    session_of_process(&harness, |start_time, host| (start_time, host.to_owned())).await;
    session_of_process(&harness, |start_time, host| (start_time - 1, format!("other-{host}"))).await;
    Rescuer::new(harness.store.clone()).run_once(Instant::now()).await.unwrap();
    assert_eq!(harness.store.sessions().await.unwrap().len(), 2);
}

#[test]
fn handlers_that_occupy_all_blocking_threads_do_not_stop_the_rescuer() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let blocked = tokio::task::spawn_blocking(move || gate.recv());
        let harness = Harness::new();
        session_of_process(&harness, |start_time, host| (start_time - 1, host.to_owned())).await;
        let mut rescuer = Rescuer::new(harness.store.clone());
        let round = tokio::time::timeout(Duration::from_secs(20), rescuer.run_once(Instant::now())).await;
        drop(open);
        round.expect("the round waits for a blocking thread").unwrap();
        assert_eq!(harness.store.sessions().await.unwrap(), []);
        assert!(blocked.await.unwrap().is_err());
    });
}

#[tokio::test]
async fn a_worker_that_does_not_lead_takes_over_from_a_process_of_its_host() {
    let harness = Harness::new();
    let [leader, follower] = [SessionId::new(), SessionId::new()];
    for id in [leader, follower] {
        harness.store.open_session(NewSession::new(id, "")).await.unwrap();
    }
    let (elector, mut leads) = Elector::new(harness.store.clone(), MAINTENANCE_ROLE);
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    let start_time = after_name.split_whitespace().nth(19).unwrap();
    let own = ProcessIdentity::current().unwrap().to_string();
    let process = Some(format!("{} {start_time} {}", child.id(), own.splitn(3, ' ').nth(2).unwrap()));
    let killed = SessionId::new();
    let session = NewSession { process, ..NewSession::new(killed, "killed") };
    harness.store.open_session(session).await.unwrap();
    let services = async {
        leads.wait_gained().await;
        let (alerts, due) = (Arc::new(LogAlertSink), Arc::new(Notify::new()));
        let session = move || Some(follower);
        run_all(harness.store.clone(), session, due, Retention::default(), alerts).await;
    };
    let is_open = async || harness.store.sessions().await.unwrap().iter().any(|open| open.id == killed);
    let watcher = async {
        // The first look finds the process running.
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(is_open().await);
        child.kill().unwrap();
        child.wait().unwrap();
        while is_open().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = elector.campaign(move || Some(leader)) => {}
        () = services => {}
        ended = tokio::time::timeout(Duration::from_secs(10), watcher) => ended.expect("it waits for the ttl"),
    }
}
