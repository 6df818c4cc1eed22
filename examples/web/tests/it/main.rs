//! The example app in a real browser.
#![expect(clippy::unwrap_used, reason = "helpers of tests may give up loudly")]

mod app;

use longshore_pool::WorkerPool;
use longshore_testkit::Browser;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::app::{App, Gate};

const JOBS: [&str; 4] = ["sql", "passwords", "picture", "python"];

/// Records the values of the progress bars, and how many pings were answered at that time.
const WATCH: &str = "window.seen = {};
const pings = document.querySelector('#pings');
for (const job of document.querySelectorAll('.job')) {
  const bar = job.querySelector('progress');
  const note = () => seen[job.id].push([bar.value, Number(pings.textContent)]);
  seen[job.id] = [];
  new MutationObserver(note).observe(bar, { attributes: true });
}";

#[tokio::test]
async fn every_button_fills_its_bar_and_the_loop_answers_meanwhile() {
    let app = App::start().await;
    let mut browser = Browser::open(&app.url, 1000, 900).await.unwrap();
    browser.evaluate(WATCH).await.unwrap();
    for job in JOBS {
        browser.click(&format!("#{job} button")).await.unwrap();
    }
    for job in JOBS {
        browser.wait_for(&format!("document.querySelector('#{job}.done') !== null")).await.unwrap();
        let value = format!("document.querySelector('#{job} progress').value");
        assert_eq!(browser.evaluate(&value).await.unwrap(), 100, "{job}");
    }
    let seen = browser.evaluate("seen").await.unwrap();
    let mut pings = Vec::new();
    for job in JOBS {
        let seen: Vec<(f64, u32)> = serde_json::from_value(seen[job].clone()).unwrap();
        let steps: Vec<_> = seen.iter().filter(|(far, _)| *far > 0.0 && *far < 100.0).collect();
        assert!(seen.is_sorted() && steps.len() >= 3, "{job} came in steps: {seen:?}");
        pings.push(steps[steps.len() - 1].1 - steps[0].1);
    }
    // One thread answers all requests: if a job blocked it, all steps would arrive together.
    assert!(pings.iter().all(|pings| *pings > 1), "{pings:?}");
    let found = browser.evaluate("document.querySelector('#python .result').textContent").await;
    assert!(found.unwrap().as_str().unwrap().contains("Hambrug → Hamburg"));
    let image = "document.querySelector('#picture img').decode().then(() => true)";
    assert_eq!(browser.evaluate(image).await.unwrap(), true, "the picture can be shown");
    look(&mut browser, "wide").await;
    end(browser, app).await;
}

#[tokio::test]
async fn a_call_is_taken_back_by_the_button_and_by_leaving_the_page() {
    let app = App::start().await;
    let mut browser = Browser::open(&app.url, 1000, 900).await.unwrap();
    let pool = app.pools.pool("passwords").unwrap().clone();
    let gate = Gate::default();
    let held = hold(&pool, &gate, 2).await;
    for leave in ["document.querySelector('#passwords button').click()", "location.href = '/ping'"] {
        browser.click("#passwords button").await.unwrap();
        eventually("the call waits", || pool.stats().queue_depth == 1).await;
        let pings = "Number(document.querySelector('#pings').textContent)";
        let before = browser.evaluate(pings).await.unwrap();
        browser.wait_for(&format!("{pings} > {before} + 2")).await.unwrap();
        browser.evaluate(leave).await.unwrap();
        eventually("it was taken back", || pool.stats().queue_depth == 0).await;
    }
    gate.open();
    held.join_all().await;
    end(browser, app).await;
}

#[tokio::test]
async fn a_full_queue_is_shown_on_the_page() {
    let app = App::start().await;
    let mut browser = Browser::open(&app.url, 1000, 900).await.unwrap();
    let pool = app.pools.pool("passwords").unwrap().clone();
    let gate = Gate::default();
    let held = hold(&pool, &gate, 12).await;
    browser.click("#passwords button").await.unwrap();
    browser.wait_for("document.querySelector('#passwords.failed') !== null").await.unwrap();
    assert_eq!(pool.stats().calls.refused, 1);
    assert!(browser.page_errors().iter().any(|words| words.contains("503")));
    gate.open();
    held.join_all().await;
    browser.close().await.unwrap();
    app.stop().await;
}

#[tokio::test]
async fn the_page_fits_a_phone_and_the_night() {
    let app = App::start().await;
    let mut browser = Browser::open(&app.url, 390, 844).await.unwrap();
    browser.wait_for("document.querySelectorAll('#pools tr').length === 4").await.unwrap();
    let fits = "[document.documentElement, document.querySelector('.pools')]
        .every((box) => box.scrollWidth <= box.clientWidth)";
    assert_eq!(browser.evaluate(fits).await.unwrap(), true);
    let background = "getComputedStyle(document.body).backgroundColor";
    let day = browser.evaluate(background).await.unwrap();
    look(&mut browser, "phone").await;
    browser.set_color_scheme("dark").await.unwrap();
    assert_ne!(browser.evaluate(background).await.unwrap(), day);
    look(&mut browser, "night").await;
    end(browser, app).await;
}

/// Keeps this many calls at the gate or in the queue.
async fn hold(pool: &WorkerPool, gate: &Gate, calls: usize) -> JoinSet<()> {
    let mut held = JoinSet::new();
    for number in 1..=calls {
        let (caller, gate) = (pool.clone(), gate.clone());
        held.spawn(async move { caller.run_blocking(move || gate.wait()).await.unwrap() });
        eventually("it is in its place", || {
            let stats = pool.stats();
            stats.busy + stats.queue_depth == number
        })
        .await;
    }
    eventually("both workers are held", || pool.stats().busy == 2).await;
    held
}

/// Saves a screenshot of the page for people to look at.
async fn look(browser: &mut Browser, name: &str) {
    let png = browser.screenshot().await.unwrap();
    std::fs::write(format!("{}/web-{name}.png", env!("CARGO_TARGET_TMPDIR")), png).unwrap();
}

/// Asserts that the page has no errors, and shuts everything down.
async fn end(browser: Browser, app: App) {
    assert_eq!(json!(browser.page_errors()), Value::Array(Vec::new()));
    browser.close().await.unwrap();
    app.stop().await;
}

/// Waits until `what` holds; the limit allows for a slow browser.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !holds() {
        assert!(std::time::Instant::now() < limit, "never: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
