//! Authentication: tokens, roles, and requests without a token.

use axum::body::Body;
use axum::http::Request;
use longshore::Scope;
use longshore::accounts::{NewToken, Role};
use longshore_web::endpoints::{ENDPOINTS, ResponseBody};
use longshore_web::{AuthMode, FreshToken};
use std::time::Duration;

use crate::fixture::{TestSite, now, path, tenant};

#[tokio::test]
async fn nobody_comes_in_without_a_good_token_where_one_is_demanded() {
    let site = TestSite::in_memory(AuthMode::TokenRequired);
    let data = site.populate("acme").await;
    let expired = FreshToken::new();
    let new = NewToken {
        id: longshore::TokenId::new(),
        tenant: tenant("acme"),
        role: Role::Admin,
        label: "old".to_owned(),
        hash: expired.hash(),
        expires_at: Some(now() - Duration::from_secs(1)),
    };
    site.ledger.add_token(&Scope::All, new).await.unwrap();
    for endpoint in ENDPOINTS {
        let path = path(endpoint.path, &data);
        for token in [None, Some("lsh_guessed"), Some(""), Some(expired.expose())] {
            let response = site.ask(endpoint.method.as_str(), &path, token, None).await;
            assert_eq!(response.status.as_u16(), 401, "{path} {token:?}: {}", response.text);
            assert_eq!(response.headers["www-authenticate"], "Bearer");
        }
    }
}

#[tokio::test]
async fn each_endpoint_demands_its_role() {
    let site = TestSite::in_memory(AuthMode::TokenRequired);
    let data = site.populate("acme").await;
    for role in Role::ALL {
        let token = site.token("acme", role).await;
        for endpoint in ENDPOINTS.iter().filter(|one| one.response != ResponseBody::Events) {
            let path = path(endpoint.path, &data);
            let response = site.ask(endpoint.method.as_str(), &path, Some(&token), None).await;
            let refused = response.status.as_u16() == 403;
            assert_eq!(refused, role < endpoint.role, "{role} {path}: {}", response.text);
        }
    }
}

#[tokio::test]
async fn a_revoked_token_opens_nothing_from_then_on() {
    let site = TestSite::on_disk(AuthMode::OpenUntilFirstToken);
    assert_eq!(site.get("/whoami", None).await["all_tenants"], true, "the door is open");
    let token = site.token("acme", Role::Read).await;
    let me = site.get("/whoami", Some(&token)).await;
    assert_eq!((&me["tenant"], &me["role"]), (&"acme".into(), &"read".into()));
    let response = site.ask("GET", "/whoami", None, None).await;
    assert_eq!(response.status.as_u16(), 401, "there is a token now");
    let id = me["token"].as_str().unwrap().parse().unwrap();
    site.ledger.revoke_token(&Scope::All, id).await.unwrap();
    let response = site.ask("GET", "/whoami", Some(&token), None).await;
    assert_eq!(response.status.as_u16(), 401);
    let response = site.ask("GET", "/whoami", None, None).await;
    assert_eq!(response.status.as_u16(), 401, "revoking the last one does not open the door");
}

#[tokio::test]
async fn an_open_door_is_not_for_other_sites_pages_or_proxies() {
    let site = TestSite::in_memory(AuthMode::OpenUntilFirstToken);
    site.populate("acme").await;
    let ask = |host: &str, name: &str, value: &str, method: &str| {
        let request = Request::builder().method(method).uri("/api/v1/queues/shared/pause");
        let request = request.header("host", host).header(name, value);
        site.send(request.body(Body::empty()).unwrap())
    };
    assert_eq!(ask("127.0.0.1:7717", "accept", "*/*", "POST").await.status.as_u16(), 200);
    for (host, name, value) in [
        ("rebound.example", "accept", "*/*"),
        ("127.0.0.1:7717", "origin", "https://evil.example"),
        ("127.0.0.1:7717", "sec-fetch-site", "cross-site"),
        ("127.0.0.1:7717", "x-forwarded-for", "203.0.113.7"),
    ] {
        let response = ask(host, name, value, "POST").await;
        assert_eq!(response.status.as_u16(), 403, "{host} {name} {value}: {}", response.text);
    }
}

#[tokio::test]
async fn who_guesses_is_told_to_rest_and_locks_nobody_out() {
    let site = TestSite::in_memory(AuthMode::TokenRequired);
    let good = site.token("acme", Role::Read).await;
    let from = |ip: [u8; 4], token: &str| {
        let request = Request::builder().uri("/api/v1/whoami").header("host", "x");
        let request = request.header("authorization", format!("Bearer {token}"));
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(std::net::SocketAddr::from((ip, 1)));
        site.send(request)
    };
    let mut statuses = Vec::new();
    for guess in 0..30 {
        statuses.push(from([10, 0, 0, 1], &format!("lsh_{guess}")).await.status.as_u16());
    }
    assert_eq!((statuses[0], statuses[29]), (401, 429));
    assert_eq!(from([10, 0, 0, 1], &good).await.status.as_u16(), 200, "a good one is let in");
    assert_eq!(from([10, 0, 0, 2], "lsh_x").await.status.as_u16(), 401, "others are others");
}
