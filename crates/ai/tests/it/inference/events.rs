//! Log events of calls.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::fixture::InferenceFixture;

/// All logged events, each as its fields.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Fields>>>);

#[derive(Debug)]
struct Fields(Vec<(String, String)>);

impl Fields {
    fn named(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push((field.name().to_owned(), format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name().to_owned(), value.to_owned()));
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::TRACE
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(Vec::new());
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Log {
    /// A field of every event with this name.
    fn field_values(&self, event: &str, field: &str) -> Vec<String> {
        let all = self.0.lock().unwrap();
        let expected = all.iter().filter(|fields| fields.named("event").as_deref() == Some(event));
        expected.map(|fields| fields.named(field).unwrap_or_default()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn every_call_is_logged_when_it_begins_and_ends_and_never_what_was_said() {
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.clone());
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "fast", "[[answer]]\nreply = 'a marked answer'", json!({})).await;
    let bad = "[[answer]]\nerror = 'PROVIDER_AUTH'\nmessage = 'a marked error'";
    fixture.scripted("acme", "bad", bad, json!({})).await;
    let mut request = super::fixture::request("acme", "fast", "r-1");
    request.question.prompt = "a marked prompt".to_owned();
    request.question.system = Some("marked instructions".to_owned());
    fixture.inference.ask(&request, None).await.result.unwrap();
    fixture.ask("acme", "bad", "r-2").await.result.unwrap_err();
    assert_eq!(log.field_values("call_start", "request_id"), ["r-1", "r-2"]);
    assert_eq!(log.field_values("call_start", "tenant"), ["acme", "acme"]);
    assert_eq!(log.field_values("call_complete", "request_id"), ["r-1", "r-2"]);
    assert_eq!(log.field_values("call_complete", "status"), ["success", "error"]);
    assert_eq!(log.field_values("call_complete", "error_code"), ["", "PROVIDER_AUTH"]);
    assert_eq!(log.field_values("call_complete", "model"), ["fast", "bad"]);
    assert_eq!(log.field_values("call_complete", "attempts"), ["1", "1"]);
    let all = format!("{:?}", log.0.lock().unwrap());
    assert!(!all.contains("marked"), "{all}");
}
