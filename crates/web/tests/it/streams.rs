//! Streams of units in, streams of changes out.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use longshore::accounts::Role;
use longshore::store::{Capacity, QueueChange};
use longshore::{QueueName, Scope, UnitId};
use longshore_web::AuthMode;
use serde_json::json;
use tower::ServiceExt;

use crate::fixture::TestSite;

fn lines(path: &str, key: Option<&str>, body: Body) -> Request<Body> {
    let mut request = Request::post(format!("/api/v1{path}")).header("host", "localhost");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    request.body(body).unwrap()
}

fn units(queue: &str, count: u32) -> String {
    (0..count).map(|n| json!({ "kind": "k", "queue": queue, "payload": n }).to_string() + "\n").collect()
}

#[tokio::test]
async fn a_stream_cut_anywhere_is_the_same_stream() {
    for site in TestSite::everywhere(AuthMode::NoAuth).await {
        let text = units("default", 1_203) + "\n  \n" + units("default", 1).trim_end();
        for size in [1, 7, 64 * 1024] {
            let pieces: Vec<_> = text.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect();
            let body = Body::from_stream(stream::iter(pieces).map(Ok::<_, std::io::Error>));
            let response = site.send(lines("/units/stream", Some("nightly"), body)).await.good();
            let is_first = size == 1;
            assert_eq!(response["lines"], 1_206);
            assert_eq!(response["created"], if is_first { 1_204 } else { 0 }, "{size}");
            assert_eq!(response["existing"], if is_first { 0 } else { 1_204 }, "{size}");
        }
        let totals = site.store.totals(&Scope::All, &longshore::store::Queues::All).await.unwrap();
        assert_eq!(totals.counts.ready, 1_204);
    }
}

#[tokio::test]
async fn a_stream_into_a_full_queue_is_told_where_to_go_on() {
    for site in TestSite::everywhere(AuthMode::NoAuth).await {
        let queue = QueueName::new("small").unwrap();
        let room = |units| QueueChange {
            capacity: Some(Capacity { units: Some(units), bytes: None }),
            ..QueueChange::default()
        };
        site.store.change_queue(&Scope::All, &queue, room(620)).await.unwrap();
        let body = || Body::from(units("small", 1_100));
        let response = site.send(lines("/units/stream", Some("n"), body())).await;
        assert_eq!(response.status.as_u16(), 429, "{}", response.text);
        assert!(response.headers.contains_key("retry-after"));
        let so_far = &response.json()["so_far"];
        assert_eq!((&so_far["created"], &so_far["lines"]), (&620.into(), &1_000.into()));
        assert_eq!(so_far["refused"][0], 621);
        site.store.change_queue(&Scope::All, &queue, room(2_000)).await.unwrap();
        let response = site.send(lines("/units/stream", Some("n"), body())).await.good();
        assert_eq!((&response["existing"], &response["created"]), (&620.into(), &480.into()));
    }
}

#[tokio::test]
async fn a_hundred_thousand_dependencies_are_refused_at_once() {
    for site in TestSite::everywhere(AuthMode::NoAuth).await {
        let ids: Vec<UnitId> = (0..100_000).map(|_| UnitId::new()).collect();
        let unit = json!({"kind": "work", "payload": {}, "after": {"units": ids}}).to_string();
        let began = Instant::now();
        let response = site.send(lines("/units/stream", None, Body::from(unit))).await;
        assert_eq!(response.status.as_u16(), 400, "{}", response.text);
        assert!(response.text.contains("at most 1000 dependencies"), "{}", response.text);
        assert!(began.elapsed() < Duration::from_secs(2), "it took {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_stream_that_waits_for_room_gets_it() {
    let site = TestSite::in_memory(AuthMode::NoAuth);
    let queue = QueueName::new("small").unwrap();
    let room = |units| QueueChange {
        capacity: Some(Capacity { units: Some(units), bytes: None }),
        ..QueueChange::default()
    };
    site.store.change_queue(&Scope::All, &queue, room(10)).await.unwrap();
    let sending = site.send(lines("/units/stream?room=60", None, Body::from(units("small", 30))));
    let making_room = async {
        // Wait until the queue is full.
        while site.store.queues(&Scope::All).await.unwrap()[0].counts.ready < 10 {
            tokio::task::yield_now().await;
        }
        site.store.change_queue(&Scope::All, &queue, room(100)).await.unwrap();
    };
    let (response, ()) = tokio::join!(sending, making_room);
    assert_eq!(response.good()["created"], 30);
}

#[tokio::test]
async fn a_bad_line_is_named_and_those_before_it_are_in() {
    let site = TestSite::in_memory(AuthMode::NoAuth);
    let text = units("default", 3) + "{\"kind\": \n" + &units("default", 3);
    let response = site.send(lines("/units/stream", None, Body::from(text))).await;
    assert_eq!(response.status.as_u16(), 400);
    assert!(response.text.contains("line 4: "), "{}", response.text);
    assert_eq!(response.json()["so_far"]["created"], 3);
}

#[tokio::test]
async fn changes_are_told_to_whom_they_concern() {
    let site = TestSite::in_memory(AuthMode::TokenRequired);
    let (acme, other) = (site.token("acme", Role::Read).await, site.token("other", Role::Read).await);
    let listen = async |token: &str| {
        let request = Request::get("/api/v1/events").header("authorization", format!("Bearer {token}"));
        let request = request.header("host", "x").body(Body::empty()).unwrap();
        let response = site.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        response.into_body().into_data_stream()
    };
    let (mut acmes, mut others) = (listen(&acme).await, listen(&other).await);
    for stream in [&mut acmes, &mut others] {
        let hello = stream.next().await.unwrap().unwrap();
        assert!(hello.starts_with(b"retry:"), "{hello:?}");
    }
    site.populate("acme").await;
    site.populate("other").await;
    let heard = String::from_utf8(acmes.next().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(heard.contains("event: changes") && heard.contains("acme-batch"), "{heard}");
    assert!(!heard.contains("other"), "{heard}");
    let heard = String::from_utf8(others.next().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(heard.contains("other-batch") && !heard.contains("acme"), "{heard}");
    let me = site.get("/whoami", Some(&acme)).await;
    let id = me["token"].as_str().unwrap().parse().unwrap();
    site.ledger.revoke_token(&Scope::All, id).await.unwrap();
    site.populate("acme2").await;
    assert!(acmes.next().await.is_none(), "a revoked token gets no further events");
}
