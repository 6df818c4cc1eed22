//! Each fault as a client and a server see it.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use longshore_fault_proxy::{Direction, FaultProxy, LinkFault};

const TIMEOUT: Duration = Duration::from_secs(60);
/// Long enough to see that nothing arrives.
const SILENCE: Duration = Duration::from_millis(200);

/// A server that sends back what it gets, behind a proxy.
fn echo() -> FaultProxy {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = FaultProxy::start(listener.local_addr().unwrap().to_string()).unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || std::io::copy(&mut &client, &mut &client));
        }
    });
    proxy
}

fn connect(proxy: &FaultProxy) -> TcpStream {
    let client = TcpStream::connect(proxy.address()).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client
}

/// Sends a message and reads its echo.
fn exchange(mut client: &TcpStream, message: &[u8]) -> std::io::Result<Duration> {
    let began = Instant::now();
    client.write_all(message)?;
    let mut answer = vec![0; message.len()];
    client.read_exact(&mut answer)?;
    assert_eq!(answer, message);
    Ok(began.elapsed())
}

fn assert_silent(mut client: &TcpStream) {
    client.set_read_timeout(Some(SILENCE)).unwrap();
    let error = client.read(&mut [0]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
}

#[test]
fn without_a_fault_every_byte_arrives_and_an_end_is_passed_on() {
    let proxy = echo();
    let mut client = connect(&proxy);
    exchange(&client, &vec![7; 1_000_000]).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}

#[test]
fn latency_delays_each_direction_and_not_each_message() {
    let proxy = echo();
    let client = connect(&proxy);
    proxy.set(LinkFault::Latency(Duration::from_millis(100)));
    assert!(exchange(&client, b"hello").unwrap() >= Duration::from_millis(200));
    let began = Instant::now();
    for _ in 0..50 {
        (&client).write_all(b"x").unwrap();
    }
    (&client).read_exact(&mut [0; 50]).unwrap();
    assert!(began.elapsed() < Duration::from_secs(4), "messages are delayed side by side");
}

#[test]
fn a_stall_of_either_direction_is_silent_and_loses_nothing() {
    for direction in [Direction::Both, Direction::ToServer, Direction::ToClient] {
        let proxy = echo();
        let client = connect(&proxy);
        proxy.set(LinkFault::Stall(direction));
        (&client).write_all(b"hello").unwrap();
        assert_silent(&client);
        proxy.heal();
        (&client).read_exact(&mut [0; 5]).unwrap();
    }
}

#[test]
fn a_cut_resets_open_connections_and_new_ones_until_it_is_healed() {
    let proxy = echo();
    let client = connect(&proxy);
    exchange(&client, b"hello").unwrap();
    proxy.set(LinkFault::Cut);
    let ended = |mut client: &TcpStream| client.read(&mut [0]).map_or(true, |read| read == 0);
    assert!(ended(&client));
    assert!(ended(&connect(&proxy)));
    proxy.heal();
    exchange(&connect(&proxy), b"hello").unwrap();
}

#[test]
fn a_half_open_connection_stays_silent_and_a_new_one_works() {
    let proxy = echo();
    let old = connect(&proxy);
    exchange(&old, b"hello").unwrap();
    proxy.set(LinkFault::HalfOpen);
    proxy.heal();
    (&old).write_all(b"hello").unwrap();
    assert_silent(&old);
    exchange(&connect(&proxy), b"hello").unwrap();
}

#[test]
fn a_drip_is_slow_and_complete() {
    let proxy = echo();
    let client = connect(&proxy);
    proxy.set(LinkFault::Drip(100));
    assert!(exchange(&client, &[1; 50]).unwrap() > Duration::from_millis(300));
}

#[test]
fn a_reset_in_the_middle_of_a_message_leaves_half_of_it() {
    let proxy = echo();
    let mut client = connect(&proxy);
    exchange(&client, b"hello").unwrap();
    proxy.set(LinkFault::Stall(Direction::ToClient));
    client.write_all(&[3; 100]).unwrap();
    assert_silent(&client);
    proxy.set(LinkFault::ResetMidMessage);
    let mut got = Vec::new();
    let ended = client.read_to_end(&mut got);
    assert!(ended.is_err() && got.len() <= 50, "{ended:?} after {} bytes", got.len());
}
