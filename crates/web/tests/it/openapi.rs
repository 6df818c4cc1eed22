//! The OpenAPI document matches the real responses.

use jsonschema::Validator;
use longshore_web::AuthMode;
use longshore_web::endpoints::{BASE, ENDPOINTS, ResponseBody};
use serde_json::{Value, json};

use crate::fixture::{TestSite, body, good_path};

#[tokio::test]
async fn the_document_names_every_endpoint_of_the_table_and_no_other() {
    let site = TestSite::in_memory(AuthMode::NoAuth);
    let document = site.get("/openapi.json", None).await;
    assert_eq!(document["openapi"], "3.1.0");
    let mut written: Vec<String> = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        written.extend(methods.as_object().unwrap().keys().map(|method| format!("{method} {path}")));
    }
    let mut known: Vec<String> = ENDPOINTS
        .iter()
        .map(|one| format!("{} {BASE}{}", one.method.as_str().to_lowercase(), one.path))
        .collect();
    written.sort();
    known.sort();
    assert_eq!(written, known);
    let mut ids: Vec<&str> = ENDPOINTS.iter().map(|one| one.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), ENDPOINTS.len(), "two endpoints have one name");
}

/// A validator for one schema of the document.
fn validator(document: &Value, schema: &Value) -> Validator {
    let mut schema = schema.clone();
    schema["components"] = document["components"].clone();
    jsonschema::draft202012::options().build(&schema).unwrap()
}

#[tokio::test]
async fn every_answer_looks_as_the_document_says() {
    for site in TestSite::everywhere(AuthMode::NoAuth).await {
        let data = site.populate("acme").await;
        site.open_replies("acme").await;
        let document = site.get("/openapi.json", None).await;
        for endpoint in ENDPOINTS.iter().filter(|one| one.response != ResponseBody::Events) {
            let body = body(endpoint.id, "acme");
            let asked = good_path(endpoint, &data);
            let response = site.ask(endpoint.method.as_str(), &asked, None, body).await;
            let (method, path) = (endpoint.method.as_str().to_lowercase(), endpoint.path);
            let responses = &document["paths"][format!("{BASE}{path}")][method]["responses"];
            let documented = &responses[response.status.as_str()];
            let schema = &documented["content"]["application/json"]["schema"];
            assert!(schema.is_object(), "{path}: {} {}", response.status, response.text);
            let answer = response.good();
            let problems: Vec<String> =
                validator(&document, schema).iter_errors(&answer).map(|e| e.to_string()).collect();
            assert!(problems.is_empty(), "{path}: {problems:?}\n{answer:#}");
            if let (ResponseBody::Page(_), false) = (endpoint.response, path == "/audit") {
                assert_ne!(answer["items"], json!([]), "{path} proves nothing");
            }
        }
    }
}

#[tokio::test]
async fn problems_look_as_the_document_says() {
    let site = TestSite::in_memory(AuthMode::NoAuth);
    let document = site.get("/openapi.json", None).await;
    let schema = json!({ "$ref": "#/components/schemas/Problem" });
    let problem = validator(&document, &schema);
    for (method, path, status) in [
        ("GET", "/nothing", 404),
        ("DELETE", "/queues", 405),
        ("GET", "/queues?colour=red", 400),
        ("GET", "/units?limit=0", 400),
        ("GET", "/units?limit=1&limit=2", 400),
        ("GET", "/units?state=odd", 400),
        ("GET", "/units?after=odd", 400),
        ("GET", "/units/odd", 400),
        ("GET", "/batches/a%20b", 400),
        ("GET", "/batches/none", 404),
        ("GET", "/units/019a8d2e-0000-7000-8000-000000000000", 404),
        ("POST", "/units", 415),
        ("POST", "/queues/none/pause", 404),
    ] {
        let response = site.ask(method, path, None, None).await;
        assert_eq!(response.status.as_u16(), status, "{method} {path}: {}", response.text);
        assert_eq!(response.headers["content-type"], "application/problem+json", "{path}");
        let answer = response.json();
        assert!(problem.is_valid(&answer), "{path}: {answer}");
        assert_eq!(answer["status"], status, "{path}");
    }
}
