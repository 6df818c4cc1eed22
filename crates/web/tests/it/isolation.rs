//! Two tenants' tokens against every endpoint of the table: nothing leaks, nothing is changed.

use longshore::ledger::Role;
use longshore::store::UnitFilter;
use longshore::{PoolName, Scope};
use longshore_web::Lock;
use longshore_web::table::{ENDPOINTS, Endpoint, Gives, ParamKind};
use serde_json::json;

use crate::kit::{Site, Things, body, path, tenant};

/// All the ways in which a stranger may ask of a tenant's things at this endpoint.
fn askings(endpoint: &Endpoint, things: &Things) -> Vec<String> {
    let plain = path(endpoint.path, things);
    let mut all = vec![plain.clone()];
    if endpoint.path.contains("{permit}") {
        // It holds one of a pool that is everybody's, under an id that a stranger may have guessed.
        all.push(path(&endpoint.path.replace("{pool}", "shared"), things));
    }
    for param in endpoint.query {
        let mark = things.mark;
        let values: Vec<String> = match (param.name, param.kind) {
            ("tenant", _) => vec![mark.to_owned()],
            ("queue", _) => vec![things.queue.to_string(), "shared".to_owned()],
            ("kind", _) => vec![format!("{mark}-kind")],
            ("batch", _) => vec![things.batch.to_string()],
            ("after", _) => vec![format!("{mark}/{mark}-daily"), "5".to_owned()],
            (_, ParamKind::OneOf(words)) => words.iter().map(|word| (*word).to_owned()).collect(),
            (_, ParamKind::Number(most)) => vec![most.to_string()],
            (_, ParamKind::Seconds(_)) => vec!["0".to_owned()],
            (_, ParamKind::Text | ParamKind::Needed | ParamKind::Name | ParamKind::Time) => {
                vec!["0".to_owned()]
            }
        };
        all.extend(values.iter().map(|value| format!("{plain}?{}={value}", param.name)));
    }
    all
}

/// Everything that a tenant has, as it is.
async fn inventory(site: &Site, things: &Things) -> String {
    let scope = Scope::Tenant(tenant(things.mark));
    let units = site.store.units(&scope, &UnitFilter::default(), None, 1_000).await.unwrap();
    let batch = site.store.batch(&scope, &things.batch).await.unwrap();
    let queues = site.store.queues(&scope).await.unwrap();
    let schedules = site.store.schedules(&scope, None, 100).await.unwrap();
    let sessions = site.store.sessions().await.unwrap();
    let deeds = site.ledger.deeds(&scope, None, 100).await.unwrap();
    let mut held = Vec::new();
    for pool in [format!("{}/pool", things.mark), "shared".to_owned()] {
        let stats = site.permits.stats(&PoolName::new(pool).unwrap()).await.unwrap().unwrap();
        held.push((stats.max, stats.holders.iter().filter(|one| one.id == things.permit).count()));
    }
    serde_json::to_string(&json!([units, batch, queues, schedules, sessions, deeds, held])).unwrap()
}

async fn nothing_leaks(site: Site) {
    let (zebra, quokka) = (site.furnish("zebra").await, site.furnish("quokka").await);
    let before = inventory(&site, &zebra).await;
    for role in [Role::Read, Role::Submit, Role::Operate] {
        let token = site.token("quokka", role).await;
        for endpoint in ENDPOINTS.iter().filter(|one| one.gives != Gives::Events) {
            for asked in askings(endpoint, &zebra) {
                let body = body(endpoint.id, "zebra");
                let told = site.ask(endpoint.method.as_str(), &asked, Some(&token), body).await;
                // A refusal may repeat what was asked for, as who asks knows it anyway.
                let leaks = told.status.is_success() && told.text.contains("zebra");
                assert!(!leaks, "{role} {} {asked}: {}", endpoint.method, told.text);
                assert!(!told.status.is_server_error(), "{asked}: {}", told.text);
                let known = [
                    "zebra 0",
                    "zebra 1",
                    "zebra broke",
                    "zebra notes",
                    "zebra worker",
                    "zebra holder",
                    "zebra-model",
                ];
                assert!(!known.iter().any(|secret| told.text.contains(secret)), "{asked}");
            }
        }
    }
    assert_eq!(inventory(&site, &zebra).await, before, "a stranger changed something");
    // The same walk finds the tenant's own things, so that it would have found the other's.
    let own = site.token("zebra", Role::Operate).await;
    for asked in
        ["/queues", "/batches", "/units", "/cron", "/tenants", "/profiles", "/budgets", "/pools"]
    {
        assert!(site.get(asked, Some(&own)).await.to_string().contains("zebra"), "{asked}");
    }
    drop(quokka);
}

#[tokio::test]
async fn a_tenant_sees_and_changes_nothing_of_another_in_memory() {
    nothing_leaks(Site::in_memory(Lock::Always)).await;
}

#[tokio::test]
async fn a_tenant_sees_and_changes_nothing_of_another_in_sqlite() {
    nothing_leaks(Site::on_disk(Lock::Always)).await;
}

#[tokio::test]
async fn a_tenant_sees_and_changes_nothing_of_another_in_postgresql() {
    nothing_leaks(Site::on_postgres(Lock::Always).await).await;
}

#[tokio::test]
async fn an_admin_sees_all_counters_and_only_its_own_payloads() {
    for site in Site::everywhere(Lock::Always).await {
        let (zebra, own) = (site.furnish("zebra").await, site.furnish("quokka").await);
        let admin = site.token("quokka", Role::Admin).await;
        let queues = site.get("/queues", Some(&admin)).await.to_string();
        assert!(queues.contains("zebra") && queues.contains("quokka"));
        for endpoint in ENDPOINTS.iter().filter(|one| !one.changes() && one.gives != Gives::Events)
        {
            for asked in askings(endpoint, &zebra) {
                let told = site.ask("GET", &asked, Some(&admin), None).await;
                for secret in ["zebra 0", "zebra 1", "zebra 2", "zebra 3", "zebra notes"] {
                    assert!(!told.text.contains(secret), "{asked}: {}", told.text);
                }
                assert!(!told.text.contains(r#""words":"zebra"#), "{asked}: {}", told.text);
                for secret in ["SECRET_KEY", "hunter2"] {
                    assert!(!told.text.contains(secret), "{asked}: {}", told.text);
                }
            }
        }
        let unit = site.get(&path("/units/{unit}", &zebra), Some(&admin)).await;
        assert_eq!((&unit["masked"], &unit["payload"]), (&true.into(), &json!(null)));
        let unit = site.get(&path("/units/{unit}", &own), Some(&admin)).await;
        assert_eq!(unit["payload"], json!({ "words": "quokka 0" }));
        let body = json!({ "kind": "k", "tenant": "zebra" });
        let told = site.ask("POST", "/units", Some(&admin), Some(body)).await;
        assert_eq!(told.status.as_u16(), 404, "nor does it send as them: {}", told.text);
    }
}
