//! Batches that use a provider's batch API, as processes: killed at every step, cancelled, and shown
//! to users.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use longshore_testkit::fake_ai::{Act, BatchPlan, FakeAi, Fate};
use longshore_testkit::servers::PrivatePostgres;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::batch_job::Job;
use crate::support::{Running, SOON, eventually};

const ROWS: u64 = 60;

/// Rows ask in provider batches; each prompt is the answer that it expects.
const EDITS: [(&str, &str); 3] = [
    ("profile = \"script\"", "profile = \"@fake\"\nmode = \"provider-batch\""),
    (
        "[ai.schema]",
        "[ai.provider_batch]\ngather = \"100ms\"\nlook = \"100ms\"\nlag = \"500ms\"\n\n[ai.schema]",
    ),
    ("Row {{ id }} is {{ sort }}.", "{\\\"n\\\": {{ id }} }"),
];

/// A batch of rows and the fake provider that they ask.
struct Harbour {
    job: Job,
    fake: FakeAi,
    _runtime: Runtime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Sqlite,
    Postgres,
}

impl Harbour {
    fn new(provider: &str, kept: Kept) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let fake = runtime.block_on(FakeAi::start()).unwrap();
        let job = job(kept);
        let run = |args: &[&str]| job.place.run(args).ok();
        job.seed();
        run(&["key", "init"]);
        job.place.run_with(&["key", "add", "k"], "sk-one").ok();
        let add = ["profile", "add", "fake", "--provider", provider, "--model", "m", "--key", "k"];
        let prices = ["--price-input", "4", "--price-output", "20", "--price-batch", "0.5"];
        run(&[&add[..], &prices, &["--endpoint", &fake.url()]].concat());
        Self { job, fake, _runtime: runtime }
    }

    /// Enqueues the batch's rows; no worker runs yet.
    fn fill(&self) -> String {
        self.job.place.run(&["batch", "start", "."]).ok();
        self.job.name()
    }

    fn worker(&self) -> Running {
        self.job.place.start(&["worker", "--slots", "8", "--ttl", "1s"])
    }

    /// How often each request was submitted to the provider.
    fn sent(&self) -> BTreeMap<String, usize> {
        let mut sent = BTreeMap::new();
        for id in self.fake.batches().into_iter().flat_map(|batch| batch.ids) {
            *sent.entry(id).or_default() += 1;
        }
        sent
    }

    fn is_over(&self) -> bool {
        self.job.batch()["status"] == "complete" && self.conductors() == 0
    }

    /// The number of live units that run provider batches.
    fn conductors(&self) -> usize {
        let list = ["unit", "list", "--kind", "batch.bulk", "--json"];
        let units = self.job.place.run(&list).ok().json();
        let live = |unit: &&Value| {
            !["done", "failed", "cancelled"].contains(&unit["state"].as_str().unwrap())
        };
        units.as_array().unwrap().iter().filter(live).count()
    }

    /// Checks that no request is parked, submitted or open, and that each call cost the batch price.
    fn assert_books(&self, calls: u64) {
        assert_eq!(self.job.count("longshore_parked"), 0);
        assert_eq!(self.job.count("longshore_shipment"), 0);
        let usage = self.job.place.run(&["usage", "--by", "batch", "--json"]).ok().json();
        let groups = usage["groups"].as_array().unwrap();
        assert_eq!(groups.len(), 1, "{usage}");
        let group = &groups[0];
        assert_eq!(group["name"], self.job.name());
        assert_eq!((&group["calls"], &group["open"]), (&json!(calls), &json!(0)), "{usage}");
        let number = |key: &str| group[key].as_i64().unwrap();
        let plain = number("tokens_in") * 4_000_000 + number("tokens_out") * 20_000_000;
        assert_eq!(number("cost_picos"), plain / 2, "{usage}");
        // Recomputing the costs changes nothing.
        let recost = self.job.place.run(&["usage", "recost", "--json"]).ok().json();
        assert_eq!((&recost["changed"], &recost["right"]), (&json!(0), &json!(calls)), "{recost}");
    }
}

fn job(kept: Kept) -> Job {
    match kept {
        Kept::Sqlite => Job::good(ROWS).with(&EDITS),
        Kept::Postgres => {
            let server = Rc::new(RefCell::new(PrivatePostgres::start().unwrap()));
            let database = format!("database = \"{}\"", server.borrow().url());
            let moved = [("database = \"sqlite:rows.db\"\nseed = \"seed.sql\"", database.as_str())];
            let edits = [&EDITS[..], &moved].concat();
            Job::good(ROWS).with(&edits).move_to(&server, &server, &[])
        }
    }
}

/// After how many requests a worker is killed, and whether the provider received the last one
/// (`Mute`) or not (`Hang`).
const DOORS: [(usize, Act); 7] = [
    (0, Act::Hang),
    (0, Act::Mute),
    (1, Act::Hang),
    (1, Act::Mute),
    (2, Act::Mute),
    (3, Act::Hang),
    (3, Act::Mute),
];

