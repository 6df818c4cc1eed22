//! Two tenants' tokens against every endpoint: nothing leaks, nothing is changed.

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use longshore::accounts::{PutProfile, Role};
use longshore::store::{QueueChange, ScheduleFilter, UnitFilter};
use longshore::{BatchId, NewUnit, PermitId, PoolName, QueueName, Scope, SessionId, UnitId};
use longshore_web::AuthMode;
use longshore_web::endpoints::{BASE, ENDPOINTS, Endpoint, PAGES, ParamKind, ResponseBody};
use serde_json::json;
use tower::ServiceExt;

use crate::fixture::{TenantData, TestResponse, TestSite, body, kind, path, tenant};

/// All requests to this endpoint by which another tenant may try to reach a tenant's data.
fn foreign_requests(endpoint: &Endpoint, data: &TenantData) -> Vec<String> {
    let plain = path(endpoint.path, data);
    let mut all = vec![plain.clone()];
    if endpoint.path.contains("{permit}") {
        // It also holds a permit of a shared pool, with an id that another tenant may have guessed.
        all.push(path(&endpoint.path.replace("{pool}", "shared"), data));
    }
    for param in endpoint.query {
        let mark = data.mark;
        let values: Vec<String> = match (param.name, param.kind) {
            ("tenant", _) => vec![mark.to_owned()],
            ("queue", _) => vec![data.queue.to_string(), "shared".to_owned()],
            ("kind", _) => vec![format!("{mark}-kind")],
            ("batch", _) => vec![data.batch.to_string()],
            ("after", _) => vec![format!("{mark}/{mark}-daily"), "5".to_owned(), "a%20b".to_owned()],
            (_, ParamKind::OneOf(words)) => words.iter().map(|word| (*word).to_owned()).collect(),
            (_, ParamKind::Number(most)) => vec![most.to_string()],
            (_, ParamKind::Seconds(_)) => vec!["0".to_owned()],
            (_, ParamKind::Text | ParamKind::RequiredText | ParamKind::Name | ParamKind::Time) => {
                vec!["0".to_owned()]
            }
        };
        all.extend(values.iter().map(|value| format!("{plain}?{}={value}", param.name)));
    }
    all
}

/// All data of a tenant.
async fn inventory(site: &TestSite, data: &TenantData) -> String {
    let scope = Scope::Tenant(tenant(data.mark));
    let units = site.store.units(&scope, &UnitFilter::default(), None, 1_000).await.unwrap();
    let batch = site.store.batch(&scope, &data.batch).await.unwrap();
    let queues = site.store.queues(&scope).await.unwrap();
    let schedules = site.store.schedules(&scope, &ScheduleFilter::All, None, 100).await.unwrap().page;
    let sessions = site.store.sessions().await.unwrap();
    let deeds = site.ledger.audit_entries(&scope, None, 100).await.unwrap();
    let mut held = Vec::new();
    for pool in [format!("{}/pool", data.mark), "shared".to_owned()] {
        let stats = site.permits.stats(&PoolName::new(pool).unwrap()).await.unwrap().unwrap();
        held.push((stats.max, stats.holders.iter().filter(|one| one.id == data.permit).count()));
    }
    serde_json::to_string(&json!([units, batch, queues, schedules, sessions, deeds, held])).unwrap()
}

/// A tenant that does not exist, with names and ids as long as those of `zebra`.
fn absent() -> TenantData {
    TenantData {
        mark: "zobra",
        unit: UnitId::new(),
        worker: SessionId::new(),
        batch: BatchId::new("zobra/zobra-batch").unwrap(),
        queue: QueueName::new("zobra/mail").unwrap(),
        permit: PermitId::new(),
    }
}

/// An answer without the request's own names and ids.
fn anonymous(response: &TestResponse, data: &TenantData) -> (u16, String) {
    let ids = [data.unit.to_string(), data.worker.to_string(), data.permit.to_string()];
    let text = ids.iter().fold(response.text.replace(data.mark, "MARK"), |text, id| text.replace(id, "ID"));
    (response.status.as_u16(), text)
}

