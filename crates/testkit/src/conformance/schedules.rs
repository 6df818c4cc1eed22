//! Schedules: stored whole, fired once, changed by their tenant only.

use longshore_core::schedule::{
    FiringScope, MissedPolicy, NewSchedule, OverlapPolicy, Schedule, SchedulePlan, ScheduleStep,
    UnitTemplate, firing_batch_id, firing_unit_id,
};
use longshore_core::store::{
    Capacity, FireResult, Firing, IfExists, PutScheduleResult, QueueChange, Queues, ScheduleFilter,
    ScheduleList, ScheduleSwitch, SendRejection, SendResult,
};
use longshore_core::{Error, Payload, ScheduleName, Scope, TenantId, Timestamp, UnitState};

use super::helpers::{ALL, done, kind, queue, secs, tenant, tenant_scope};
use crate::StoreFixture;

fn name(name: &str) -> ScheduleName {
    ScheduleName::new(name).unwrap()
}

fn plan() -> SchedulePlan {
    let mut template = UnitTemplate::new(kind(), Payload::from(b"\xff not JSON".as_slice()));
    template.deadline = Some(secs(3600));
    SchedulePlan {
        cron: "0 2 * * *".into(),
        zone: "Europe/Berlin".into(),
        missed: MissedPolicy::All(3),
        overlap: OverlapPolicy::Wait,
        template,
    }
}

/// A schedule with its first firing `after` seconds from now.
fn nightly(fixture: &StoreFixture, after: u64) -> NewSchedule {
    NewSchedule {
        name: name("nightly"),
        tenant: TenantId::default(),
        plan: plan(),
        paused: false,
        next_fire: Some(fixture.now() + secs(after)),
    }
}

fn created(placed: PutScheduleResult) -> Schedule {
    match placed {
        PutScheduleResult::Created(schedule) => schedule,
        other => unreachable!("not created but {other:?}"),
    }
}

/// A firing for the schedule's next time; the following one is `next`.
fn firing(schedule: &Schedule, next: Option<Timestamp>, now: Timestamp) -> Firing {
    let step = ScheduleStep { at: schedule.next_fire, next, ..ScheduleStep::default() };
    Firing::of(schedule, step, now)
}

impl StoreFixture {
    async fn put(&self, new: NewSchedule) -> Schedule {
        created(self.store.put_schedule(&ALL, new, IfExists::Keep).await.unwrap())
    }

    async fn nightly(&self) -> Schedule {
        self.store.schedule(&ALL, &TenantId::default(), &name("nightly")).await.unwrap()
    }

    async fn fire(&self, firing: &Firing) -> FireResult {
        self.store.fire_schedule(&ALL, firing.clone()).await.unwrap()
    }

    async fn switch(&self, switch: ScheduleSwitch) -> Schedule {
        let (tenant, name) = (TenantId::default(), name("nightly"));
        self.store.switch_schedule(&ALL, &tenant, &name, switch).await.unwrap()
    }

    async fn list_due(&self, after: Option<&str>, limit: u32) -> ScheduleList {
        self.store.schedules(&ALL, &ScheduleFilter::Due, after, limit).await.unwrap()
    }

    async fn due(&self) -> Vec<ScheduleName> {
        let due = self.list_due(None, 100).await.page.items;
        due.into_iter().map(|schedule| schedule.name).collect()
    }
}

pub(super) async fn a_schedule_is_kept_whole(fixture: &StoreFixture) {
    let new = nightly(fixture, 60);
    let put = fixture.put(new.clone()).await;
    let stored = fixture.nightly().await;
    assert_eq!(put, stored);
    assert_eq!((&stored.plan, stored.next_fire), (&new.plan, new.next_fire));
    assert_eq!((stored.fired, stored.skipped, stored.missed_times), (0, 0, 0));
    assert_eq!((stored.created_at, stored.last_fire, stored.paused), (fixture.now(), None, false));
}

