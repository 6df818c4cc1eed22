//! Authentication: tokens, roles, and requests without a token.

use axum::body::Body;
use axum::http::{Request, Version};
use longshore::Scope;
use longshore::accounts::{NewToken, Role};
use longshore_web::endpoints::{ENDPOINTS, ResponseBody};
use longshore_web::{AuthMode, ConnectionLimits, FreshToken, ProxyConfig};
use serde_json::{Value, json};
use std::time::Duration;
use tower::ServiceExt;

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
async fn a_revoked_token_is_rejected_from_then_on() {
    let site = TestSite::on_disk(AuthMode::TokenRequired);
    let response = site.ask("GET", "/whoami", None, None).await;
    assert_eq!(response.status.as_u16(), 401, "even while there is no token");
    let token = site.token("acme", Role::Read).await;
    let me = site.get("/whoami", Some(&token)).await;
    assert_eq!((&me["tenant"], &me["role"]), (&"acme".into(), &"read".into()));
    let id = me["token"].as_str().unwrap().parse().unwrap();
    site.ledger.revoke_token(&Scope::All, id).await.unwrap();
    let response = site.ask("GET", "/whoami", Some(&token), None).await;
    assert_eq!(response.status.as_u16(), 401);
    let response = site.ask("GET", "/whoami", None, None).await;
    assert_eq!(response.status.as_u16(), 401, "nor does revoking the last one admit anyone");
}

#[tokio::test]
async fn without_authentication_only_direct_requests_of_this_machine_are_admitted() {
    let site = TestSite::in_memory(AuthMode::NoAuth);
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
        ("127.0.0.1:7717", "x-forwarded-host", "site.example"),
        ("127.0.0.1:7717", "x-forwarded-proto", "https"),
        ("127.0.0.1:7717", "cf-connecting-ip", "203.0.113.7"),
        ("127.0.0.1:7717", "true-client-ip", "203.0.113.7"),
    ] {
        let response = ask(host, name, value, "POST").await;
        assert_eq!(response.status.as_u16(), 403, "{host} {name} {value}: {}", response.text);
    }
    let old = Request::get("/api/v1/queues").version(Version::HTTP_10).header("host", "127.0.0.1:7717");
    let response = site.send(old.body(Body::empty()).unwrap()).await;
    assert_eq!(response.status.as_u16(), 403, "what nginx sends by default: {}", response.text);
}

#[tokio::test]
async fn a_request_with_two_hosts_is_rejected() {
    let site = TestSite::in_memory(AuthMode::TokenRequired);
    let request = Request::get("/healthz").header("host", "localhost").header("host", "evil.example");
    let response = site.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(response.status.as_u16(), 400, "{}", response.text);
}

#[tokio::test]
async fn behind_a_proxy_with_tls_buttons_work_and_cookies_are_for_tls_only() {
    let mut site = TestSite::in_memory(AuthMode::TokenRequired);
    site.populate("acme").await;
    let token = site.token("acme", Role::Admin).await;
    let public_url = Some("https://site.example".parse().unwrap());
    let proxies = ProxyConfig { public_url, trusted: Default::default() };
    site.router = site.web(AuthMode::TokenRequired).proxies(proxies).router();
    // As nginx sends it: with its own name for this server as `Host`.
    let send = |path: &str, headers: &[(&str, &str)], body: String| {
        let mut request = Request::post(path).header("host", "longshore.internal:7717");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        site.send(request.body(Body::from(body)).unwrap())
    };
    for headers in [
        [("sec-fetch-site", "same-origin"), ("origin", "https://site.example")],
        [("accept", "*/*"), ("origin", "https://site.example")],
    ] {
        let response = send("/login", &headers, format!("token={token}")).await;
        assert_eq!(response.status.as_u16(), 303, "{}", response.text);
        let cookie = response.headers["set-cookie"].to_str().unwrap();
        assert!(cookie.starts_with("__Host-longshore_session=") && cookie.ends_with("; Secure"), "{cookie}");
        assert_eq!(response.headers["strict-transport-security"], "max-age=31536000");
        let cookie = ("cookie", cookie.split(';').next().unwrap());
        let pressed = send("/queues/shared/pause", &[headers[0], headers[1], cookie], String::new()).await;
        assert_eq!(pressed.status.as_u16(), 303, "{}", pressed.text);
    }
    let other = [("origin", "https://other.example")];
    assert_eq!(send("/login", &other, format!("token={token}")).await.status.as_u16(), 403);
}