/// Kills a worker at its first, second, third … request to the provider, before and after the
/// provider received it; also while rows are parked and while answers are applied.
fn killed_at_every_step(provider: &str, kept: Kept) {
    let harbour = Harbour::new(provider, kept);
    let (job, fake) = (&harbour.job, &harbour.fake);
    let name = harbour.fill();
    let units: Vec<String> = job
        .rows(&name, "ready")
        .iter()
        .map(|row| row["unit"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(units.len() as u64, ROWS);
    let asked = |at: usize| format!("{}-1", units[at]);
    for (at, fate) in [(3, Fate::Expired), (17, Fate::Expired), (40, Fate::Missing)] {
        fake.doom(&asked(at), fate);
    }
    fake.plan([BatchPlan { polls: 2, ..BatchPlan::default() }]);

    let _watcher = job.watcher();

    // Kill while rows are parked.
    fake.next([Act::Hang]);
    let mut worker = harbour.worker();
    eventually(SOON, || (job.count("longshore_parked") > 0).then_some(()));
    worker.kill();
    // Kill during a request to the provider.
    for (passes, act) in DOORS {
        let before = fake.seen().len();
        fake.clear();
        fake.next(vec![Act::default(); passes]);
        fake.next([act]);
        let mut worker = harbour.worker();
        eventually(SOON, || {
            (fake.seen().len() > before + passes || job.count("effects") > 0).then_some(())
        });
        worker.kill();
    }
    fake.clear();
    // Kill while answers are applied.
    let mut worker = harbour.worker();
    eventually(2 * SOON, || (job.count("effects") > 5).then_some(()));
    worker.kill();
    let mut worker = harbour.worker();
    eventually(2 * SOON, || harbour.is_over().then_some(()));
    worker.signal("TERM");
    assert_eq!(worker.ends_within(SOON), 0);

    assert_eq!(job.count("effects"), ROWS);
    job.assert_exact();
    let sent = harbour.sent();
    assert_eq!(sent.len() as u64, ROWS);
    for (at, unit) in units.iter().enumerate() {
        let times = if [3, 17, 40].contains(&at) { 2 } else { 1 };
        assert_eq!(sent[&format!("{unit}-1")], times, "row {at}: by missing id only");
    }
    harbour.assert_books(ROWS);
}

#[test]
fn provider_batches_with_restarts_at_every_step_with_anthropic() {
    killed_at_every_step("anthropic", Kept::Sqlite);
}

#[test]
fn provider_batches_with_restarts_at_every_step_with_openai() {
    killed_at_every_step("openai", Kept::Sqlite);
}

#[test]
fn provider_batches_with_restarts_at_every_step_with_anthropic_on_postgres() {
    killed_at_every_step("anthropic", Kept::Postgres);
}

#[test]
fn provider_batches_with_restarts_at_every_step_with_openai_on_postgres() {
    killed_at_every_step("openai", Kept::Postgres);
}

#[test]
fn a_batch_run_carries_its_questions_itself_and_leaves_nothing_behind() {
    let harbour = Harbour::new("openai", Kept::Sqlite);
    let run = harbour.job.run(&[]).ok();
    assert_eq!(harbour.job.count("effects"), ROWS, "{}", run.err);
    harbour.job.assert_exact();
    assert_eq!(harbour.conductors(), 0);
    harbour.assert_books(ROWS);
}

#[test]
fn a_cancelled_batch_run_is_cancelled_with_the_provider_too() {
    let harbour = Harbour::new("anthropic", Kept::Sqlite);
    // Rows parked later go into another provider batch, so every batch needs a plan.
    harbour.fake.plan(vec![BatchPlan { polls: u32::MAX, ..BatchPlan::default() }; ROWS as usize]);
    let mut run = harbour.job.start(&[]);
    let shown = eventually(SOON, || {
        harbour.job.place.path("rows.db").exists().then_some(())?;
        let name = harbour.job.batches().first()?["batch"].as_str()?.to_owned();
        let shown = harbour.job.place.batch(&name);
        (shown["parked"]["out"] == ROWS && shown["scheduled"] == ROWS).then_some(shown)
    });
    assert_eq!(shown["parked"], json!({ "waiting": 0, "out": ROWS, "answered": 0 }));
    let words = harbour.job.place.run(&["batch", "status", &harbour.job.name()]).ok();
    assert!(words.out.contains("60 out, 0 waiting to go, 0 answered"), "{}", words.out);
    let watched = ["batch", "watch", &harbour.job.name(), "--limit", "100ms"];
    let watched = harbour.job.place.run(&watched);
    assert!(watched.out.contains("60 parked with the provider"), "{}", watched.out);
    harbour.job.operate("cancel", &[]).ok();
    run.ends_within(SOON);
    let cancels = harbour.fake.seen().iter().filter(|seen| seen.path.ends_with("/cancel")).count();
    assert_eq!(cancels, harbour.fake.batches().len());
    assert_eq!((harbour.job.count("effects"), harbour.conductors()), (0, 0));
    harbour.assert_books(ROWS);
}

#[test]
fn a_batch_file_for_a_provider_without_batches_is_refused_with_a_hint() {
    let job = Job::good(1)
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
        let shown = Job::good(3).with(&edits).run(&["--dry-run"]).ok().json();
        shown["cost_at_most"].as_f64().unwrap()
    };
    let (direct, bulk) = (estimate("direct"), estimate("provider-batch"));
    assert!(direct > 0.0 && (bulk * 2.0 - direct).abs() < 1e-9, "{direct} {bulk}");
}
