//! What things look like as JSON. A test holds real answers against it.

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

/// Text that every store keeps.
fn words(what: &str) -> Value {
    json!({ "type": "string", "pattern": "^[^\\x00]*$", "description": what })
}

/// A name as [`longshore::name`] takes it.
pub(crate) fn name(what: &str) -> Value {
    named(what, "^[A-Za-z0-9_.:-]+$")
}

/// A queue's name, which may have its owner before it.
pub(crate) fn queue(what: &str) -> Value {
    named(what, "^[A-Za-z0-9_.:-]+(/[A-Za-z0-9_.:-]+)?$")
}

fn named(what: &str, pattern: &str) -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": 128, "pattern": pattern, "description": what,
    })
}

/// The same, or null for nothing.
fn or_null(schema: Value) -> Value {
    json!({ "anyOf": [schema, { "type": "null" }] })
}

/// From first to last.
fn priority() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": 9 })
}

fn of(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn list(name: &str) -> Value {
    json!({ "type": "array", "items": of(name) })
}

/// An object that always has these.
fn object<const N: usize>(properties: [(&str, Value); N]) -> Value {
    let required: Vec<&str> = properties.iter().map(|(name, _)| *name).collect();
    json!({ "type": "object", "required": required,
        "properties": Value::from_iter(properties.clone()) })
}

/// An object that may have these and nothing else.
fn strict(required: Value, properties: Value) -> Value {
    json!({ "type": "object", "required": required, "additionalProperties": false,
        "properties": properties })
}

/// All schemas by their names.
pub(crate) fn all() -> Value {
    let mut all = things();
    for (name, schema) in parts().as_object().into_iter().flatten() {
        all[name] = schema.clone();
    }
    all["NewUnit"] = new_unit();
    all
}

fn things() -> Value {
    json!({
        "Queue": object([
            ("queue", queue("NAME, or TENANT/NAME")), ("tenant", name("The lane's tenant")),
            ("paused", json!({ "type": "boolean", "description": "Claims pass it by: it is paused, or the whole queue" })),
            ("queue_paused", json!({ "type": "boolean" })), ("lane_paused", json!({ "type": "boolean" })),
            ("suspended", json!({ "type": "boolean" })),
            ("weight", count()), ("cap", maybe("integer")), ("capacity", of("Capacity")),
            ("lane_capacity", of("Capacity")), ("counts", of("Counts")), ("bytes", count()),
            ("oldest_ready", maybe_time()),
        ]),
        "Batch": object([
            ("id", name("Its name")), ("tenant", name("Whose it is")), ("type", text()),
            ("status", json!({ "enum": ["queued", "running", "paused", "complete", "failed", "cancelled"] })),
            ("reason", maybe("string")), ("initiated_by", text()), ("initiated_at", time()),
            ("started_at", maybe_time()), ("completed_at", maybe_time()),
            ("sealed", json!({ "type": "boolean", "description": "All its units are known" })),
            ("generation", count()), ("counts", of("Counts")), ("progress", of("Progress")),
            ("cursor", json!({ "type": "string", "description": "Where its sender is" })),
            ("notes", text()), ("sums", json!({ "type": "object" })),
        ]),
        "Row": object([
            ("key", json!({ "description": "What it is known by; null if it may not be read" })),
            ("state", of("State")), ("attempt", count()), ("code", maybe("string")),
            ("reason", maybe("string")), ("unit", uuid()), ("result", json!({})),
        ]),
        "FailureGroup": object([
            ("code", text()), ("message", text()), ("count", count()),
            ("examples", json!({ "type": "array", "items": { "type": "string" } })),
        ]),
        "Unit": object([
            ("id", uuid()), ("tenant", name("Whose it is")), ("queue", queue("Where it waits")),
            ("kind", name("Which handler runs it")), ("batch", maybe("string")),
            ("state", of("State")), ("priority", json!({ "type": "integer", "minimum": 1, "maximum": 9 })),
            ("attempt", count()), ("lost", count()), ("session", json!({ "type": ["string", "null"], "format": "uuid" })),
            ("created_at", time()), ("since", time()), ("started_at", maybe_time()),
            ("deadline", maybe_time()), ("key", maybe("string")), ("progress", maybe("object")),
            ("failure", maybe("object")), ("cancel_requested", json!({ "type": "boolean" })),
            ("payload", json!({})), ("checkpoint", json!({})), ("result", json!({})),
            ("masked", json!({ "type": "boolean", "description": "What it carries is left out" })),
            ("failures", list("UnitFailure")),
        ]),
        "Worker": object([
            ("id", uuid()), ("label", text()), ("version", text()),
            ("kinds", json!({ "type": "array", "items": { "type": "string" } })),
            ("slots", count()), ("held", count()), ("order", of("Order")), ("opened_at", time()),
            ("beat_at", time()), ("beats", count()), ("ttl_seconds", json!({ "type": "number" })),
            ("cpu_seconds", json!({ "type": ["number", "null"], "description": "CPU time that it and its children have used" })),
        ]),
        "Schedule": object([
            ("name", name("Its name")), ("tenant", name("Whose it is")), ("cron", text()),
            ("zone", text()), ("paused", json!({ "type": "boolean" })), ("template", json!({ "type": "object" })),
            ("created_at", time()), ("last_fire", maybe_time()), ("next_fire", maybe_time()),
            ("fired", count()), ("skipped", count()), ("missed_times", count()),
        ]),
        "Profile": object([
            ("tenant", name("Whose it is")), ("name", name("Its name")),
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
            ("tenant", name("Whose month")), ("month", text()), ("budget", maybe("object")),
            ("spent_tokens", count()), ("spent_picos", count()), ("reserved_tokens", count()),
            ("reserved_picos", count()),
        ]),
        "ScriptPool": object([
            ("pool", text()), ("status", maybe("object")), ("trouble", maybe("string")),
        ]),
        "Tenant": object([
            ("tenant", name("Its name")), ("weight", count()), ("cap", maybe("integer")),
            ("capacity", of("Capacity")), ("suspended", json!({ "type": "boolean" })),
            ("created_at", time()), ("counts", of("Counts")), ("bytes", count()),
        ]),
        "Pool": object([
            ("pool", queue("NAME, or TENANT/NAME")), ("max", count()), ("in_use", count()),
            ("available", count()), ("acquired", count()), ("timeouts", count()),
            ("expired", count()), ("wait_p50_seconds", maybe("number")),
            ("wait_p95_seconds", maybe("number")),
            ("waits", json!({ "type": "array", "items": count() })),
            ("quarantine_seconds", maybe("number")),
            ("in_line", json!({ "type": "integer", "minimum": 0, "description": "How many wait" })),
            ("masked", json!({ "type": "boolean", "description": "Who holds and waits is left out" })),
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
                "description": "Made by who asks: an ask that is repeated is recognised" },
            "weight": { "type": "integer", "minimum": 1, "maximum": u32::MAX },
            "ttl_seconds": { "type": ["integer", "null"], "minimum": 1, "maximum": 3600 },
            "priority": priority(),
            "owner": { "type": ["string", "null"], "description": "Who holds it, for people" },
        })),
        "PermitLife": strict(json!([]), json!({
            "ttl_seconds": { "type": ["integer", "null"], "minimum": 1, "maximum": 3600 },
        })),
        "Permit": object([
            ("permit", uuid()), ("pool", queue("Of which pool")),
            ("fence", json!({ "type": "integer", "description": "Larger than that of every permit before" })),
            ("ttl_seconds", count()), ("waited_seconds", json!({ "type": "number" })),
        ]),
        "PermitLeft": object([("permit", uuid()), ("held", json!({ "type": "boolean" }))]),
        "Operated": object([("changed", count()), ("requested", count()), ("skipped", count())]),
        "Ordered": object([("worker", uuid()), ("order", of("Order"))]),
        "NewBatch": strict(json!(["id"]), json!({
            "id": name("Its name, among all tenants' batches"),
            "tenant": or_null(name("Whose it is; the token's own without")),
            "type": words("What sort of batch, for people and reports"),
            "notes": words("Words for people"),
            "initiated_by": or_null(words("Who or what started it; the token's label without")),
            "workers": { "type": ["integer", "null"], "minimum": 0, "maximum": u32::MAX },
            "threshold": or_null(json!({
                "type": "object", "required": ["limit", "then"],
                "description": "How many failures are too many, and what then",
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
                "description": "The unit that is sent when it has ended",
                "properties": { "queue": queue("Where it waits"), "kind": name("Which handler runs it"), "data": {} },
            })),
        })),
        "Opened": object([("status", json!({ "enum": ["created", "existing"] })), ("batch", of("Batch"))]),
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

/// What a sender writes: only `kind` must be there, and nothing may that is not known.
fn new_unit() -> Value {
    json!({
        "type": "object",
        "required": ["kind"],
        "additionalProperties": false,
        "properties": {
            "id": or_null(uuid()),
            "tenant": or_null(name("Whose it is; the token's own without")),
            "queue": or_null(queue("Where it waits; `default` without")),
            "kind": name("Which handler runs it"),
            "payload": { "description": "What the handler reads" },
            "priority": priority(),
            "key": { "type": ["string", "null"], "maxLength": 512, "description": "A second one is recognised by it" },
            "window": { "enum": ["while_live", "while_kept"] },
            "on_duplicate": { "enum": ["existing", "refused"], "description": "What is told of a second one" },
            "policy": or_null(json!({ "type": "object", "description": "How its runs are repeated; its kind's without" })),
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
            "awaited": { "type": "boolean", "description": "Somebody will wait for its end" },
        },
    })
}
