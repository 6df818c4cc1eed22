//! Invalid protocol use: a bad peer loses its own connection and affects no other.

use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use longshore_dispatch::access::Access;
use longshore_dispatch::connection::connect;
use longshore_dispatch::tls;
use longshore_dispatch::wire::frame::{FrameReader, decode_json, encode, encode_json};
use longshore_dispatch::wire::{FromWorker, Hello, PROTOCOL_VERSION, PeerRole, Welcome, WorkerLoad};
use secrecy::ExposeSecret;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::pool_fixture::{Pool, array, once};

type Tls = TlsStream<TcpStream>;

fn access(pool: &Pool) -> Access {
    Access::read(pool.folder.path(), PeerRole::Worker).unwrap()
}

async fn dial(access: &Access) -> Tls {
    let tls = TlsConnector::from(tls::client_config(&access.certificate).unwrap());
    let stream = TcpStream::connect(access.addresses[0]).await.unwrap();
    tls.connect(tls::server_name(), stream).await.unwrap()
}

fn hello(access: &Access, versions: (u16, u16)) -> Hello {
    let secret = STANDARD.encode(access.secret.expose_secret());
    Hello { oldest: versions.0, newest: versions.1, role: PeerRole::Worker, secret }
}

async fn say_hello(stream: &mut Tls, hello: &Hello) {
    let mut bytes = Vec::new();
    encode_json(hello, &mut bytes).unwrap();
    stream.write_all(&bytes).await.unwrap();
}

/// An authenticated worker connection.
async fn authenticated_worker(pool: &Pool) -> Tls {
    let access = access(pool);
    let mut stream = dial(&access).await;
    say_hello(&mut stream, &hello(&access, (PROTOCOL_VERSION, PROTOCOL_VERSION))).await;
    let mut length = [0; 4];
    stream.read_exact(&mut length).await.unwrap();
    let mut welcome = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut welcome).await.unwrap();
    assert!(matches!(decode_json(&welcome).unwrap(), Welcome::Version(PROTOCOL_VERSION)));
    stream
}

/// All bytes until the connection ends, in whatever way.
async fn read_to_end(mut stream: Tls) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _: io::Result<usize> = stream.read_to_end(&mut bytes).await;
    bytes
}

/// Asserts that the pool still runs scripts.
async fn assert_works(pool: &Pool) {
    let (id, submission) = once(pool.script("fine.sh", "exit 0"));
    pool.submit(submission).await;
    assert_eq!(pool.wait_for_end(id).await.state, longshore::UnitState::Done);
}

#[tokio::test]
async fn a_peer_without_the_secret_learns_nothing() {
    let pool = Pool::start().await;
    let _worker = pool.worker(1);
    let access = access(&pool);
    for secret in ["", "AAAA", "not base64 at all!", &STANDARD.encode([0; 32])] {
        let mut stream = dial(&access).await;
        let bad = Hello { secret: secret.to_owned(), ..hello(&access, (PROTOCOL_VERSION, PROTOCOL_VERSION)) };
        say_hello(&mut stream, &bad).await;
        assert_eq!(read_to_end(stream).await, b"", "{secret}");
    }
    // It does not learn the server's versions either.
    let mut stream = dial(&access).await;
    let bad = Hello { secret: "AAAA".to_owned(), ..hello(&access, (99, 99)) };
    say_hello(&mut stream, &bad).await;
    assert_eq!(read_to_end(stream).await, b"");
    // Without TLS the server closes the connection, after a TLS alert at most.
    let mut plain = TcpStream::connect(access.addresses[0]).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(answer.len() <= 7, "a TLS alert at most: {answer:?}");
    assert_works(&pool).await;
}

#[tokio::test]
async fn a_worker_cannot_act_as_a_client() {
    let pool = Pool::start().await;
    let access = access(&pool);
    let mut stream = dial(&access).await;
    let as_client = Hello { role: PeerRole::Client, ..hello(&access, (PROTOCOL_VERSION, PROTOCOL_VERSION)) };
    say_hello(&mut stream, &as_client).await;
    assert_eq!(read_to_end(stream).await, b"");
    connect(&access, PeerRole::Client).await.unwrap_err();
    connect(&access, PeerRole::Worker).await.unwrap();
}

#[tokio::test]
async fn another_version_is_refused_with_words() {
    let pool = Pool::start().await;
    let access = access(&pool);
    // Version 1 had other messages under the same names.
    for versions in [(1, 1), (98, 99)] {
        let mut stream = dial(&access).await;
        say_hello(&mut stream, &hello(&access, versions)).await;
        let mut frames = FrameReader::new(stream, 4096);
        let welcome: Welcome = decode_json(&frames.next().await.unwrap().unwrap()).unwrap();
        let Welcome::Refused(reason) = welcome else { panic!("{welcome:?}") };
        let (server, peer) =
            (format!("version {PROTOCOL_VERSION}"), format!("{} to {}", versions.0, versions.1));
        assert!(reason.contains(&server) && reason.contains(&peer), "{reason}");
        assert!(frames.next().await.unwrap().is_none(), "and that is the end");
    }
}

#[tokio::test]
async fn what_makes_no_sense_costs_only_its_connection() {
    let pool = Pool::start().await;
    let _worker = pool.worker(1);
    let script = pool.script("job.sh", "echo x >> runs; sleep 0.01");
    pool.submit(array(script, "a", 1, 100)).await;
    // Before authentication: a frame above the limit.
    let mut stream = dial(&access(&pool)).await;
    stream.write_all(&5000_u32.to_le_bytes()).await.unwrap();
    assert_eq!(read_to_end(stream).await, b"");
    // After authentication: a frame above the limit.
    let mut stream = authenticated_worker(&pool).await;
    stream.write_all(&u32::MAX.to_le_bytes()).await.unwrap();
    assert_eq!(read_to_end(stream).await, b"");
    // Garbage after a valid handshake.
    let mut stream = authenticated_worker(&pool).await;
    stream.write_all(&[3, 0, 0, 0, 255, 255, 255]).await.unwrap();
    assert_eq!(read_to_end(stream).await, b"");
    // Messages before the registration are ignored.
    let mut stream = authenticated_worker(&pool).await;
    let mut bytes = Vec::new();
    encode(&FromWorker::Heartbeat(WorkerLoad::default()), &mut bytes).unwrap();
    encode(&FromWorker::Leaving, &mut bytes).unwrap();
    stream.write_all(&bytes).await.unwrap();
    // A peer that sends single bytes blocks no other.
    let mut slow = authenticated_worker(&pool).await;
    slow.write_all(&[200, 0]).await.unwrap();
    slow.flush().await.unwrap();
    let counts = pool.wait_until_idle().await;
    assert_eq!((counts.done, counts.failed), (100, 0));
    slow.write_all(&[0]).await.unwrap();
    assert_works(&pool).await;
    drop((slow, stream));
    pool.drain().await;
}

#[tokio::test]
async fn a_crowd_of_strangers_keeps_nobody_out() {
    let pool = Pool::start().await;
    let _worker = pool.worker(1);
    let address = access(&pool).addresses[0];
    // More connections than concurrent handshakes, which send nothing or half a message.
    let mut idle = Vec::new();
    for n in 0..400 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        if n % 2 == 0 {
            stream.write_all(&[22, 3]).await.unwrap();
        }
        idle.push(stream);
    }
    assert_works(&pool).await;
    drop(idle);
    assert_works(&pool).await;
    pool.drain().await;
}
