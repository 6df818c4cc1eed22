//! JSON schemas of requests and responses. A test validates real responses against them.

use serde_json::{Value, json};

fn time() -> Value {
    json!({ "type": "string", "format": "date-time" })
}

fn maybe_time() -> Value {
    json!({ "type": ["string", "null"], "format": "date-time" })
}

fn maybe(kind: &str) -> Value {
    json!({ "type": [kind, "null"] })
}

fn count() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

fn uuid() -> Value {
    json!({ "type": "string", "format": "uuid" })
}

fn text() -> Value {
    json!({ "type": "string" })
}

/// Text without NUL characters, which not every store can keep.
fn text_without_nul(what: &str) -> Value {
    json!({ "type": "string", "pattern": "^[^\\x00]*$", "description": what })
}

/// A name as [`longshore::name`] accepts it.
pub(crate) fn name(what: &str) -> Value {
    named(what, "^[A-Za-z0-9_.:-]+$")
}

/// A queue's name, optionally with its owner.
pub(crate) fn queue(what: &str) -> Value {
    named(what, "^[A-Za-z0-9_.:-]+(/[A-Za-z0-9_.:-]+)?$")
}

fn named(what: &str, pattern: &str) -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": 128, "pattern": pattern, "description": what,
    })
}

/// The schema, or null.
fn or_null(schema: Value) -> Value {
    json!({ "anyOf": [schema, { "type": "null" }] })
}

/// A priority, 1 is first.
fn priority() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": 9 })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn list(name: &str) -> Value {
    json!({ "type": "array", "items": reference(name) })
}

/// An object with these required properties.
fn object<const N: usize>(properties: [(&str, Value); N]) -> Value {
    let required: Vec<&str> = properties.iter().map(|(name, _)| *name).collect();
    json!({ "type": "object", "required": required,
        "properties": Value::from_iter(properties.clone()) })
}

/// An object with these properties and no others.
fn strict(required: Value, properties: Value) -> Value {
    json!({ "type": "object", "required": required, "additionalProperties": false,
        "properties": properties })
}

/// All schemas by name.
pub(crate) fn all() -> Value {
    let mut all = resources();
    for (name, schema) in parts().as_object().into_iter().flatten() {
        all[name] = schema.clone();
    }
    all["NewUnit"] = new_unit();
    all
}

