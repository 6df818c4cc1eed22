//! A server that cannot be trusted with permits is refused with a reason.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use longshore_core::Error;
use longshore_redis::{RedisOptions, RedisPermits};
use longshore_testkit::servers::{PrivateRedis, RedisPersistence};
use tokio::task::block_in_place;

use crate::helpers::{open_redis, server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_refused_and_never_printed() {
    let server = server(RedisPersistence::Nothing).await;
    for secret in ["wrong-secret", ""] {
        let url = format!("redis://:{secret}@127.0.0.1:{}", server.port());
        let error = open_redis(&url).check().await.unwrap_err();
        assert!(matches!(error, Error::Broken { .. }), "{error:?}");
        let words = format!("{error} {error:?}");
        assert!(words.contains("refused user or password"), "{words}");
        assert!(!words.contains("wrong-secret") && !words.contains(server.password()), "{words}");
    }
    let permits = open_redis(&server.url());
    permits.check().await.unwrap();
    assert!(!format!("{permits:?}").contains(server.password()), "{permits:?}");
}

#[test]
fn a_wrong_address_is_refused_without_repeating_it() {
    for url in ["postgres://u:secret@h/d", "secret", "redis://:secret@host:port", "", "redis://"] {
        let error = RedisPermits::open(url, &RedisOptions::default()).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{url}: {error:?}");
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(error.to_string().contains("redis://"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_there_may_be_there_later() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = open_redis(&format!("redis://{free}")).check().await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_something_else_is_no_redis() {
    let error = open_redis(&fake_server(|_| "HTTP/1.1 400 Bad Request\r\n\r\n".to_owned()))
        .check()
        .await
        .unwrap_err();
    assert!(!error.is_retryable(), "{error:?}");
    assert!(error.to_string().contains("does not speak the Redis protocol"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_throws_permits_away_is_refused() {
    let settings = [("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru")];
    let start = || PrivateRedis::start_with(RedisPersistence::Nothing, &settings).unwrap();
    let server = block_in_place(start);
    let error = open_redis(&server.url()).check().await.unwrap_err();
    assert!(error.to_string().contains("allkeys-lru"), "{error}");
    assert!(!error.is_retryable());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_redis_is_refused() {
    let info = "# Server\r\nredis_version:4.0.9\r\nrun_id:abc\r\nuptime_in_seconds:5\r\n";
    let old = open_redis(&fake_server(move |asked| {
        let named = "+OK\r\n".repeat(asked.matches("SETINFO").count());
        let asks = |what: &str| asked.contains(&format!("$4\r\n{what}\r\n"));
        let info = if asks("INFO") { format!("${}\r\n{info}\r\n", info.len()) } else { String::new() };
        let time = if asks("TIME") { "*2\r\n$1\r\n1\r\n$1\r\n1\r\n" } else { "" };
        format!("{named}{info}{time}")
    }));
    let error = old.check().await.unwrap_err();
    assert!(error.to_string().contains("this is Redis 4.0.9"), "{error}");
    assert!(!error.is_retryable());
}

/// Starts a server that replies with `answer` to every request; returns its URL.
fn fake_server(answer: impl Fn(&str) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut bytes) = (client.unwrap(), [0; 4096]);
            while let Ok(count @ 1..) = client.read(&mut bytes) {
                let asked = String::from_utf8_lossy(&bytes[..count]);
                if client.write_all(answer(&asked).as_bytes()).is_err() {
                    break;
                }
            }
        }
    });
    format!("redis://{address}")
}