pub(super) async fn a_name_that_is_taken_is_kept_or_replaced_as_told(fixture: &StoreFixture) {
    let first = fixture.put(nightly(fixture, 60)).await;
    fixture.fire(&firing(&first, Some(fixture.now() + secs(90)), fixture.now())).await;
    let mut other = nightly(fixture, 120);
    other.plan.cron = "0 3 * * *".into();
    let stored = fixture.store.put_schedule(&ALL, other.clone(), IfExists::Keep).await.unwrap();
    assert_eq!(stored, PutScheduleResult::Unchanged(fixture.nightly().await));
    assert_eq!(fixture.nightly().await.plan.cron, "0 2 * * *");
    let placed = fixture.store.put_schedule(&ALL, other.clone(), IfExists::Replace).await.unwrap();
    let now = fixture.nightly().await;
    assert_eq!(placed, PutScheduleResult::Replaced(now.clone()));
    assert_eq!((&now.plan, now.next_fire), (&other.plan, other.next_fire));
    assert_eq!((now.fired, now.created_at), (1, first.created_at), "the history stays");
}

pub(super) async fn a_tenant_with_schedules_is_not_removed(fixture: &StoreFixture) {
    let tenant = TenantId::default();
    fixture.store.put_tenant(&ALL, &tenant, Default::default()).await.unwrap();
    fixture.put(nightly(fixture, 60)).await;
    let refused = fixture.store.remove_tenant(&ALL, &tenant).await;
    assert!(matches!(&refused, Err(Error::Invalid(why)) if why.contains("1 schedule")), "{refused:?}");
    fixture.store.switch_schedule(&ALL, &tenant, &name("nightly"), ScheduleSwitch::Remove).await.unwrap();
    fixture.store.remove_tenant(&ALL, &tenant).await.unwrap();
}

pub(super) async fn a_firing_moves_the_schedule_and_sends_its_unit(fixture: &StoreFixture) {
    let schedule = fixture.put(nightly(fixture, 60)).await;
    fixture.clock.advance(secs(60));
    let next = Some(fixture.now() + secs(86_400));
    let at = schedule.next_fire.unwrap();
    let id = firing_unit_id(&schedule.tenant, &schedule.name, schedule.created_at, at);
    let fired = fixture.fire(&firing(&schedule, next, fixture.now())).await;
    assert_eq!(fired, FireResult::Committed(vec![SendResult::Created(id)]));
    let unit = fixture.unit(id).await;
    assert_eq!((unit.state, &unit.payload), (UnitState::Ready, &schedule.plan.template.payload));
    assert_eq!(unit.deadline, Some(fixture.now() + secs(3600)));
    let now = fixture.nightly().await;
    assert_eq!((now.last_fire, now.next_fire, now.fired), (Some(at), next, 1));
}

pub(super) async fn one_firing_per_time_however_many_try(fixture: &StoreFixture) {
    let schedule = fixture.put(nightly(fixture, 0)).await;
    let next = Some(fixture.now() + secs(60));
    let firing = firing(&schedule, next, fixture.now());
    let mut tries = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (store, firing) = (fixture.store.clone(), firing.clone());
        tries.spawn(async move { store.fire_schedule(&ALL, firing).await.unwrap() });
    }
    let answers = tries.join_all().await;
    let committed = answers.iter().filter(|fired| matches!(fired, FireResult::Committed(_))).count();
    assert_eq!(committed, 1, "{answers:?}");
    assert_eq!(fixture.nightly().await.fired, 1);
    assert_eq!(fixture.store.totals(&ALL, &Queues::All).await.unwrap().counts.ready, 1);
}

pub(super) async fn a_firing_by_hand_that_is_repeated_counts_once(fixture: &StoreFixture) {
    let schedule = fixture.put(nightly(fixture, 60)).await;
    let by_hand =
        ScheduleStep { at: Some(fixture.now()), next: schedule.next_fire, ..ScheduleStep::default() };
    let firing = Firing::of(&schedule, by_hand, fixture.now());
    let first = fixture.fire(&firing).await;
    assert!(matches!(first, FireResult::Committed(_)));
    assert_eq!(fixture.fire(&firing).await, first, "its answer was lost");
    let now = fixture.nightly().await;
    assert_eq!((now.fired, now.next_fire), (1, schedule.next_fire));
}