/// All changes of the tenant's event stream.
async fn heard(site: &TestSite, token: &str) -> String {
    let request = Request::get(format!("{BASE}/events?since=0")).header("host", "localhost");
    let request = request.header("authorization", format!("Bearer {token}")).body(Body::empty()).unwrap();
    let mut body = site.router.clone().oneshot(request).await.unwrap().into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    String::from_utf8(first.to_vec()).unwrap()
}

/// Events, errors and pages tell a tenant nothing of another one's objects, not even that they exist.
async fn nothing_is_told(site: &TestSite, zebra: &TenantData) {
    let nobody = absent();
    for name in ["zebra/mail", "zebra-side", "shared"] {
        let queue = QueueName::new(name).unwrap();
        let unit = NewUnit {
            tenant: tenant("zebra"),
            queue: queue.clone(),
            ..NewUnit::new(kind("zebra-kind"), json!(0))
        };
        site.store.send(&Scope::All, vec![unit]).await.unwrap();
        for paused in [true, false] {
            let change = QueueChange { paused: Some(paused), ..QueueChange::default() };
            site.store.change_queue(&Scope::All, &queue, change).await.unwrap();
        }
    }
    let token = site.token("quokka", Role::Operate).await;
    let events = heard(site, &token).await;
    assert!(events.contains("quokka") && !events.contains("zebra"), "{events}");
    let own = heard(site, &site.token("zebra", Role::Read).await).await;
    assert!(own.contains("zebra/mail") && own.contains("zebra-side"), "{own}");
    for endpoint in ENDPOINTS.iter().filter(|one| one.response != ResponseBody::Events) {
        let asked = foreign_requests(endpoint, zebra).into_iter().zip(foreign_requests(endpoint, &nobody));
        for (real, absent) in asked {
            let method = endpoint.method.as_str();
            let found = site.ask(method, &real, Some(&token), body(endpoint.id, "zebra")).await;
            let none = site.ask(method, &absent, Some(&token), body(endpoint.id, "zobra")).await;
            assert_eq!(anonymous(&found, zebra), anonymous(&none, &nobody), "{method} {real}");
        }
    }
    for (real, absent) in other_requests(zebra).into_iter().zip(other_requests(&nobody)) {
        let (found, none) = (real.send(site, &token).await, absent.send(site, &token).await);
        assert_eq!(anonymous(&found, zebra), anonymous(&none, &nobody), "{real:?}");
        // A page repeats the request's own filters.
        let leaks = found.status.is_success() && found.text.contains("zebra") && !real.path.contains('?');
        assert!(!leaks, "{real:?}: {}", found.text);
        assert!(!found.status.is_server_error(), "{real:?}: {}", found.text);
    }
}

/// A request outside of the API.
#[derive(Debug)]
struct OtherRequest {
    method: &'static str,
    path: String,
    body: String,
}

impl OtherRequest {
    async fn send(&self, site: &TestSite, token: &str) -> TestResponse {
        let request = Request::builder().method(self.method).uri(&self.path).header("host", "localhost");
        let request = request.header("authorization", format!("Bearer {token}"));
        let request = request.header("origin", "http://localhost").header("x-request-id", "the-same");
        site.send(request.body(Body::from(self.body.clone())).unwrap()).await
    }
}

/// All requests outside of the API by which another tenant may try to reach a tenant's data: pages, forms,
/// metrics, the gateway.
fn other_requests(data: &TenantData) -> Vec<OtherRequest> {
    let get = |path: String| OtherRequest { method: "GET", path, body: String::new() };
    let mark = data.mark;
    let mut all: Vec<OtherRequest> = PAGES.iter().map(|page| get(path(page, data))).collect();
    let filters = [
        format!("/units?queue={mark}-side"),
        format!("/units?queue=shared&tenant={mark}"),
        format!("/units?batch={mark}%2F{mark}-batch"),
        format!("/units?id={}", data.unit),
        format!("/units?kind={mark}-kind&state=ready"),
        format!("/usage?tenant={mark}"),
    ];
    all.extend(filters.into_iter().chain(["/metrics".to_owned(), "/v1/models".to_owned()]).map(get));
    all.extend(["fast", "fast/other"].map(|profile| get(format!("/v1/models/{mark}-{profile}"))));
    for endpoint in ENDPOINTS.iter().filter(|one| one.has_form()) {
        let body = if endpoint.id == "resizePool" { "max=5" } else { "" };
        all.push(OtherRequest { method: "POST", path: path(endpoint.path, data), body: body.to_owned() });
    }
    for gateway in ["/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"] {
        let messages = json!([{ "role": "user", "content": "good day" }]);
        let body = json!({ "model": format!("{mark}-fast"), "max_tokens": 9, "messages": messages });
        all.push(OtherRequest { method: "POST", path: gateway.to_owned(), body: body.to_string() });
    }
    all
}