fn resources() -> Value {
    json!({
        "Queue": object([
            ("queue", queue("NAME, or TENANT/NAME")), ("tenant", name("The lane's tenant")),
            ("paused", json!({ "type": "boolean", "description": "Its units are not claimed: the lane or the whole queue is paused" })),
            ("queue_paused", json!({ "type": "boolean" })), ("lane_paused", json!({ "type": "boolean" })),
            ("suspended", json!({ "type": "boolean" })),
            ("weight", count()), ("cap", maybe("integer")), ("capacity", reference("Capacity")),
            ("lane_capacity", reference("Capacity")), ("counts", reference("Counts")), ("bytes", count()),
            ("oldest_ready", maybe_time()),
        ]),
        "Batch": object([
            ("id", name("Name")), ("tenant", name("Owner")), ("type", text()),
            ("status", json!({ "enum": ["queued", "running", "paused", "complete", "failed", "cancelled"] })),
            ("reason", maybe("string")), ("initiated_by", text()), ("initiated_at", time()),
            ("started_at", maybe_time()), ("completed_at", maybe_time()),
            ("sealed", json!({ "type": "boolean", "description": "All its units were added" })),
            ("generation", count()), ("counts", reference("Counts")), ("progress", reference("Progress")),
            ("cursor", json!({ "type": "string", "description": "The sender's position" })),
            ("notes", text()), ("sums", json!({ "type": "object" })),
        ]),
        "Row": object([
            ("key", json!({ "description": "Identifies the row; null if the caller may not read it" })),
            ("state", reference("State")), ("attempt", count()), ("code", maybe("string")),
            ("reason", maybe("string")), ("unit", uuid()), ("result", json!({})),
        ]),
        "FailureGroup": object([
            ("code", text()), ("message", text()), ("count", count()),
            ("examples", json!({ "type": "array", "items": { "type": "string" } })),
        ]),
        "Unit": object([
            ("id", uuid()), ("tenant", name("Owner")), ("queue", queue("Queue")),
            ("kind", name("Selects the handler")), ("batch", maybe("string")),
            ("state", reference("State")), ("priority", json!({ "type": "integer", "minimum": 1, "maximum": 9 })),
            ("attempt", count()), ("lost", count()), ("session", json!({ "type": ["string", "null"], "format": "uuid" })),
            ("created_at", time()), ("since", time()), ("started_at", maybe_time()),
            ("deadline", maybe_time()), ("key", maybe("string")), ("progress", maybe("object")),
            ("failure", maybe("object")), ("cancel_requested", json!({ "type": "boolean" })),
            ("payload", json!({})), ("checkpoint", json!({})), ("result", json!({})),
            ("masked", json!({ "type": "boolean", "description": "Payload, checkpoint and result are omitted" })),
            ("failures", list("UnitFailure")),
        ]),
        "Worker": object([
            ("id", uuid()), ("label", text()), ("version", text()),
            ("kinds", json!({ "type": "array", "items": { "type": "string" } })),
            ("slots", count()), ("held", count()), ("order", reference("Order")), ("opened_at", time()),
            ("beat_at", time()), ("beats", count()), ("ttl_seconds", json!({ "type": "number" })),
            ("cpu_seconds", json!({ "type": ["number", "null"], "description": "CPU time that it and its children have used" })),
        ]),
        "Schedule": object([
            ("name", name("Name")), ("tenant", name("Owner")), ("cron", text()),
            ("zone", text()), ("paused", json!({ "type": "boolean" })), ("template", json!({ "type": "object" })),
            ("created_at", time()), ("last_fire", maybe_time()), ("next_fire", maybe_time()),
            ("fired", count()), ("skipped", count()), ("missed_times", count()),
        ]),
        "Profile": object([
            ("tenant", name("Owner")), ("name", name("Name")),
            ("suspended", json!({ "type": "boolean" })), ("provider", text()), ("model", text()),
            ("extends", maybe("string")), ("limits", maybe("object")), ("prices", json!({})),
            ("fallback", json!({})), ("pool", maybe("string")), ("max_tokens", maybe("integer")),
            ("revision", count()), ("updated_at", time()),
        ]),
        "Usage": object([
            ("name", json!({ "type": "string", "description": "The day, tenant, model, batch or profile" })),
            ("calls", count()), ("open", count()), ("errors", count()), ("maybe_billed", count()),
            ("estimated", count()), ("tokens_in", count()), ("tokens_out", count()),
            ("tokens_cached", count()),
            ("cost_picos", json!({ "type": "integer", "description": "Millionths of a millionth of a dollar" })),
            ("cost", json!({ "type": "number", "description": "Dollars" })),
        ]),
        "Budget": object([
            ("tenant", name("Tenant of the budget")), ("month", text()), ("budget", maybe("object")),
            ("spent_tokens", count()), ("spent_picos", count()), ("reserved_tokens", count()),
            ("reserved_picos", count()),
        ]),
        "ScriptPool": object([
            ("pool", text()), ("status", maybe("object")), ("trouble", maybe("string")),
        ]),
        "Tenant": object([
            ("tenant", name("Name")), ("weight", count()), ("cap", maybe("integer")),
            ("capacity", reference("Capacity")), ("suspended", json!({ "type": "boolean" })),
            ("created_at", time()), ("counts", reference("Counts")), ("bytes", count()),
        ]),
        "Pool": object([
            ("pool", queue("NAME, or TENANT/NAME")), ("max", count()), ("in_use", count()),
            ("available", count()), ("acquired", count()), ("timeouts", count()),
            ("expired", count()), ("wait_p50_seconds", maybe("number")),
            ("wait_p95_seconds", maybe("number")),
            ("waits", json!({ "type": "array", "items": count() })),
            ("quarantine_seconds", maybe("number")),
            ("in_line", json!({ "type": "integer", "minimum": 0, "description": "Number of waiting requests" })),
            ("masked", json!({ "type": "boolean", "description": "Holders and waiters are omitted" })),
            ("holders", json!({ "type": "array", "items": { "type": "object" } })),
            ("waiting", json!({ "type": "array", "items": { "type": "object" } })),
        ]),
    })
}