pub(super) async fn times_that_are_left_out_are_counted(fixture: &StoreFixture) {
    let schedule = fixture.put(nightly(fixture, 0)).await;
    let next = Some(fixture.now() + secs(60));
    let step = ScheduleStep { at: None, next, missed: 3, skipped: 2 };
    let fired = fixture.fire(&Firing::of(&schedule, step, fixture.now())).await;
    assert_eq!(fired, FireResult::Committed(Vec::new()));
    let now = fixture.nightly().await;
    assert_eq!((now.missed_times, now.skipped, now.fired, now.last_fire), (3, 2, 0, None));
}

pub(super) async fn a_firing_that_finds_no_room_leaves_everything_as_it_was(fixture: &StoreFixture) {
    let schedule = fixture.put(nightly(fixture, 0)).await;
    let full = Capacity { units: Some(0), bytes: None };
    let change = QueueChange { capacity: Some(full), ..QueueChange::default() };
    fixture.store.change_queue(&ALL, &queue("default"), change).await.unwrap();
    let firing = firing(&schedule, Some(fixture.now() + secs(60)), fixture.now());
    let fired = fixture.fire(&firing).await;
    assert!(matches!(fired, FireResult::Rejected(SendRejection::Full { .. })), "{fired:?}");
    assert_eq!(fixture.nightly().await, schedule);
    let room = QueueChange { capacity: Some(Capacity::default()), ..QueueChange::default() };
    fixture.store.change_queue(&ALL, &queue("default"), room).await.unwrap();
    assert!(matches!(fixture.fire(&firing).await, FireResult::Committed(_)));
}

pub(super) async fn a_paused_schedule_is_not_due_and_what_was_decided_before_is_refused(
    fixture: &StoreFixture,
) {
    let schedule = fixture.put(nightly(fixture, 0)).await;
    assert_eq!(fixture.due().await, [name("nightly")]);
    assert!(fixture.switch(ScheduleSwitch::Pause).await.paused);
    assert!(fixture.due().await.is_empty());
    let fired = fixture.fire(&firing(&schedule, None, fixture.now())).await;
    assert_eq!(fired, FireResult::Conflict, "it was read before the pause");
    let next = Some(fixture.now() + secs(60));
    let resumed = fixture.switch(ScheduleSwitch::Resume { next }).await;
    assert_eq!((resumed.paused, resumed.next_fire), (false, next));
    assert!(fixture.due().await.is_empty(), "firings during the pause do not count as missed");
    let again = fixture.switch(ScheduleSwitch::Resume { next: None }).await;
    assert_eq!(again, resumed, "it was not paused");
}

pub(super) async fn a_removed_schedule_does_not_fire(fixture: &StoreFixture) {
    let schedule = fixture.put(nightly(fixture, 0)).await;
    let (own, night) = (TenantId::default(), name("nightly"));
    fixture.store.switch_schedule(&ALL, &own, &night, ScheduleSwitch::Remove).await.unwrap();
    let late = fixture.store.fire_schedule(&ALL, firing(&schedule, None, fixture.now())).await;
    assert!(matches!(late, Err(Error::NotFound { .. })), "{late:?}");
    assert_eq!(fixture.store.totals(&ALL, &Queues::All).await.unwrap().counts.total(), 0);
    let twice = fixture.store.switch_schedule(&ALL, &own, &night, ScheduleSwitch::Remove).await;
    assert!(matches!(twice, Err(Error::NotFound { .. })));
}

pub(super) async fn a_schedule_put_again_does_not_send_the_same_time_twice(fixture: &StoreFixture) {
    let schedule = fixture.put(nightly(fixture, 0)).await;
    let send = firing(&schedule, None, fixture.now());
    fixture.fire(&send).await;
    fixture
        .store
        .switch_schedule(&ALL, &schedule.tenant, &schedule.name, ScheduleSwitch::Remove)
        .await
        .unwrap();
    let anew = fixture.put(nightly(fixture, 0)).await;
    assert_eq!(anew.next_fire, schedule.next_fire);
    fixture.fire(&firing(&anew, None, fixture.now())).await;
    assert_eq!(fixture.store.totals(&ALL, &Queues::All).await.unwrap().counts.ready, 1);
}

