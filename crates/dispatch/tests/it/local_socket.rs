//! Clients on the server's machine use the local socket, or the network if they cannot.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use longshore_dispatch::access::Access;
use longshore_dispatch::connection::connect;
use longshore_dispatch::server::ServerError;
use longshore_dispatch::wire::PeerRole;
use tokio::net::UnixListener;

use crate::pool_fixture::Pool;

fn access(pool: &Pool) -> Access {
    Access::read(pool.folder.path(), PeerRole::Client).unwrap()
}

fn listens(name: &str) -> bool {
    UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap()).is_ok()
}

#[tokio::test]
async fn a_client_needs_no_network_and_a_worker_does() {
    let pool = Pool::start().await;
    let nowhere = Access { addresses: vec!["127.0.0.1:1".parse().unwrap()], ..access(&pool) };
    let link = connect(&nowhere, PeerRole::Client).await.unwrap();
    assert_eq!(link.address, None);
    let worker = Access::read(pool.folder.path(), PeerRole::Worker).unwrap();
    let nowhere = Access { addresses: nowhere.addresses, ..worker.clone() };
    connect(&nowhere, PeerRole::Worker).await.unwrap_err();
    assert!(connect(&worker, PeerRole::Worker).await.unwrap().address.is_some());
}

#[tokio::test]
async fn a_client_that_finds_nobody_beside_it_comes_by_network() {
    let pool = Pool::start().await;
    let mut access = access(&pool);
    for name in [None, Some("longshore-nobody".into())] {
        access.local_socket = name;
        let link = connect(&access, PeerRole::Client).await.unwrap();
        assert_eq!(link.address, Some(access.addresses[0]));
    }
}

#[tokio::test]
async fn a_client_that_finds_a_crowd_at_the_socket_comes_by_network() {
    let pool = Pool::start().await;
    let name = format!("longshore-crowd-{}", std::process::id());
    let deaf = UnixListener::bind(format!("\0{name}")).unwrap();
    // A small backlog is full soon.
    rustix::net::listen(&deaf, 1).unwrap();
    let mut crowd = Vec::new();
    while let Ok(one) = tokio::net::UnixStream::connect(format!("\0{name}")).await {
        crowd.push(one);
        assert!(crowd.len() < 100_000, "the connection limit was not reached");
    }
    let crowded = Access { local_socket: Some(name), ..access(&pool) };
    let link = connect(&crowded, PeerRole::Client).await.unwrap();
    assert_eq!(link.address, Some(crowded.addresses[0]));
}

#[tokio::test]
async fn whoever_comes_from_beside_has_to_know_the_secret_too() {
    let pool = Pool::start().await;
    let wrong_secret = Access { secret: vec![0; 32].into(), ..access(&pool) };
    let error = connect(&wrong_secret, PeerRole::Client).await.unwrap_err();
    assert!(error.to_string().contains("rejected the secret"), "{error}");
}

#[tokio::test]
async fn nothing_is_left_of_the_socket() {
    let pool = Pool::start().await;
    let name = access(&pool).local_socket.unwrap();
    assert!(listens(&name));
    pool.drain().await;
    assert!(!listens(&name));
}

/// Two machines may share the pool's folder but not their state folders.
#[tokio::test]
async fn a_pool_has_one_server() {
    let mut pool = Pool::start().await;
    let second_server = pool.second_server().await.err().expect("it should have been refused");
    assert!(matches!(second_server, ServerError::AlreadyServed(_)), "{second_server}");
    pool.kill_server().await;
    pool.second_server().await.expect("the socket of a dead server does not block a new one");
}
