//! Tracing: one span per call, with its worker.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use longshore_pool::{Operations, PoolSettings, WorkerPool};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A subscriber that keeps the fields of the pool's spans.
#[derive(Clone, Default)]
struct SpanRecorder {
    next: Arc<AtomicU64>,
    spans: Arc<Mutex<BTreeMap<u64, BTreeMap<String, String>>>>,
}

struct Fields<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").replace('"', ""));
    }
}

impl Subscriber for SpanRecorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.name() == "pool_call"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.next.fetch_add(1, Ordering::SeqCst) + 1;
        let mut fields = BTreeMap::new();
        span.record(&mut Fields(&mut fields));
        self.spans.lock().unwrap().insert(id, fields);
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut spans = self.spans.lock().unwrap();
        values.record(&mut Fields(spans.get_mut(&span.into_u64()).unwrap()));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn each_call_is_a_span_with_its_pool_operation_and_worker() {
    let recorder = SpanRecorder::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tracing::subscriber::with_default(recorder.clone(), || {
        runtime.block_on(async {
            let settings = PoolSettings { min: 1, max: 1, ..PoolSettings::default() };
            let pool = WorkerPool::threads("logged", Operations::stateless(), settings).await;
            let pool = pool.unwrap();
            // Another test may have made the first call in this process without a subscriber, and
            // the interest in the span was cached then.
            pool.call::<_, ()>("noop", &()).await.unwrap();
            tracing::callsite::rebuild_interest_cache();
            recorder.spans.lock().unwrap().clear();
            pool.call::<_, ()>("noop", &()).await.unwrap();
            pool.run_blocking(|| ()).await.unwrap();
        });
    });
    let spans: Vec<_> = recorder.spans.lock().unwrap().values().cloned().collect();
    let span = |operation: &str| {
        let fields = [("pool", "logged"), ("operation", operation), ("worker", "1")];
        BTreeMap::from(fields.map(|(name, value)| (name.to_owned(), value.to_owned())))
    };
    assert_eq!(spans, [span("noop"), span("run_blocking")]);
}