#[tokio::test]
async fn a_session_survives_a_restart_and_holds_on_every_server_until_its_token_is_revoked() {
    for site in TestSite::everywhere(AuthMode::TokenRequired).await {
        let token = site.token("acme", Role::Admin).await;
        let link = |site: &TestSite, query: &str, fetch_site: &str| {
            let request = Request::get(format!("/login?{query}")).header("host", "localhost");
            let request = request.header("sec-fetch-site", fetch_site).body(Body::empty());
            let router = site.router.clone();
            async move { router.oneshot(request.unwrap()).await.unwrap() }
        };
        let response = link(&site, &format!("token={token}"), "none").await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["location"]),
            (303, &"/".parse().unwrap())
        );
        let cookie = response.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap();
        assert!(!cookie.contains(&token), "{cookie}");
        assert_eq!(link(&site, "token=lsh_x", "none").await.status().as_u16(), 401);
        let elsewhere = link(&site, &format!("token={token}"), "cross-site").await;
        assert!(!elsewhere.headers().contains_key("set-cookie"), "another site's page logs nobody in");
        let other_server = site.web(AuthMode::TokenRequired).router();
        let visit = async || {
            let request = Request::get("/queues").header("host", "localhost").header("cookie", cookie);
            let request = request.body(Body::empty()).unwrap();
            other_server.clone().oneshot(request).await.unwrap().status().as_u16()
        };
        assert_eq!(visit().await, 200, "the session is in the store");
        let id = site.ledger.tokens(&Scope::All, None, 1).await.unwrap()[0].id;
        site.ledger.revoke_token(&Scope::All, id).await.unwrap();
        assert_eq!(visit().await, 303, "the login is needed again");
    }
}

#[tokio::test]
async fn logins_and_logouts_are_limited() {
    let mut site = TestSite::in_memory(AuthMode::TokenRequired);
    let token = site.token("acme", Role::Read).await;
    let limits = ConnectionLimits { requests_per_second: Some(3), ..ConnectionLimits::default() };
    site.router = site.web(AuthMode::TokenRequired).limits(limits).router();
    let mut logins = Vec::new();
    for _ in 0..10 {
        let request = Request::get(format!("/login?token={token}")).header("host", "localhost");
        logins.push(site.send(request.body(Body::empty()).unwrap()).await.status.as_u16());
    }
    assert_eq!(logins[0], 303);
    assert!(logins.contains(&429), "{logins:?}");
    let log_out = |cookie: String| {
        let request =
            Request::post("/logout").header("host", "localhost").header("origin", "http://localhost");
        let mut request = request.header("cookie", cookie).body(Body::empty()).unwrap();
        request.extensions_mut().insert(std::net::SocketAddr::from(([10, 0, 0, 1], 1)));
        site.send(request)
    };
    let mut logouts = Vec::new();
    for guess in 0..30 {
        logouts.push(log_out(format!("longshore_session={guess}")).await.status.as_u16());
    }
    assert_eq!((logouts[0], logouts[29]), (303, 429));
    assert_eq!(log_out("other=1".to_owned()).await.status.as_u16(), 303, "without a session nothing ends");
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

#[tokio::test]
async fn the_gateway_forbids_what_a_tokens_role_does_not_allow() {
    let site = TestSite::in_memory(AuthMode::TokenRequired);
    let token = site.token("acme", Role::Read).await;
    for (path, code) in
        [("/v1/chat/completions", json!("insufficient_permissions")), ("/v1/messages", Value::Null)]
    {
        let request = Request::post(path).header("host", "localhost");
        let request = request.header("authorization", format!("Bearer {token}")).body(Body::from("{}"));
        let response = site.send(request.unwrap()).await;
        assert_eq!(response.status.as_u16(), 403, "{}", response.text);
        let error = &response.json()["error"];
        assert_eq!(error.get("code").unwrap_or(&Value::Null), &code);
        let message = "this needs role `submit`, the token has `read`";
        assert_eq!(error["message"], message, "{error}");
    }
}