/// All that a tenant is shown.
async fn shown(site: &TestSite, token: &str) -> Vec<String> {
    let lists = ENDPOINTS.iter().filter(|one| !one.is_mutation() && one.response != ResponseBody::Events);
    let lists = lists.map(|one| format!("{BASE}{}", one.path));
    let paths = PAGES.iter().map(|page| (*page).to_owned()).chain(lists);
    let paths = paths.chain(["/metrics", "/v1/models"].map(str::to_owned));
    let mut all = Vec::new();
    for path in paths.filter(|path| !path.contains('{')) {
        let request = OtherRequest { method: "GET", path, body: String::new() };
        let response = request.send(site, token).await;
        all.push(format!("{} {} {}", request.path, response.status, response.text));
    }
    all
}

/// What a tenant is shown does not change with what another one does, not even a number.
async fn nothing_is_counted(site: &TestSite, zebra: &TenantData) {
    let (own, other) = (site.token("quokka", Role::Operate).await, site.token("zebra", Role::Operate).await);
    let before = shown(site, &own).await;
    for queue in ["zebra/mail", "zebra-side", "shared"] {
        let unit = json!({ "kind": "zebra-kind", "queue": queue });
        site.ask("POST", "/units", Some(&other), Some(unit)).await.good();
    }
    for endpoint in ENDPOINTS.iter().filter(|one| one.is_mutation()) {
        site.ask("POST", &path(endpoint.path, zebra), Some(&other), body(endpoint.id, "zebra")).await;
    }
    let profile = json!({ "provider": "echo", "model": "zebra-model" });
    let put = PutProfile {
        tenant: tenant("zebra"),
        name: "zebra-slow".parse().unwrap(),
        body: Some(profile),
        suspended: None,
        expected: None,
    };
    site.ledger.put_profile(&Scope::All, put).await.unwrap();
    for (before, after) in before.iter().zip(shown(site, &own).await) {
        assert_eq!(*before, after);
    }
}

/// A tenant may use the same names as another one; an id it knows from elsewhere is refused.
async fn names_are_the_tenants_own(site: &TestSite, zebra: &TenantData) {
    let token = site.token("quokka", Role::Operate).await;
    let open = json!({ "id": "zebra-batch" });
    let opened = site.ask("POST", "/batches", Some(&token), Some(open)).await.good();
    assert_eq!(
        (&opened["status"], &opened["batch"]["id"]),
        (&json!("created"), &json!("quokka/zebra-batch"))
    );
    let full = site.ask("POST", "/batches", Some(&token), Some(json!({ "id": "zebra/x" }))).await;
    assert_eq!(full.status.as_u16(), 404, "{}", full.text);
    let taken = json!({ "id": zebra.unit, "kind": "k" });
    let sent = site.ask("POST", "/units", Some(&token), Some(taken)).await;
    assert_eq!(sent.status.as_u16(), 409, "it is not stored, so it must not be confirmed: {}", sent.text);
    assert!(!sent.text.contains("zebra"), "{}", sent.text);
}

