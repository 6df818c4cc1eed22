//! Connects to a mail server: TCP with TCP_NODELAY, and TLS.
//!
//! lettre's own connections leave Nagle's algorithm on and write the end of a message separately, so that
//! each message waits 40 ms for an acknowledgement. lettre does accept a connected stream, from which it
//! reads a greeting first. After STARTTLS the server sends no greeting, so this stream replays one.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use lettre::transport::smtp::client::AsyncTokioStream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::smtp::Security;
use super::tls::TlsConfig;

/// Maximum size of a reply during STARTTLS.
const MAX_REPLY: usize = 16 << 10;
/// The replayed greeting.
const REPLAYED_GREETING: &[u8] = b"220 secure\r\n";

/// A connected stream.
#[derive(Debug)]
pub(super) struct SmtpStream {
    socket: Socket,
    /// Bytes to return before the server's.
    greeting: &'static [u8],
    peer: SocketAddr,
}

#[derive(Debug)]
enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl SmtpStream {
    /// Connects, with TLS if `tls` is given.
    pub(super) async fn connect(
        host: &str,
        port: u16,
        security: Security,
        tls: Option<&TlsConfig>,
        hello: &str,
    ) -> io::Result<Self> {
        let mut tcp = TcpStream::connect((host, port)).await?;
        tcp.set_nodelay(true)?;
        let peer = tcp.peer_addr()?;
        let Some(tls) = tls else {
            return Ok(Self { socket: Socket::Plain(tcp), greeting: b"", peer });
        };
        let greeting = match security {
            Security::StartTls => {
                start_tls(&mut tcp, hello).await?;
                REPLAYED_GREETING
            }
            Security::Tls | Security::None => b"",
        };
        let secure = tls.connector.connect(tls.name.clone(), tcp).await?;
        Ok(Self { socket: Socket::Tls(Box::new(secure)), greeting, peer })
    }
}

/// Negotiates STARTTLS. A server that does not offer it gets no mail: an attacker may have removed the offer.
async fn start_tls(tcp: &mut TcpStream, hello: &str) -> io::Result<()> {
    expect(tcp, "220").await?;
    tcp.write_all(format!("EHLO {hello}\r\n").as_bytes()).await?;
    let offers = expect(tcp, "250").await?;
    let offered = |line: &str| line.get(4..).is_some_and(|word| word.trim().eq_ignore_ascii_case("STARTTLS"));
    if !offers.lines().any(offered) {
        return Err(io::Error::other("the server does not offer STARTTLS"));
    }
    tcp.write_all(b"STARTTLS\r\n").await?;
    expect(tcp, "220").await.map(drop)
}

/// Reads one reply, byte by byte: plaintext that follows it must not be taken for encrypted data.
async fn expect(tcp: &mut TcpStream, code: &str) -> io::Result<String> {
    let mut reply = Vec::new();
    let mut line_start = 0;
    loop {
        reply.push(tcp.read_u8().await?);
        if reply.len() > MAX_REPLY {
            return Err(io::Error::other("the server's reply is too long"));
        }
        if !reply.ends_with(b"\n") {
            continue;
        }
        if reply.get(line_start + 3) != Some(&b'-') {
            break;
        }
        line_start = reply.len();
    }
    let reply = String::from_utf8_lossy(&reply).into_owned();
    match reply.starts_with(code) {
        true => Ok(reply),
        false => Err(io::Error::other(format!("unexpected reply: {}", reply.trim()))),
    }
}

impl AsyncTokioStream for SmtpStream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

impl AsyncRead for SmtpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.greeting.is_empty() {
            let (now, later) = this.greeting.split_at(this.greeting.len().min(buf.remaining()));
            buf.put_slice(now);
            this.greeting = later;
            return Poll::Ready(Ok(()));
        }
        match &mut this.socket {
            Socket::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Socket::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for SmtpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().socket {
            Socket::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Socket::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().socket {
            Socket::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Socket::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().socket {
            Socket::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Socket::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