fn parts() -> Value {
    json!({
        "State": { "enum": ["blocked", "scheduled", "ready", "leased", "done", "failed", "cancelled"] },
        "Order": { "enum": ["work", "quiet", "drain", "stop"] },
        "Counts": object([
            ("blocked", count()), ("scheduled", count()), ("ready", count()), ("leased", count()),
            ("done", count()), ("failed", count()), ("cancelled", count()),
        ]),
        "Capacity": object([("units", maybe("integer")), ("bytes", maybe("integer"))]),
        "Progress": object([
            ("fraction", json!({ "type": "number", "minimum": 0, "maximum": 1 })),
            ("rate", maybe("number")), ("seconds_left", maybe("number")),
            ("cost", json!({ "type": "number", "description": "Dollars" })),
        ]),
        "UnitFailure": object([
            ("attempt", count()), ("at", time()),
            ("session", json!({ "type": ["string", "null"], "format": "uuid" })),
            ("code", text()), ("message", text()),
        ]),
        "Why": strict(json!([]), json!({ "reason": { "type": ["string", "null"] } })),
        "PoolSize": strict(json!(["max"]), json!({ "max": { "type": "integer", "minimum": 0, "maximum": u32::MAX } })),
        "Scale": strict(json!(["min"]), json!({
            "min": { "type": "integer", "minimum": 0, "maximum": u32::MAX },
            "max": { "type": ["integer", "null"], "minimum": 0, "maximum": u32::MAX },
        })),
        "NewPermit": strict(json!([]), json!({
            "id": { "type": ["string", "null"], "format": "uuid",
                "description": "Chosen by the client: a repeated request returns the same permit" },
            "weight": { "type": "integer", "minimum": 1, "maximum": u32::MAX },
            "ttl_seconds": { "type": ["integer", "null"], "minimum": 1, "maximum": 3600 },
            "priority": priority(),
            "owner": { "type": ["string", "null"], "description": "Description of the holder, for people" },
        })),
        "PermitLife": strict(json!([]), json!({
            "ttl_seconds": { "type": ["integer", "null"], "minimum": 1, "maximum": 3600 },
        })),
        "Permit": object([
            ("permit", uuid()), ("pool", queue("Pool")),
            ("fence", json!({ "type": "integer", "description": "Larger than that of every earlier permit" })),
            ("ttl_seconds", count()), ("waited_seconds", json!({ "type": "number" })),
        ]),
        "PermitLeft": object([("permit", uuid()), ("held", json!({ "type": "boolean" }))]),
        "Operated": object([("changed", count()), ("requested", count()), ("skipped", count())]),
        "Ordered": object([("worker", uuid()), ("order", reference("Order"))]),
        "NewBatch": strict(json!(["id"]), json!({
            "id": name("Name, unique among all tenants' batches"),
            "tenant": or_null(name("Owner; default: the token's tenant")),
            "type": text_without_nul("Type of the batch, for people and reports"),
            "notes": text_without_nul("Notes for people"),
            "initiated_by": or_null(text_without_nul("Who or what started it; default: the token's label")),
            "workers": { "type": ["integer", "null"], "minimum": 0, "maximum": u32::MAX },
            "threshold": or_null(json!({
                "type": "object", "required": ["limit", "then"],
                "description": "Maximum number or share of failures, and the action above it",
                "properties": {
                    "limit": { "oneOf": [
                        strict(json!(["units"]), json!({ "units": { "type": "integer", "minimum": 0, "maximum": u32::MAX } })),
                        strict(json!(["percent"]), json!({ "percent": { "type": "number", "minimum": 0, "maximum": 100 } })),
                    ] },
                    "then": { "enum": ["pause", "fail"] },
                },
            })),
            "callback": or_null(json!({
                "type": "object", "required": ["queue", "kind"],
                "description": "The unit that is enqueued when the batch has ended",
                "properties": { "queue": queue("Queue"), "kind": name("Selects the handler"), "data": {} },
            })),
        })),
        "Opened": object([("status", json!({ "enum": ["created", "existing"] })), ("batch", reference("Batch"))]),
        "Filled": object([
            ("cursor", text()), ("created", count()),
            ("recognised", json!({ "type": "array", "items": object([("line", count()), ("unit", uuid())]) })),
            ("refused", json!({ "type": "array", "items": object([
                ("line", count()), ("refusal", json!({ "type": "object" })),
            ]) })),
        ]),
        "Sent": object([("unit", uuid()), ("status", json!({ "enum": ["created", "existing"] }))]),
        "Tally": object([
            ("lines", count()), ("created", count()), ("existing", count()),
            ("refused", json!({ "type": "array", "items": { "type": "integer" } })),
            ("recognised", json!({ "type": "array", "maxItems": 1_000, "items": object([
                ("line", count()), ("unit", uuid()),
            ]) })),
        ]),
        "Deed": object([
            ("seq", count()), ("at", time()), ("token", json!({ "type": ["string", "null"], "format": "uuid" })),
            ("by", text()), ("tenant", maybe("string")), ("action", text()), ("target", text()),
            ("detail", text()),
        ]),
        "Caller": object([
            ("token", json!({ "type": ["string", "null"], "format": "uuid" })), ("label", text()),
            ("role", json!({ "enum": ["read", "submit", "operate", "admin"] })),
            ("tenant", maybe("string")), ("all_tenants", json!({ "type": "boolean" })),
        ]),
        "Problem": object([
            ("type", text()), ("title", text()), ("status", count()), ("detail", text()),
        ]),
    })
}

