//! Batches that use a provider's batch API, as processes: killed at every step, cancelled, and shown
//! to users.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use longshore_testkit::fake_ai::{BatchItemFailure, BatchPlan, FakeAi, FakeBehaviour};
use longshore_testkit::servers::PrivatePostgres;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::batch_job::{BatchJob, ROWS_IN_POSTGRES};
use crate::support::{ChildGuard, TIMEOUT, eventually};

const ROWS: u64 = 60;

/// Rows ask in provider batches; each prompt is the answer that it expects.
const PROVIDER_BATCH_EDITS: [(&str, &str); 3] = [
    ("profile = \"script\"", "profile = \"@fake\"\nmode = \"provider-batch\""),
    (
        "[ai.schema]",
        "[ai.provider_batch]\ngather = \"100ms\"\nlook = \"100ms\"\nlag = \"500ms\"\n\n[ai.schema]",
    ),
    ("Row {{ id }} is {{ sort }}.", "{\\\"n\\\": {{ id }} }"),
];

/// A batch of rows and the fake provider that they ask.
struct ProviderBatchFixture {
    job: BatchJob,
    fake: FakeAi,
    _runtime: Runtime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreKind {
    Sqlite,
    Postgres,
}

impl ProviderBatchFixture {
    fn new(provider: &str, store: StoreKind) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let fake = runtime.block_on(FakeAi::start()).unwrap();
        let job = job(store);
        let run = |args: &[&str]| job.dir.run(args).ok();
        job.seed();
        run(&["key", "init"]);
        job.dir.run_with(&["key", "add", "k"], "sk-one").ok();
        let add = ["profile", "add", "fake", "--provider", provider, "--model", "m", "--key", "k"];
        let prices = ["--price-input", "4", "--price-output", "20", "--price-batch", "0.5"];
        run(&[&add[..], &prices, &["--endpoint", &fake.url()]].concat());
        Self { job, fake, _runtime: runtime }
    }

    /// Enqueues the batch's rows; no worker runs yet.
    fn enqueue(&self) -> String {
        self.job.dir.run(&["batch", "start", "."]).ok();
        self.job.name()
    }

    fn worker(&self) -> ChildGuard {
        self.job.dir.start(&["worker", "--slots", "8", "--ttl", "1s"])
    }

    /// How often each request was submitted to the provider.
    fn submissions(&self) -> BTreeMap<String, usize> {
        let mut sent = BTreeMap::new();
        for id in self.fake.batches().into_iter().flat_map(|batch| batch.ids) {
            *sent.entry(id).or_default() += 1;
        }
        sent
    }

    fn is_complete(&self) -> bool {
        self.job.batch()["status"] == "complete" && self.live_runners() == 0
    }

    /// The number of live units that run provider batches.
    fn live_runners(&self) -> usize {
        let list = ["unit", "list", "--kind", "batch.bulk", "--json"];
        let units = self.job.dir.run(&list).ok().json();
        let live =
            |unit: &&Value| !["done", "failed", "cancelled"].contains(&unit["state"].as_str().unwrap());
        units.as_array().unwrap().iter().filter(live).count()
    }

    /// Checks that no request is parked, submitted or open, and that each call cost the batch price.
    fn assert_billing(&self, calls: u64) {
        assert_eq!(self.job.count("longshore_pending_request"), 0);
        assert_eq!(self.job.count("longshore_provider_batch"), 0);
        let usage = self.job.dir.run(&["usage", "--by", "batch", "--json"]).ok().json();
        let groups = usage["groups"].as_array().unwrap();
        assert_eq!(groups.len(), 1, "{usage}");
        let group = &groups[0];
        assert_eq!(group["name"], self.job.name());
        assert_eq!((&group["calls"], &group["open"]), (&json!(calls), &json!(0)), "{usage}");
        let number = |key: &str| group[key].as_i64().unwrap();
        let plain = number("tokens_in") * 4_000_000 + number("tokens_out") * 20_000_000;
        assert_eq!(number("cost_picos"), plain / 2, "{usage}");
        // Recomputing the costs changes nothing.
        let recost = self.job.dir.run(&["usage", "recost", "--json"]).ok().json();
        assert_eq!((&recost["changed"], &recost["right"]), (&json!(0), &json!(calls)), "{recost}");
    }
}