pub(super) async fn due_schedules_come_in_pages_with_the_time_to_the_next(fixture: &StoreFixture) {
    for (label, after) in [("a", 0), ("b", 10), ("c", 0), ("d", 20), ("e", 0)] {
        fixture.put(NewSchedule { name: name(label), ..nightly(fixture, after) }).await;
    }
    let never = NewSchedule { name: name("f"), next_fire: None, ..nightly(fixture, 0) };
    fixture.put(never).await;
    let first = fixture.list_due(None, 2).await;
    assert_eq!((first.now, first.next_due), (fixture.now(), Some(secs(10))));
    let second = fixture.list_due(first.page.next.as_deref(), 2).await;
    assert_eq!(second.page.next, None);
    let names = first.page.items.iter().chain(&second.page.items).map(|found| found.name.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["a", "c", "e"]);
}

pub(super) async fn a_tenant_sees_and_steers_its_own_schedules_only(fixture: &StoreFixture) {
    let acmes = NewSchedule { tenant: tenant("acme"), ..nightly(fixture, 0) };
    let other = tenant_scope("other");
    assert!(fixture.store.put_schedule(&other, acmes.clone(), IfExists::Keep).await.is_err());
    let acmes =
        created(fixture.store.put_schedule(&tenant_scope("acme"), acmes, IfExists::Keep).await.unwrap());
    fixture.put(nightly(fixture, 0)).await;
    let (acme, night) = (tenant("acme"), name("nightly"));
    let listed = |scope: Scope| async move {
        let all = ScheduleFilter::All;
        fixture.store.schedules(&scope, &all, None, 10).await.unwrap().page.items.len()
    };
    assert_eq!(
        (listed(ALL).await, listed(tenant_scope("acme")).await, listed(other.clone()).await),
        (2, 1, 0)
    );
    assert!(fixture.store.schedule(&other, &acme, &night).await.is_err());
    assert!(fixture.store.switch_schedule(&other, &acme, &night, ScheduleSwitch::Remove).await.is_err());
    let pause = ScheduleSwitch::Pause;
    assert!(fixture.store.switch_schedule(&other, &acme, &night, pause).await.is_err());
    let firing = firing(&acmes, None, fixture.now());
    assert!(fixture.store.fire_schedule(&other, firing.clone()).await.is_err());
    let forged = Firing { tenant: TenantId::default(), ..firing };
    assert!(fixture.store.fire_schedule(&ALL, forged).await.is_err(), "another tenant's unit");
}

pub(super) async fn lists_are_in_order_without_gap_or_repeat(fixture: &StoreFixture) {
    for label in ["c", "a", "d", "b", "e"] {
        fixture.put(NewSchedule { name: name(label), ..nightly(fixture, 0) }).await;
    }
    let all = ScheduleFilter::All;
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = fixture.store.schedules(&ALL, &all, after.as_deref(), 2).await.unwrap().page;
        seen.extend(page.items.into_iter().map(|found| found.name.to_string()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["a", "b", "c", "d", "e"]);
    assert!(fixture.store.schedules(&ALL, &all, Some("none"), 2).await.is_err());
}

pub(super) async fn what_opens_a_batch_is_told_its_name(fixture: &StoreFixture) {
    let mut new = nightly(fixture, 0);
    new.plan.template.starts = FiringScope::Batch;
    let refused = fixture.store.put_schedule(&ALL, new.clone(), IfExists::Keep).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "its payload is not an object");
    new.plan.template.payload = Payload::from(br#"{"file": "nightly.toml"}"#.as_slice());
    let schedule = fixture.put(new).await;
    fixture.fire(&firing(&schedule, None, fixture.now())).await;
    let at = schedule.next_fire.unwrap();
    let unit = fixture.unit(firing_unit_id(&schedule.tenant, &schedule.name, schedule.created_at, at)).await;
    let payload: serde_json::Value = unit.payload.parse().unwrap();
    assert_eq!(payload["file"], "nightly.toml");
    let batch = firing_batch_id(&schedule.tenant, &schedule.name, at);
    assert_eq!(payload["batch"], batch.as_str());
    assert_eq!(batch.as_str(), "nightly-20260101T000000Z");
}

pub(super) async fn a_fired_unit_runs_like_any_other(fixture: &StoreFixture) {
    let schedule = fixture.put(nightly(fixture, 0)).await;
    fixture.fire(&firing(&schedule, None, fixture.now())).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    fixture.finish(session, held.lease, done()).await;
    assert_eq!(fixture.state(held.unit.id).await, UnitState::Done);
}
