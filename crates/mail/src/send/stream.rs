//! A connection to a mail server, before anybody speaks of mail: TCP without delay, and TLS.
//!
//! The library that speaks SMTP would connect by itself, but leaves Nagle's algorithm on and writes the end
//! of a message separately: each message then waits 40 ms for an acknowledgement. It does take a stream
//! that is connected already, and reads a greeting first; after STARTTLS there is none, so we keep the
//! one from before and have it read that.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use lettre::transport::smtp::client::AsyncTokioStream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::smtp::Security;
use super::tls::Tls;

/// Answers are short; one that is not is none.
const LONGEST: usize = 16 << 10;
/// What is read where the server says nothing more.
const GREETING: &[u8] = b"220 secure\r\n";

/// A connection.
#[derive(Debug)]
pub(super) struct Stream {
    line: Line,
    /// What is to be read before anything of the server.
    greeting: &'static [u8],
    peer: SocketAddr,
}

#[derive(Debug)]
enum Line {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Connects, and makes it secure if it is to be.
    pub(super) async fn connect(
        host: &str,
        port: u16,
        security: Security,
        tls: Option<&Tls>,
        hello: &str,
    ) -> io::Result<Self> {
        let mut tcp = TcpStream::connect((host, port)).await?;
        tcp.set_nodelay(true)?;
        let peer = tcp.peer_addr()?;
        let Some(tls) = tls else {
            return Ok(Self { line: Line::Plain(tcp), greeting: b"", peer });
        };
        let greeting = match security {
            Security::StartTls => {
                start_tls(&mut tcp, hello).await?;
                GREETING
            }
            Security::Tls | Security::None => b"",
        };
        let secure = tls.connector.connect(tls.name.clone(), tcp).await?;
        Ok(Self { line: Line::Secure(Box::new(secure)), greeting, peer })
    }
}

/// Agrees on TLS. A server that does not offer it gets no mail: somebody may have struck the offer out.
async fn start_tls(tcp: &mut TcpStream, hello: &str) -> io::Result<()> {
    expect(tcp, "220").await?;
    tcp.write_all(format!("EHLO {hello}\r\n").as_bytes()).await?;
    let offers = expect(tcp, "250").await?;
    let offered =
        |line: &str| line.get(4..).is_some_and(|word| word.trim().eq_ignore_ascii_case("STARTTLS"));
    if !offers.lines().any(offered) {
        return Err(io::Error::other("the server does not offer STARTTLS"));
    }
    tcp.write_all(b"STARTTLS\r\n").await?;
    expect(tcp, "220").await.map(drop)
}

/// Reads one answer and not a byte more: what comes in the clear behind it must not be taken for what is
/// said in secret.
async fn expect(tcp: &mut TcpStream, code: &str) -> io::Result<String> {
    let mut answer = Vec::new();
    let mut line = 0;
    loop {
        answer.push(tcp.read_u8().await?);
        if answer.len() > LONGEST {
            return Err(io::Error::other("the server talks too much"));
        }
        if !answer.ends_with(b"\n") {
            continue;
        }
        if answer.get(line + 3) != Some(&b'-') {
            break;
        }
        line = answer.len();
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    match answer.starts_with(code) {
        true => Ok(answer),
        false => Err(io::Error::other(format!("the server said: {}", answer.trim()))),
    }
}

impl AsyncTokioStream for Stream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.greeting.is_empty() {
            let (now, later) = this.greeting.split_at(this.greeting.len().min(buf.remaining()));
            buf.put_slice(now);
            this.greeting = later;
            return Poll::Ready(Ok(()));
        }
        match &mut this.line {
            Line::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Line::Secure(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().line {
            Line::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Line::Secure(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().line {
            Line::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Line::Secure(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().line {
            Line::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Line::Secure(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