fn job(store: StoreKind) -> BatchJob {
    match store {
        StoreKind::Sqlite => BatchJob::good(ROWS).with(&PROVIDER_BATCH_EDITS),
        StoreKind::Postgres => {
            let server = Rc::new(RefCell::new(PrivatePostgres::start().unwrap()));
            let edits = [&PROVIDER_BATCH_EDITS[..], &[ROWS_IN_POSTGRES]].concat();
            BatchJob::good(ROWS).with(&edits).move_to(&server, &server, &[])
        }
    }
}

/// After how many requests a worker is killed, and whether the provider carries out the next one
/// (`Mute`) or not (`Hang`).
const KILL_POINTS: [(usize, FakeBehaviour); 7] = [
    (0, FakeBehaviour::Hang),
    (0, FakeBehaviour::ExecuteThenHang),
    (1, FakeBehaviour::Hang),
    (1, FakeBehaviour::ExecuteThenHang),
    (2, FakeBehaviour::ExecuteThenHang),
    (3, FakeBehaviour::Hang),
    (3, FakeBehaviour::ExecuteThenHang),
];

/// Kills a worker at its first, second, third … request to the provider, before and after the provider
/// has carried it out; also while rows are parked and while answers are applied.
fn kill_at_every_step(provider: &str, store: StoreKind) {
    let fixture = ProviderBatchFixture::new(provider, store);
    let (job, fake) = (&fixture.job, &fixture.fake);
    let name = fixture.enqueue();
    let units: Vec<String> =
        job.rows(&name, "ready").iter().map(|row| row["unit"].as_str().unwrap().to_owned()).collect();
    assert_eq!(units.len() as u64, ROWS);
    let asked = |at: usize| format!("{}-1", units[at]);
    for (at, failure) in
        [(3, BatchItemFailure::Expired), (17, BatchItemFailure::Expired), (40, BatchItemFailure::Missing)]
    {
        fake.fail_in_batch(&asked(at), failure);
    }
    fake.push_batch_plans([BatchPlan { polls: 2, ..BatchPlan::default() }]);

    let _maintainer = job.start_maintainer();

    // Kill while rows are parked.
    fake.push_behaviours([FakeBehaviour::Hang]);
    let mut worker = fixture.worker();
    eventually(TIMEOUT, || (job.count("longshore_pending_request") > 0).then_some(()));
    worker.kill();
    // Kill during a request to the provider.
    for (served, act) in KILL_POINTS {
        let before = fake.requests().len();
        fake.clear();
        fake.push_behaviours(vec![FakeBehaviour::default(); served]);
        fake.push_behaviours([act]);
        let mut worker = fixture.worker();
        eventually(TIMEOUT, || {
            (fake.requests().len() > before + served || job.count("effects") > 0).then_some(())
        });
        worker.kill();
    }
    fake.clear();
    // Kill while answers are applied.
    let mut worker = fixture.worker();
    eventually(2 * TIMEOUT, || (job.count("effects") > 5).then_some(()));
    worker.kill();
    let mut worker = fixture.worker();
    eventually(2 * TIMEOUT, || fixture.is_complete().then_some(()));
    worker.signal("TERM");
    assert_eq!(worker.ends_within(TIMEOUT), 0);

    assert_eq!(job.count("effects"), ROWS);
    job.assert_exact();
    let sent = fixture.submissions();
    assert_eq!(sent.len() as u64, ROWS);
    for (at, unit) in units.iter().enumerate() {
        let times = if [3, 17, 40].contains(&at) { 2 } else { 1 };
        assert_eq!(sent[&format!("{unit}-1")], times, "row {at}: by missing id only");
    }
    fixture.assert_billing(ROWS);
}

#[test]
fn provider_batches_with_restarts_at_every_step_with_anthropic() {
    kill_at_every_step("anthropic", StoreKind::Sqlite);
}

#[test]
fn provider_batches_with_restarts_at_every_step_with_openai() {
    kill_at_every_step("openai", StoreKind::Sqlite);
}

