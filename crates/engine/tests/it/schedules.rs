//! Schedules fire once per time, whatever happens to leaders, clocks, workers and leases.

use std::time::Duration;

use longshore::schedule::{
    FiringScope, MissedPolicy, NewSchedule, OverlapPolicy, Schedule, SchedulePlan, UnitTemplate,
    firing_batch_id, firing_unit_id,
};
use longshore::services::{Scheduler, Service};
use longshore::store::{Admin, Capacity, Enqueue, IfExists, Queries, QueueChange, ScheduleSwitch, Schedules};
use longshore::{CronSchedule, NewBatch, Payload, QueueName, ScheduleName, Scope, TenantId, Timestamp, Unit};
use longshore_testkit::Fault;
use serde_json::json;
use tokio::time::Instant;

use crate::harness::{Harness, Jump, Script, kind};

const ALL: Scope = Scope::All;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn name(name: &str) -> ScheduleName {
    ScheduleName::new(name).unwrap()
}

/// A schedule that sends `script`.
fn plan(cron: &str, script: &Script) -> SchedulePlan {
    SchedulePlan {
        cron: cron.to_owned(),
        zone: "UTC".to_owned(),
        missed: MissedPolicy::Once,
        overlap: OverlapPolicy::Allow,
        template: UnitTemplate::new(kind(), Payload::json(script).unwrap()),
    }
}

fn quick(cron: &str) -> SchedulePlan {
    plan(cron, &Script::Ok(json!(1)))
}

impl Harness {
    async fn schedule(&self, label: &str, plan: SchedulePlan) {
        let next_fire = CronSchedule::new(&plan.cron, &plan.zone).unwrap().next_after(self.now());
        let tenant = TenantId::default();
        let new = NewSchedule { name: name(label), tenant, plan, paused: false, next_fire };
        self.store.put_schedule(&ALL, new, IfExists::Replace).await.unwrap();
    }

    async fn look(&self, label: &str) -> Schedule {
        (&*self.store as &dyn longshore::Store)
            .schedule(&ALL, &TenantId::default(), &name(label))
            .await
            .unwrap()
    }

    /// The units that schedules sent, oldest first.
    async fn fired(&self) -> Vec<Unit> {
        let page = self.store.units(&ALL, &Default::default(), None, 10_000).await.unwrap();
        let mut units = page.items;
        units.sort_by_key(|unit| unit.id);
        units
    }

    /// Runs one round of a new scheduler. Returns how many times it fired.
    async fn round(&self) -> u64 {
        let mut scheduler = Scheduler::new(self.store.clone());
        let report = scheduler.run_once(Instant::now()).await.unwrap();
        report.moved
    }

    /// Runs a worker for this long, then drains it.
    async fn work_for(&self, time: Duration) {
        let worker = self.worker(4).build().unwrap();
        let control = worker.control();
        let clock = async {
            tokio::time::sleep(time).await;
            control.drain();
        };
        let (report, ()) = tokio::join!(worker.run(), clock);
        report.unwrap();
    }
}

