//! Metrics for the crate `metrics`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use longshore_pool::{ErrorKind, Operations, PoolSettings, WorkerPool};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};

/// A recorder that keeps all metrics.
#[derive(Clone, Default)]
struct TestRecorder {
    counters: Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>,
    gauges: Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>,
    histograms: Arc<Mutex<BTreeMap<String, Arc<RecordCount>>>>,
}

#[derive(Default)]
struct RecordCount(AtomicU64);

impl metrics::HistogramFn for RecordCount {
    fn record(&self, _: f64) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn key_text(key: &Key) -> String {
    let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
    format!("{}{{{}}}", key.name(), labels.join(","))
}

impl metrics::Recorder for TestRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let mut counters = self.counters.lock().unwrap();
        Counter::from_arc(Arc::clone(counters.entry(key_text(key)).or_default()))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let mut gauges = self.gauges.lock().unwrap();
        Gauge::from_arc(Arc::clone(gauges.entry(key_text(key)).or_default()))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let mut histograms = self.histograms.lock().unwrap();
        Histogram::from_arc(Arc::clone(histograms.entry(key_text(key)).or_default()))
    }
}

#[test]
fn calls_workers_and_times_are_shown() {
    let recorder = TestRecorder::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let settings = PoolSettings { min: 1, max: 1, ..PoolSettings::default() };
            let pool = WorkerPool::threads("m", Operations::stateless(), settings).await.unwrap();
            pool.call::<_, ()>("noop", &()).await.unwrap();
            let error = pool.call::<_, u8>("echo", "no number").await.unwrap_err();
            assert!(matches!(error.kind, ErrorKind::BadResult { .. }));
            pool.call::<_, u8>("whatever", &()).await.unwrap_err();
        });
    });
    let counters = recorder.counters.lock().unwrap();
    let count = |operation: &str, outcome: &str| {
        let labels = format!("pool=m,operation={operation},outcome={outcome}");
        counters[&format!("longshore_pool_calls_total{{{labels}}}")].load(Ordering::SeqCst)
    };
    assert_eq!(count("noop", "ok"), 1);
    assert_eq!(count("echo", "bad_result"), 1);
    assert_eq!(count("unknown", "unknown_operation"), 1);
    let histograms = recorder.histograms.lock().unwrap();
    for name in ["wait", "run"] {
        let times = &histograms[&format!("longshore_pool_{name}_seconds{{pool=m}}")];
        assert_eq!(times.0.load(Ordering::SeqCst), 2, "{name}");
    }
    let gauges = recorder.gauges.lock().unwrap();
    assert!(gauges.contains_key("longshore_pool_queue_depth{pool=m}"));
    for state in ["busy", "idle", "starting", "abandoned"] {
        assert!(gauges.contains_key(&format!("longshore_pool_workers{{pool=m,state={state}}}")));
    }
}