#[test]
fn provider_batches_with_restarts_at_every_step_with_anthropic_on_postgres() {
    kill_at_every_step("anthropic", StoreKind::Postgres);
}

#[test]
fn provider_batches_with_restarts_at_every_step_with_openai_on_postgres() {
    kill_at_every_step("openai", StoreKind::Postgres);
}

#[test]
fn a_batch_run_carries_its_questions_itself_and_leaves_nothing_behind() {
    let fixture = ProviderBatchFixture::new("openai", StoreKind::Sqlite);
    let run = fixture.job.run(&[]).ok();
    assert_eq!(fixture.job.count("effects"), ROWS, "{}", run.err);
    fixture.job.assert_exact();
    assert_eq!(fixture.live_runners(), 0);
    fixture.assert_billing(ROWS);
}

#[test]
fn a_cancelled_batch_run_is_cancelled_with_the_provider_too() {
    let fixture = ProviderBatchFixture::new("anthropic", StoreKind::Sqlite);
    // Rows parked later go into another provider batch, so every batch needs a plan.
    fixture.fake.push_batch_plans(vec![BatchPlan { polls: u32::MAX, ..BatchPlan::default() }; ROWS as usize]);
    let mut run = fixture.job.start(&[]);
    let shown = eventually(TIMEOUT, || {
        fixture.job.dir.path("rows.db").exists().then_some(())?;
        let name = fixture.job.batches().first()?["batch"].as_str()?.to_owned();
        let shown = fixture.job.dir.batch(&name);
        (shown["parked"]["out"] == ROWS && shown["scheduled"] == ROWS).then_some(shown)
    });
    assert_eq!(shown["parked"], json!({ "waiting": 0, "out": ROWS, "answered": 0 }));
    let words = fixture.job.dir.run(&["batch", "status", &fixture.job.name()]).ok();
    assert!(words.out.contains("60 out, 0 waiting to go, 0 answered"), "{}", words.out);
    let watched = ["batch", "watch", &fixture.job.name(), "--limit", "100ms"];
    let watched = fixture.job.dir.run(&watched);
    assert!(watched.out.contains("60 parked with the provider"), "{}", watched.out);
    fixture.job.operate("cancel", &[]).ok();
    run.ends_within(TIMEOUT);
    let cancels = fixture.fake.requests().iter().filter(|seen| seen.path.ends_with("/cancel")).count();
    assert_eq!(cancels, fixture.fake.batches().len());
    assert_eq!((fixture.job.count("effects"), fixture.live_runners()), (0, 0));
    fixture.assert_billing(ROWS);
}

#[test]
fn a_batch_file_for_a_provider_without_batches_is_refused_with_a_hint() {
    let job = BatchJob::good(1)
        .with(&[("profile = \"script\"", "profile = \"script\"\nmode = \"provider-batch\"")]);
    let refused = job.run(&[]).ends(1);
    assert!(refused.err.contains("provider `scripted` has no batch API"), "{}", refused.err);
    assert!(refused.err.contains("mode = \"direct\""), "{}", refused.err);
}

#[test]
fn what_it_would_cost_is_told_at_the_price_of_batches() {
    let real = "provider = \"openai\"\nkey = \"env:KEY\"\nmodel = \"script\"\n";
    let scripted = "provider = \"scripted\"\nmodel = \"script\"\nscript = \"script.toml\"\n";
    let prices = ("output = 5.0 }", "output = 5.0, batch = 0.5 }");
    let estimate = |mode: &str| {
        let asked = format!("profile = \"script\"\nmode = \"{mode}\"");
        let edits = [("profile = \"script\"", asked.as_str()), (scripted, real), prices];
        let shown = BatchJob::good(3).with(&edits).run(&["--dry-run"]).ok().json();
        // Not the most: that has a correction, which a provider's batch does not make.
        shown["cost_estimate"].as_f64().unwrap()
    };
    let (direct, bulk) = (estimate("direct"), estimate("provider-batch"));
    assert!(direct > 0.0 && (bulk * 2.0 - direct).abs() < 1e-9, "{direct} {bulk}");
}
