//! Pages and metrics.

use axum::body::Body;
use axum::http::Request;
use longshore::accounts::{Budget, Role};
use longshore::{Scope, TenantId};
use longshore_web::AuthMode;

use crate::fixture::{TestResponse, TestSite, path};

async fn visit(site: &TestSite, path: &str, cookie: Option<&str>) -> TestResponse {
    let mut request = Request::get(path).header("host", "localhost");
    if let Some(cookie) = cookie {
        request = request.header("cookie", cookie);
    }
    site.send(request.body(Body::empty()).unwrap()).await
}

async fn press(site: &TestSite, path: &str, cookie: Option<&str>, from: &str, form: String) -> TestResponse {
    let mut request = Request::post(path).header("host", "localhost").header("origin", from);
    if let Some(cookie) = cookie {
        request = request.header("cookie", cookie);
    }
    site.send(request.body(Body::from(form)).unwrap()).await
}

const HERE: &str = "http://localhost";

#[tokio::test]
async fn every_page_shows_what_there_is_and_nothing_from_elsewhere() {
    for site in TestSite::everywhere(AuthMode::NoAuth).await {
        for page in ["/", "/batches", "/queues", "/units", "/workers", "/pools", "/usage", "/cron", "/audit"]
        {
            let response = visit(&site, page, None).await;
            assert_eq!(response.status.as_u16(), 200, "{page}: {}", response.text);
            assert!(response.text.contains("class=\"empty\""), "{page} says that there is nothing");
        }
        let data = site.populate("acme").await;
        for (page, words) in [
            ("/", "acme-batch"),
            ("/batches", "acme-batch"),
            ("/batches?status=running", "acme-batch"),
            ("/batches/acme%2Facme-batch", "acme broke"),
            ("/batches/acme%2Facme-batch?state=failed", "acme broke"),
            ("/queues", "acme/mail"),
            ("/workers", "acme worker"),
            ("/units", "acme-kind"),
            ("/units?state=failed&batch=acme%2Facme-batch", "acme broke"),
            ("/units?queue=shared&tenant=acme&state=ready", "acme-kind"),
            (&format!("/units?id={}", data.unit), "acme-kind"),
            (&format!("/units/{}", data.unit), "•••"),
            (&format!("/units/{}?payload=shown", data.unit), "acme 0"),
            ("/pools", "acme holder"),
            ("/usage", "$2.50"),
            ("/usage?days=1", "acme-model"),
            ("/cron", "acme-daily"),
            ("/dispatch", "node-7"),
        ] {
            let response = visit(&site, page, None).await;
            assert_eq!(response.status.as_u16(), 200, "{page}: {}", response.text);
            assert!(response.text.contains(words), "{page}: {}", response.text);
            let policy = response.headers["content-security-policy"].to_str().unwrap();
            assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"));
            // Otherwise browsers would not send the form's origin.
            assert_eq!(response.headers["referrer-policy"], "same-origin");
            assert!(!response.text.contains("<style") && !response.text.contains(" style="), "{page}");
            assert!(!response.text.contains("http://") && !response.text.contains("https://"), "{page}");
        }
        // $2.50 are spent.
        for (limit, words) in [(3, "near limit"), (2, "used up"), (10, "title=\"25 %\"")] {
            let budget = Budget { tokens: None, cost_picos: Some(limit * 1_000_000_000_000), warn_at: 0.8 };
            site.ledger.put_budget(&Scope::All, &TenantId::new("acme").unwrap(), Some(budget)).await.unwrap();
            let page = visit(&site, "/usage", None).await.text;
            assert!(page.contains(words), "{words}: {page}");
            assert_eq!(page.contains("near limit") || page.contains("used up"), limit < 10, "{page}");
        }
        let missing = Request::get("/nothing").header("accept", "text/html,*/*;q=0.8");
        let missing = site.send(missing.body(Body::empty()).unwrap()).await;
        assert_eq!(missing.status.as_u16(), 404);
        assert!(missing.text.contains("<h1>Not Found</h1>"), "{}", missing.text);
        let response = visit(&site, "/batches/none", None).await;
        assert_eq!(response.status.as_u16(), 404);
        assert!(response.text.contains("there is no batch"), "{}", response.text);
        let pause = path("/batches/{batch}/pause", &data);
        let response = press(&site, &pause, None, HERE, String::new()).await;
        assert_eq!(
            (response.status.as_u16(), &response.headers["location"]),
            (303, &"/batches/acme%2Facme-batch".parse().unwrap())
        );
        assert!(visit(&site, "/batches/acme%2Facme-batch", None).await.text.contains("paused by"));
        assert!(visit(&site, "/audit", None).await.text.contains("batch.pause"));
    }
}