/// The units' keys, which contain the times of their firings.
fn keys(units: &[Unit]) -> Vec<String> {
    units.iter().map(|unit| unit.key.clone().unwrap_or_default()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_worker_fires_schedules_on_time() {
    let harness = Harness::new();
    harness.schedule("s", quick("* * * * * *")).await;
    harness.work_for(Duration::from_millis(30_500)).await;
    let units = harness.fired().await;
    assert_eq!(units.len(), 30);
    for unit in &units {
        let at = Timestamp::parse(&unit.created_at.to_string()).unwrap().as_micros();
        let late = at.rem_euclid(1_000_000);
        assert!(late <= 100_000, "{late} µs after the second");
    }
    assert_eq!(harness.look("s").await.fired, 30);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn when_the_leader_dies_each_time_still_fires_once() {
    let harness = Harness::new();
    let all = SchedulePlan { missed: MissedPolicy::All(100), ..quick("* * * * * *") };
    harness.schedule("s", all).await;
    for _ in 0..5 {
        // Dropped in the middle, several times.
        let worker = harness.worker(4).build().unwrap();
        let _ = tokio::time::timeout(Duration::from_millis(8_700), worker.run()).await;
    }
    harness.work_for(secs(20)).await;
    let (units, schedule) = (harness.fired().await, harness.look("s").await);
    let mut keys = keys(&units);
    assert_eq!(keys.len() as u64, schedule.fired);
    keys.dedup();
    assert_eq!(keys.len() as u64, schedule.fired, "no time twice");
    assert!(schedule.fired >= 62, "no time left out: {}", schedule.fired);
    assert_eq!(schedule.missed_times, 0);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_ahead_misses_times_by_their_policy() {
    let harness = Harness::new();
    for (label, missed) in
        [("skip", MissedPolicy::Skip), ("once", MissedPolicy::Once), ("all", MissedPolicy::All(3))]
    {
        harness.schedule(label, SchedulePlan { missed, ..quick("0 * * * *") }).await;
    }
    harness.jump(Jump::Ahead(secs(10 * 3_600 + 600)));
    harness.round().await;
    let counts = async |label| {
        let schedule = harness.look(label).await;
        (schedule.fired, schedule.missed_times)
    };
    assert_eq!(counts("skip").await, (0, 10));
    assert_eq!(counts("once").await, (1, 9));
    assert_eq!(counts("all").await, (3, 7));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_back_fires_nothing_again() {
    let harness = Harness::new();
    harness.schedule("s", quick("* * * * *")).await;
    for _ in 0..30 {
        tokio::time::sleep(secs(60)).await;
        harness.round().await;
    }
    assert_eq!(harness.look("s").await.fired, 30);
    harness.jump(Jump::Back(secs(600)));
    for _ in 0..9 {
        tokio::time::sleep(secs(60)).await;
        assert_eq!(harness.round().await, 0, "that time has fired");
    }
    tokio::time::sleep(secs(120)).await;
    assert_eq!(harness.round().await, 1);
    let mut keys = keys(&harness.fired().await);
    keys.dedup();
    assert_eq!(keys.len(), 31);
}

#[tokio::test(start_paused = true)]
async fn a_firing_whose_answer_was_lost_is_not_repeated() {
    for fault in [Fault::FailAfter, Fault::FailBefore, Fault::Duplicate] {
        let harness = Harness::with_faults(&[("fire_schedule", 1, fault)]);
        harness.schedule("s", quick("* * * * *")).await;
        tokio::time::sleep(secs(61)).await;
        let mut scheduler = Scheduler::new(harness.store.clone());
        let _ = scheduler.run_once(Instant::now()).await;
        harness.round().await;
        assert_eq!(harness.fired().await.len(), 1, "{fault:?}");
        assert_eq!(harness.look("s").await.fired, 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_schedule_may_be_removed_or_paused_while_it_fires() {
    for removed in [true, false] {
        let slow = Fault::Delay(secs(5));
        let harness = Harness::with_faults(&[("fire_schedule", 1, slow)]);
        harness.schedule("s", quick("* * * * *")).await;
        tokio::time::sleep(secs(61)).await;
        let meanwhile = async {
            tokio::time::sleep(secs(1)).await;
            let (tenant, name) = (TenantId::default(), name("s"));
            if removed {
                harness.store.switch_schedule(&ALL, &tenant, &name, ScheduleSwitch::Remove).await.unwrap();
            } else {
                let pause = ScheduleSwitch::Pause;
                harness.store.switch_schedule(&ALL, &tenant, &name, pause).await.unwrap();
            }
        };
        let (fired, ()) = tokio::join!(harness.round(), meanwhile);
        assert_eq!((fired, harness.fired().await.len()), (0, 0), "removed: {removed}");
        assert_eq!(harness.round().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn what_passes_while_a_schedule_is_paused_is_not_missed() {
    let harness = Harness::new();
    harness.schedule("s", quick("* * * * *")).await;
    let switch = async |switch| {
        let (tenant, name) = (TenantId::default(), name("s"));
        harness.store.switch_schedule(&ALL, &tenant, &name, switch).await.unwrap();
    };
    switch(ScheduleSwitch::Pause).await;
    tokio::time::sleep(secs(3_600)).await;
    assert_eq!(harness.round().await, 0);
    let next = CronSchedule::new("* * * * *", "UTC").unwrap().next_after(harness.now());
    switch(ScheduleSwitch::Resume { next }).await;
    tokio::time::sleep(secs(60)).await;
    assert_eq!(harness.round().await, 1);
    assert_eq!(harness.look("s").await.missed_times, 0);
}

#[tokio::test(start_paused = true)]
async fn a_long_run_makes_the_next_times_skip_or_wait() {
    let harness = Harness::new();
    // Each run takes three and a half of the schedule's ten-second intervals.
    let long = plan("*/10 * * * * *", &Script::Sleep(35_000));
    harness.schedule("skip", SchedulePlan { overlap: OverlapPolicy::Skip, ..long.clone() }).await;
    harness.schedule("wait", SchedulePlan { overlap: OverlapPolicy::Wait, ..long.clone() }).await;
    harness.schedule("allow", SchedulePlan { overlap: OverlapPolicy::Allow, ..long }).await;
    let worker = harness.worker(20).build().unwrap();
    let control = worker.control();
    let clock = async {
        tokio::time::sleep(secs(125)).await;
        let seen = (harness.look("skip").await, harness.look("wait").await, harness.look("allow").await);
        control.stop();
        seen
    };
    let (report, (skip, wait, allow)) = tokio::join!(worker.run(), clock);
    report.unwrap();
    assert_eq!((allow.fired, allow.skipped), (12, 0));
    assert_eq!((skip.fired, skip.skipped), (3, 9), "at 10, 50 and 90");
    assert!((3..=4).contains(&wait.fired), "one after another: {}", wait.fired);
    assert_eq!(skip.missed_times + wait.missed_times, 0);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_was_started_is_live_until_it_has_ended() {
    let harness = Harness::new();
    let mut plan = SchedulePlan { overlap: OverlapPolicy::Skip, ..quick("* * * * *") };
    plan.template.payload = Payload::from(json!({ "ok": 1 }));
    plan.template.starts = FiringScope::Batch;
    harness.schedule("s", plan).await;
    tokio::time::sleep(secs(60)).await;
    assert_eq!(harness.round().await, 1);
    let (tenant, s) = (TenantId::default(), name("s"));
    let schedule = harness.look("s").await;
    let at = schedule.last_fire.unwrap();
    let id = firing_batch_id(&tenant, &s, at);
    harness.store.open_batch(&ALL, NewBatch::new(id.clone())).await.unwrap();
    let unit = firing_unit_id(&tenant, &s, schedule.created_at, at);
    let cancel = longshore::store::UnitAction::Cancel;
    let units = longshore::store::UnitSelection::Ids(vec![unit]);
    harness.store.apply_unit_action(&ALL, units, cancel).await.unwrap();
    tokio::time::sleep(secs(60)).await;
    assert_eq!(harness.round().await, 0, "the unit has ended, its batch has not");
    assert_eq!(harness.look("s").await.skipped, 1);
    (&*harness.store as &dyn longshore::Store).seal_batch(&ALL, &id).await.unwrap();
    tokio::time::sleep(secs(60)).await;
    assert_eq!(harness.round().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_cannot_be_read_does_not_keep_the_others() {
    let harness = Harness::new();
    harness.schedule("b", quick("* * * * *")).await;
    let bad = SchedulePlan { cron: "of a newer version".into(), ..quick("* * * * *") };
    let (tenant, next_fire) = (TenantId::default(), Some(harness.now()));
    let new = NewSchedule { name: name("a"), tenant, plan: bad, paused: false, next_fire };
    harness.store.put_schedule(&ALL, new, IfExists::Keep).await.unwrap();
    tokio::time::sleep(secs(60)).await;
    assert_eq!(harness.round().await, 1);
    assert_eq!(harness.look("b").await.fired, 1);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_fires_late_when_its_queue_was_full() {
    let harness = Harness::new();
    harness.schedule("s", quick("* * * * *")).await;
    let bound = async |units| {
        let capacity = Some(Capacity { units, bytes: None });
        let change = QueueChange { capacity, ..QueueChange::default() };
        (&*harness.store as &dyn longshore::Store)
            .change_queue(&ALL, &QueueName::default(), change)
            .await
            .unwrap();
    };
    bound(Some(0)).await;
    tokio::time::sleep(secs(60)).await;
    assert_eq!(harness.round().await, 0);
    tokio::time::sleep(secs(30)).await;
    bound(None).await;
    assert_eq!(harness.round().await, 1);
    let schedule = harness.look("s").await;
    assert_eq!((schedule.fired, schedule.missed_times), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn many_due_schedules_are_all_taken_on_in_one_round() {
    let harness = Harness::new();
    for n in 0..250 {
        harness.schedule(&format!("s{n}"), quick("* * * * *")).await;
    }
    tokio::time::sleep(secs(60)).await;
    assert_eq!(harness.round().await, 250);
    assert_eq!(harness.round().await, 0);
}
