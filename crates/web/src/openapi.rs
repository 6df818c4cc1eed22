//! The OpenAPI 3.1 document, derived from the endpoint table.

use serde_json::{Map, Value, json};

use crate::endpoints::{BASE, ENDPOINTS, Endpoint, Param, ParamKind, RequestBody, ResponseBody};
use crate::schema;

/// The document.
pub(crate) fn document() -> Value {
    let mut paths = Map::new();
    for endpoint in ENDPOINTS {
        let path = paths.entry(format!("{BASE}{}", endpoint.path)).or_insert_with(|| json!({}));
        path[endpoint.method.as_str().to_lowercase()] = operation(endpoint);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Longshore",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Durable queues, exact batches, bounded pools. Roles: read, submit, \
                operate, admin; each includes the roles before it.",
            "license": { "name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "`longshore token add`" },
            },
            "schemas": schema::all(),
        },
    })
}

fn operation(endpoint: &Endpoint) -> Value {
    let mut parameters: Vec<Value> = endpoint.path_params().map(in_path).collect();
    if endpoint.path.starts_with("/pools/") {
        parameters[0]["schema"] = schema::queue("");
    }
    parameters.extend(endpoint.query.iter().map(in_query));
    let mut operation = json!({
        "operationId": endpoint.id,
        "summary": endpoint.about,
        "description": format!("Needs role `{}`.", endpoint.role),
        "tags": [endpoint.path.split('/').nth(1).unwrap_or_default()],
        "parameters": parameters,
        "responses": responses(endpoint),
    });
    let body = |kind: &str, schema: &str, required: bool| json!({ "required": required, "content": { kind: { "schema": reference(schema) } } });
    match endpoint.request {
        RequestBody::Nothing => {}
        RequestBody::Json(schema) => {
            operation["requestBody"] = body("application/json", schema, true);
        }
        RequestBody::OptionalJson(schema) => {
            operation["requestBody"] = body("application/json", schema, false);
        }
        RequestBody::Ndjson(schema) => {
            operation["requestBody"] = body("application/x-ndjson", schema, false);
        }
    }
    if endpoint.accepts_idempotency_key() {
        let header = json!({
            "name": "Idempotency-Key", "in": "header", "required": false,
            "schema": { "type": "string", "minLength": 1, "maxLength": 256 },
        });
        parameters.push(header);
        operation["parameters"] = parameters.into();
    }
    operation
}

fn in_path(name: &str) -> Value {
    let schema = match name {
        "unit" | "worker" | "permit" => json!({ "type": "string", "format": "uuid" }),
        "queue" => schema::queue(""),
        _ => schema::name(""),
    };
    json!({ "name": name, "in": "path", "required": true, "schema": schema })
}

fn in_query(param: &Param) -> Value {
    let schema = match param.kind {
        ParamKind::Name if param.name == "queue" => schema::queue(param.about),
        ParamKind::Name => schema::name(param.about),
        ParamKind::Text if param.name == "since" => {
            json!({ "type": "string", "pattern": "^[0-9]{1,18}$" })
        }
        ParamKind::Text | ParamKind::RequiredText => {
            json!({ "type": "string", "minLength": 1, "pattern": "^[^\\x00]+$" })
        }
        ParamKind::Time => json!({ "type": "string", "format": "date-time" }),
        ParamKind::Number(most) => json!({ "type": "integer", "minimum": 1, "maximum": most }),
        ParamKind::Seconds(most) => json!({ "type": "integer", "minimum": 0, "maximum": most }),
        ParamKind::OneOf(words) => json!({ "type": "string", "enum": words }),
    };
    let required = param.kind == ParamKind::RequiredText;
    json!({
        "name": param.name, "in": "query", "description": param.about, "required": required,
        "schema": schema,
    })
}

fn responses(endpoint: &Endpoint) -> Value {
    let (kind, schema) = match endpoint.response {
        ResponseBody::One(schema) => ("application/json", reference(schema)),
        ResponseBody::Page(schema) => ("application/json", page(schema)),
        ResponseBody::Events => ("text/event-stream", json!({ "type": "string" })),
        ResponseBody::Document => ("application/json", json!({ "type": "object" })),
    };
    let content = json!({ kind: { "schema": schema } });
    let mut responses = json!({ "200": { "description": endpoint.about, "content": content } });
    if matches!(endpoint.response, ResponseBody::One("Sent" | "Opened")) {
        responses["201"] = json!({ "description": "Created", "content": content });
    }
    let problem = |why: &str| {
        let schema = reference("Problem");
        json!({ "description": why, "content": { "application/problem+json": { "schema": schema } } })
    };
    for (status, why) in [
        ("400", "Invalid request"),
        ("401", "No token, or an invalid one"),
        ("403", "The token's role does not include it"),
        ("404", "Not found, or not visible to this tenant"),
        ("429", "Too many requests: `Retry-After` says when to retry"),
        ("503", "The store is unavailable"),
    ] {
        responses[status] = problem(why);
    }
    if endpoint.is_mutation() {
        responses["409"] = problem("Its state does not allow this");
        responses["413"] = problem("Too large");
        responses["415"] = problem("Unsupported media type");
    }
    responses
}

fn page(schema: &str) -> Value {
    json!({
        "type": "object",
        "required": ["items", "next"],
        "properties": {
            "items": { "type": "array", "items": reference(schema) },
            "next": {
                "type": ["string", "null"],
                "description": "`after` for the next page; null at the end",
            },
        },
    })
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}
