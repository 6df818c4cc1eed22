//! JSON schemas of requests and responses, derived from their types. A test validates real responses
//! against them.

use longshore::Schedule;
use longshore::accounts::{AuditEntry, BudgetState};
use longshore::store::{QueueInfo, Tenant, UnitActionResult};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::api::batch_ingest::{BatchRequest, ChunkResult, OpenBatchResponse};
use crate::api::batches::{BatchView, PauseRequest};
use crate::api::bulk_submit::BulkSubmitReport;
use crate::api::dispatch::ScaleRequest;
use crate::api::permits::{ExtendRequest, PermitRequest, PermitResponse, PermitStatus};
use crate::api::pools::{PoolSize, PoolView};
use crate::api::profiles::ProfileView;
use crate::api::reply_queues::{
    AcknowledgeRequest, AcknowledgeResponse, OpenReplyQueueRequest, ReplyList, ReplyQueueView,
};
use crate::api::submit::{SubmitResponse, UnitRequest};
use crate::api::tenants::Identity;
use crate::api::units::UnitView;
use crate::api::usage::UsageView;
use crate::api::workers::{WorkerCommandResponse, WorkerView};
use crate::dispatch_port::ScriptPool;
use crate::problem::ProblemDetails;

/// A name as [`longshore::name`] accepts it.
pub(crate) fn name(about: &str) -> Value {
    described::<longshore::TenantId>(about)
}

/// A queue's name, optionally with its owner.
pub(crate) fn queue(about: &str) -> Value {
    described::<longshore::QueueName>(about)
}

fn described<T: JsonSchema>(about: &str) -> Value {
    let mut schema = T::json_schema(&mut SchemaGenerator::default()).to_value();
    schema["description"] = about.into();
    schema
}

/// All schemas by name.
pub(crate) fn all() -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut written = settings.clone().for_serialize().into_generator();
    let mut read = settings.for_deserialize().into_generator();
    let (w, r) = (&mut written, &mut read);
    let named = [
        ("Acknowledged", AcknowledgeResponse::json_schema(w)),
        ("Acknowledgement", AcknowledgeRequest::json_schema(r)),
        ("Batch", BatchView::json_schema(w)),
        ("Budget", BudgetState::json_schema(w)),
        ("Caller", Identity::json_schema(w)),
        ("Deed", AuditEntry::json_schema(w)),
        ("Filled", ChunkResult::json_schema(w)),
        ("NewBatch", BatchRequest::json_schema(r)),
        ("NewPermit", PermitRequest::json_schema(r)),
        ("NewReplyQueue", OpenReplyQueueRequest::json_schema(r)),
        ("NewUnit", UnitRequest::json_schema(r)),
        ("Opened", OpenBatchResponse::json_schema(w)),
        ("Operated", UnitActionResult::json_schema(w)),
        ("Ordered", WorkerCommandResponse::json_schema(w)),
        ("Permit", PermitResponse::json_schema(w)),
        ("PermitLeft", PermitStatus::json_schema(w)),
        ("PermitLife", ExtendRequest::json_schema(r)),
        ("Pool", PoolView::json_schema(w)),
        ("PoolSize", PoolSize::json_schema(r)),
        ("Problem", ProblemDetails::json_schema(w)),
        ("Profile", ProfileView::json_schema(w)),
        ("Queue", QueueInfo::json_schema(w)),
        ("Replies", ReplyList::json_schema(w)),
        ("ReplyQueue", ReplyQueueView::json_schema(w)),
        ("Scale", ScaleRequest::json_schema(r)),
        ("Schedule", Schedule::json_schema(w)),
        ("ScriptPool", ScriptPool::json_schema(w)),
        ("Sent", SubmitResponse::json_schema(w)),
        ("Tally", BulkSubmitReport::json_schema(w)),
        ("Tenant", Tenant::json_schema(w)),
        ("Unit", UnitView::json_schema(w)),
        ("Usage", UsageView::json_schema(w)),
        ("Why", PauseRequest::json_schema(r)),
        ("Worker", WorkerView::json_schema(w)),
    ];
    let mut all = written.take_definitions(false);
    all.extend(read.take_definitions(false));
    all.extend(named.map(|(name, schema)| (name.to_owned(), schema.to_value())));
    all.extend(batch_lists());
    let mut all = Value::Object(all);
    limit_integers(&mut all);
    all
}

/// What `longshore-batch` lists.
fn batch_lists() -> Map<String, Value> {
    let (text, count) = (json!({ "type": "string" }), json!({ "type": "integer", "minimum": 0 }));
    let maybe_text = json!({ "type": ["string", "null"] });
    let object = |properties: Value| {
        let required: Vec<&String> = properties.as_object().into_iter().flat_map(Map::keys).collect();
        json!({ "type": "object", "required": required, "properties": properties })
    };
    Map::from_iter([
        (
            "FailureGroup".to_owned(),
            object(json!({
                "code": text, "message": text, "count": count,
                "examples": { "type": "array", "items": text },
            })),
        ),
        (
            "Row".to_owned(),
            object(json!({
                "key": { "description": "Identifies the row; null if the caller may not read it" },
                "state": { "$ref": "#/components/schemas/UnitState" }, "attempt": count,
                "code": maybe_text, "reason": maybe_text,
                "unit": { "type": "string", "format": "uuid" }, "result": {}, "answer": maybe_text,
            })),
        ),
    ])
}

/// Replaces the formats of Rust's integers, which JSON schema does not know, by their maximum.
fn limit_integers(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let format = fields.get("format").and_then(Value::as_str).unwrap_or_default();
            let maximum = match format {
                "uint8" => Some(u64::from(u8::MAX)),
                "uint16" => Some(u64::from(u16::MAX)),
                "uint32" => Some(u64::from(u32::MAX)),
                _ => None,
            };
            if format.starts_with("uint") || format.starts_with("int") {
                fields.remove("format");
            }
            if let Some(maximum) = maximum {
                fields.entry("maximum").or_insert_with(|| maximum.into());
            }
            fields.values_mut().for_each(limit_integers);
        }
        Value::Array(items) => items.iter_mut().for_each(limit_integers),
        _ => {}
    }
}