/// A unit to enqueue: only `kind` is required; unknown fields are rejected.
fn new_unit() -> Value {
    json!({
        "type": "object",
        "required": ["kind"],
        "additionalProperties": false,
        "properties": {
            "id": or_null(uuid()),
            "tenant": or_null(name("Owner; default: the token's tenant")),
            "queue": or_null(queue("Queue; default: `default`")),
            "kind": name("Selects the handler"),
            "payload": { "description": "Input of the handler" },
            "priority": priority(),
            "key": { "type": ["string", "null"], "maxLength": 512, "description": "Deduplication key" },
            "window": { "enum": ["while_live", "while_kept"] },
            "on_duplicate": { "enum": ["existing", "refused"], "description": "Response to a duplicate" },
            "policy": or_null(json!({ "type": "object", "description": "Retry policy; default: its kind's" })),
            "not_before": maybe_time(),
            "deadline": maybe_time(),
            "weight": {
                "type": "object",
                "properties": {
                    "slots": { "type": "integer", "minimum": 1, "maximum": u32::MAX },
                    "resources": {
                        "type": "object",
                        "additionalProperties": { "type": "integer", "minimum": 0, "maximum": u32::MAX },
                    },
                },
            },
            "cap": {
                "type": ["object", "null"], "required": ["key", "limit"],
                "properties": {
                    "key": { "type": "string", "maxLength": 512 },
                    "limit": { "type": "integer", "minimum": 1, "maximum": u32::MAX },
                },
            },
            "after": {
                "type": "object", "required": ["units"],
                "properties": {
                    "units": { "type": "array", "items": uuid() },
                    "on_failure": { "enum": ["cancel", "release"] },
                },
            },
            "awaited": { "type": "boolean", "description": "A client will wait for its end" },
        },
    })
}