async fn nothing_leaks(mut site: TestSite) {
    let (zebra, quokka) = (site.populate("zebra").await, site.populate("quokka").await);
    site.open_replies("zebra").await;
    let before = inventory(&site, &zebra).await;
    for role in [Role::Read, Role::Submit, Role::Operate] {
        let token = site.token("quokka", role).await;
        for endpoint in ENDPOINTS.iter().filter(|one| one.response != ResponseBody::Events) {
            for asked in foreign_requests(endpoint, &zebra) {
                let body = body(endpoint.id, "zebra");
                let response = site.ask(endpoint.method.as_str(), &asked, Some(&token), body).await;
                // An error may repeat the request's own parameters.
                let leaks = response.status.is_success() && response.text.contains("zebra");
                assert!(!leaks, "{role} {} {asked}: {}", endpoint.method, response.text);
                assert!(!response.status.is_server_error(), "{asked}: {}", response.text);
                let known = [
                    "zebra 0",
                    "zebra 1",
                    "zebra broke",
                    "zebra notes",
                    "zebra worker",
                    "zebra reply",
                    "zebra holder",
                    "zebra-model",
                ];
                assert!(!known.iter().any(|secret| response.text.contains(secret)), "{asked}");
            }
        }
    }
    assert_eq!(inventory(&site, &zebra).await, before, "another tenant changed something");
    // The same requests find the tenant's own data, so they would have found the other's.
    let own = site.token("zebra", Role::Operate).await;
    for asked in [
        "/queues",
        "/batches",
        "/units",
        "/cron",
        "/tenants",
        "/profiles",
        "/budgets",
        "/pools",
        "/reply-queues",
    ] {
        assert!(site.get(asked, Some(&own)).await.to_string().contains("zebra"), "{asked}");
    }
    for page in ["/", "/units/{unit}", "/batches/{batch}", "/v1/models"] {
        let request = OtherRequest { method: "GET", path: path(page, &zebra), body: String::new() };
        assert!(request.send(&site, &own).await.text.contains("zebra"), "{page}");
    }
    // The time for which a permit is held would make two equal requests differ.
    for pool in ["quokka/pool", "shared"] {
        site.permits.release(&PoolName::new(pool).unwrap(), &[quokka.permit], false).await.unwrap();
    }
    site.stop_clock(AuthMode::TokenRequired);
    nothing_is_told(&site, &zebra).await;
    names_are_the_tenants_own(&site, &zebra).await;
    nothing_is_counted(&site, &zebra).await;
}

#[tokio::test]
async fn a_tenant_sees_and_changes_nothing_of_another_in_memory() {
    nothing_leaks(TestSite::in_memory(AuthMode::TokenRequired)).await;
}

#[tokio::test]
async fn a_tenant_sees_and_changes_nothing_of_another_in_sqlite() {
    nothing_leaks(TestSite::on_disk(AuthMode::TokenRequired)).await;
}

#[tokio::test]
async fn a_tenant_sees_and_changes_nothing_of_another_in_postgresql() {
    nothing_leaks(TestSite::on_postgres(AuthMode::TokenRequired).await).await;
}

#[tokio::test]
async fn an_admin_sees_all_counters_and_only_its_own_payloads() {
    for site in TestSite::everywhere(AuthMode::TokenRequired).await {
        let (zebra, own) = (site.populate("zebra").await, site.populate("quokka").await);
        site.open_replies("zebra").await;
        let admin = site.token("quokka", Role::Admin).await;
        let queues = site.get("/queues", Some(&admin)).await.to_string();
        assert!(queues.contains("zebra") && queues.contains("quokka"));
        for endpoint in
            ENDPOINTS.iter().filter(|one| !one.is_mutation() && one.response != ResponseBody::Events)
        {
            for asked in foreign_requests(endpoint, &zebra) {
                let response = site.ask("GET", &asked, Some(&admin), None).await;
                for secret in ["zebra 0", "zebra 1", "zebra 2", "zebra 3", "zebra notes", "zebra reply"] {
                    assert!(!response.text.contains(secret), "{asked}: {}", response.text);
                }
                assert!(!response.text.contains(r#""words":"zebra"#), "{asked}: {}", response.text);
                for secret in ["SECRET_KEY", "hunter2"] {
                    assert!(!response.text.contains(secret), "{asked}: {}", response.text);
                }
            }
        }
        let unit = site.get(&path("/units/{unit}", &zebra), Some(&admin)).await;
        assert_eq!((&unit["masked"], &unit["payload"]), (&true.into(), &json!(null)));
        let unit = site.get(&path("/units/{unit}", &own), Some(&admin)).await;
        assert_eq!(unit["payload"], json!({ "words": "quokka 0" }));
        let body = json!({ "kind": "k", "tenant": "zebra" });
        let response = site.ask("POST", "/units", Some(&admin), Some(body)).await;
        assert_eq!(response.status.as_u16(), 404, "nor does it send as them: {}", response.text);
    }
}