#[tokio::test]
async fn what_people_wrote_is_shown_and_not_run() {
    let site = TestSite::in_memory(AuthMode::NoAuth);
    site.populate("acme").await;
    let failed = visit(&site, "/batches/acme%2Facme-batch", None).await.text;
    assert!(failed.contains("{&quot;words&quot;:&quot;acme 1&quot;}"), "{failed}");
    let response = visit(&site, "/batches/%3Cscript%3E", None).await;
    assert!(!response.text.contains("<script>"), "{}", response.text);
}

#[tokio::test]
async fn a_browser_logs_in_with_a_token_and_out_again() {
    let site = TestSite::in_memory(AuthMode::TokenRequired);
    site.populate("acme").await;
    let data = site.populate("other").await;
    let token = site.token("acme", Role::Operate).await;
    let response = visit(&site, "/", None).await;
    assert_eq!((response.status.as_u16(), &response.headers["location"]), (303, &"/login".parse().unwrap()));
    let wrong = press(&site, "/login", None, HERE, "token=lsh_x".to_owned()).await;
    assert_eq!(wrong.status.as_u16(), 401);
    assert!(wrong.text.contains("not valid") && !wrong.headers.contains_key("set-cookie"));
    let elsewhere = press(&site, "/login", None, "http://evil.example", format!("token={token}")).await;
    assert_eq!(elsewhere.status.as_u16(), 403);
    let response = press(&site, "/login", None, HERE, format!("token={token}")).await;
    assert_eq!(response.status.as_u16(), 303, "{}", response.text);
    let cookie = response.headers["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    assert!(!cookie.contains(&token), "the cookie is not the token");
    let cookie = cookie.split(';').next().unwrap();
    let page = visit(&site, "/", Some(cookie)).await;
    assert!(page.text.contains("acme-batch") && !page.text.contains("other"), "{}", page.text);
    assert!(!page.text.contains(&token));
    assert_eq!(visit(&site, "/workers", Some(cookie)).await.status.as_u16(), 403);
    assert_eq!(visit(&site, "/batches/other%2Fother-batch", Some(cookie)).await.status.as_u16(), 404);
    let pause = path("/batches/{batch}/pause", &data);
    let response = press(&site, &pause, Some(cookie), HERE, String::new()).await;
    assert_eq!(response.status.as_u16(), 404, "{}", response.text);
    let own = "/batches/acme%2Facme-batch/pause";
    let response = press(&site, own, Some(cookie), "http://evil.example", String::new()).await;
    assert_eq!(response.status.as_u16(), 403, "another site's page presses nothing");
    let response = press(&site, own, Some(cookie), HERE, String::new()).await;
    assert_eq!(response.status.as_u16(), 303, "{}", response.text);
    let elsewhere = press(&site, "/logout", Some(cookie), "http://evil.example", String::new()).await;
    assert_eq!(elsewhere.status.as_u16(), 403, "another site's page ends no session");
    assert!(!elsewhere.headers.contains_key("set-cookie"), "{:?}", elsewhere.headers);
    assert_eq!(visit(&site, "/", Some(cookie)).await.status.as_u16(), 200);
    let out = press(&site, "/logout", Some(cookie), HERE, String::new()).await;
    assert_eq!(out.status.as_u16(), 303, "{}", out.text);
    assert_eq!(visit(&site, "/", Some(cookie)).await.status.as_u16(), 303);
}

#[tokio::test]
async fn figures_are_the_stores_and_have_few_labels() {
    let site = TestSite::in_memory(AuthMode::TokenRequired);
    site.populate("acme").await;
    site.populate("other").await;
    assert_eq!(visit(&site, "/metrics", None).await.status.as_u16(), 401);
    let scrape = async |token: &str| {
        let request = Request::get("/metrics").header("authorization", format!("Bearer {token}"));
        site.send(request.body(Body::empty()).unwrap()).await.text
    };
    let all = scrape(&site.token("ops", Role::Admin).await).await;
    for line in [
        "longshore_units{queue=\"mail\",state=\"ready\"} 6",
        "longshore_units{queue=\"mail\",state=\"failed\"} 2",
        "longshore_units{queue=\"shared\",state=\"ready\"} 2",
        "longshore_workers 2",
        "longshore_worker_slots 4",
        "longshore_pool_permits{pool=\"acme/pool\",state=\"max\"} 3",
        "# TYPE longshore_pool_acquired_total counter",
    ] {
        assert!(all.lines().any(|found| found == line), "{line}\n{all}");
    }
    let own = scrape(&site.token("acme", Role::Read).await).await;
    assert!(own.contains("longshore_units{queue=\"mail\",state=\"ready\"} 3"), "{own}");
    assert!(!own.contains("other") && !own.contains("longshore_workers"), "{own}");
}

#[tokio::test]
async fn a_unit_is_masked_until_it_is_asked_for_and_for_others_always() {
    let site = TestSite::in_memory(AuthMode::TokenRequired);
    let (own, other) = (site.populate("acme").await, site.populate("other").await);
    let token = site.token("acme", Role::Admin).await;
    let look = async |path: String| {
        let request = Request::get(path).header("authorization", format!("Bearer {token}"));
        site.send(request.body(Body::empty()).unwrap()).await.text
    };
    let masked = look(format!("/units/{}", own.unit)).await;
    assert!(masked.contains("words") && !masked.contains("acme 0"), "{masked}");
    assert!(look(format!("/units/{}?payload=shown", own.unit)).await.contains("acme 0"));
    let others = look(format!("/units/{}?payload=shown", other.unit)).await;
    assert!(others.contains("Not readable") && !others.contains("other 0"), "{others}");
    let token = site.token("acme", Role::Operate).await;
    let request = Request::get(format!("/units/{}", other.unit));
    let request = request.header("authorization", format!("Bearer {token}"));
    let response = site.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(response.status.as_u16(), 404, "{}", response.text);
}

#[tokio::test]
async fn a_units_buttons_cancel_it_and_run_it_again() {
    let site = TestSite::on_disk(AuthMode::NoAuth);
    let data = site.populate("acme").await;
    let page = format!("/units/{}", data.unit);
    assert!(visit(&site, &page, None).await.text.contains("/cancel"));
    let response = press(&site, &format!("{page}/cancel"), None, HERE, String::new()).await;
    assert_eq!((response.status.as_u16(), &response.headers["location"]), (303, &page.parse().unwrap()));
    let cancelled = visit(&site, &page, None).await.text;
    assert!(cancelled.contains("pill cancelled") && cancelled.contains("/retry"), "{cancelled}");
    press(&site, &format!("{page}/retry"), None, HERE, String::new()).await;
    assert!(visit(&site, &page, None).await.text.contains("pill ready"));
}

#[tokio::test]
async fn a_lanes_button_is_for_that_lane_only() {
    for site in TestSite::everywhere(AuthMode::NoAuth).await {
        site.populate("acme").await;
        site.populate("other").await;
        let page = visit(&site, "/queues", None).await.text;
        assert!(page.contains("/queues/shared/pause?tenant=acme"), "{page}");
        let response = press(&site, "/queues/shared/pause?tenant=acme", None, HERE, String::new()).await;
        assert_eq!(response.status.as_u16(), 303, "{}", response.text);
        let lanes = site.get("/queues/shared", None).await;
        let paused = |at: usize| lanes["items"][at]["paused"].as_bool().unwrap();
        assert_eq!((lanes["items"][0]["tenant"].as_str(), paused(0)), (Some("acme"), true));
        assert_eq!((lanes["items"][1]["tenant"].as_str(), paused(1)), (Some("other"), false));
        press(&site, "/queues/shared/resume?tenant=acme", None, HERE, String::new()).await;
        let lanes = site.get("/queues/shared", None).await;
        assert_eq!(lanes["items"][0]["paused"], false);
    }
}

#[tokio::test]
async fn numbers_that_are_typed_resize_pools_and_scale_dispatch() {
    let site = TestSite::in_memory(AuthMode::NoAuth);
    site.populate("acme").await;
    for (page, action, form) in [
        ("/pools", "/pools/acme%2Fpool/resize", "max=7"),
        ("/dispatch", "/dispatch/acme-pool/scale", "min=2&max=5"),
    ] {
        let shown = visit(&site, page, None).await.text;
        assert!(shown.contains(&format!("action=\"{action}\"")), "{shown}");
        let response = press(&site, action, None, HERE, form.to_owned()).await;
        assert_eq!((response.status.as_u16(), &response.headers["location"]), (303, &page.parse().unwrap()));
        let odd = press(&site, action, None, HERE, "max=many".to_owned()).await;
        assert_eq!(odd.status.as_u16(), 400, "{}", odd.text);
        let elsewhere = press(&site, action, None, "http://evil.example", form.to_owned()).await;
        assert_eq!(elsewhere.status.as_u16(), 403, "another site's page presses nothing");
    }
    let pools = site.get("/pools", None).await;
    assert_eq!((&pools["items"][0]["pool"], &pools["items"][0]["max"]), (&"acme/pool".into(), &7.into()));
}

#[tokio::test]
async fn a_drained_batch_says_what_still_runs() {
    let site = TestSite::in_memory(AuthMode::NoAuth);
    let data = site.populate("acme").await;
    site.hold_unit("acme", &data).await;
    let page = visit(&site, "/batches/acme%2Facme-batch", None).await.text;
    assert!(page.contains("/batches/acme%2Facme-batch/drain"), "{page}");
    press(&site, "/batches/acme%2Facme-batch/drain", None, HERE, String::new()).await;
    let page = visit(&site, "/batches/acme%2Facme-batch", None).await.text;
    assert!(page.contains("drained by") && page.contains("1 still run"), "{page}");
}
