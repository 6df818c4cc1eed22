//! One connection: forwards both directions, as the link's state permits.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::{Direction, LinkFault, LinkState};

/// Bytes that a direction keeps before it stops reading, so that the sender sees a full window.
const MAX_BUFFERED: usize = 256 * 1024;
const READ_SIZE: usize = 16 * 1024;
/// The pause between two drips.
const DRIP_INTERVAL: Duration = Duration::from_millis(100);

/// How a connection ends.
enum ConnectionEnd {
    /// Both sides have sent everything.
    Closed,
    /// Both sides get a reset.
    Reset,
    /// The server is disconnected; the client is not told.
    HalfOpen,
}

/// Serves one client until its connection ends.
pub(crate) async fn serve(mut client: TcpStream, server: String, link: watch::Receiver<LinkState>) {
    let opened = *link.borrow();
    if opened.fault == LinkFault::Cut {
        return reset(&client);
    }
    let Ok(mut server) = TcpStream::connect(server).await else { return reset(&client) };
    for stream in [&client, &server] {
        // Without effect on a connection that is gone already.
        let _ = stream.set_nodelay(true);
    }
    match forward_both(&mut client, &mut server, &link, opened).await {
        ConnectionEnd::Closed => {}
        ConnectionEnd::Reset => {
            reset(&client);
            reset(&server);
        }
        ConnectionEnd::HalfOpen => {
            drop(server);
            discard(&mut client).await;
        }
    }
}

async fn forward_both(
    client: &mut TcpStream,
    server: &mut TcpStream,
    link: &watch::Receiver<LinkState>,
    opened: LinkState,
) -> ConnectionEnd {
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let up = Forwarder::new(from_client, to_server, Direction::ToServer, link.clone());
    let down = Forwarder::new(from_server, to_client, Direction::ToClient, link.clone());
    let mut link = link.clone();
    tokio::select! {
        ended = async { tokio::try_join!(up.run(), down.run()) } => match ended {
            Ok(_) => ConnectionEnd::Closed,
            Err(_) => ConnectionEnd::Reset,
        },
        state = link.wait_for(|state| state.cuts > opened.cuts || state.half_opens > opened.half_opens) => {
            match state {
                Ok(state) if state.half_opens > opened.half_opens => ConnectionEnd::HalfOpen,
                _ => ConnectionEnd::Reset,
            }
        }
    }
}

/// Makes the drop of the stream send a reset.
fn reset(stream: &TcpStream) {
    // Without effect on a connection that is gone already.
    let _ = stream.set_zero_linger();
}

/// Reads until the client gives up.
async fn discard(client: &mut TcpStream) {
    let mut buffer = vec![0; READ_SIZE];
    while client.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
}

/// One direction of a connection.
struct Forwarder<'a> {
    from: ReadHalf<'a>,
    to: WriteHalf<'a>,
    direction: Direction,
    link: watch::Receiver<LinkState>,
    /// What was read and not written, with the time of its arrival.
    buffered: VecDeque<(Instant, Vec<u8>)>,
    next_drip: Instant,
    at_end: bool,
}

impl<'a> Forwarder<'a> {
    fn new(
        from: ReadHalf<'a>,
        to: WriteHalf<'a>,
        direction: Direction,
        link: watch::Receiver<LinkState>,
    ) -> Self {
        let (buffered, next_drip) = (VecDeque::new(), Instant::now());
        Self { from, to, direction, link, buffered, next_drip, at_end: false }
    }

    /// Forwards until the sender has closed its side and everything is written. Fails if the connection is to be
    /// reset.
    async fn run(mut self) -> io::Result<()> {
        let mut buffer = vec![0; READ_SIZE];
        loop {
            let fault = self.link.borrow_and_update().fault;
            if self.at_end && self.buffered.is_empty() {
                return self.to.shutdown().await;
            }
            let due = self.due(fault);
            if due.is_some_and(|due| due <= Instant::now()) {
                self.write_front(fault).await?;
                continue;
            }
            let bytes: usize = self.buffered.iter().map(|(_, bytes)| bytes.len()).sum();
            tokio::select! {
                changed = self.link.changed() => changed.map_err(io::Error::other)?,
                read = self.from.read(&mut buffer), if !self.at_end && bytes < MAX_BUFFERED => match read? {
                    0 => self.at_end = true,
                    read => self.buffered.push_back((Instant::now(), buffer[..read].to_vec())),
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
        }
    }

    /// When the oldest bytes are to be written.
    fn due(&self, fault: LinkFault) -> Option<Instant> {
        let (arrived, _) = self.buffered.front()?;
        match fault {
            LinkFault::Stall(direction) if [Direction::Both, self.direction].contains(&direction) => None,
            LinkFault::Latency(latency) => Some(*arrived + latency),
            LinkFault::Drip(_) => Some(self.next_drip),
            _ => Some(*arrived),
        }
    }

    async fn write_front(&mut self, fault: LinkFault) -> io::Result<()> {
        let Some((arrived, mut bytes)) = self.buffered.pop_front() else { return Ok(()) };
        match fault {
            LinkFault::ResetMidMessage => {
                self.to.write_all(&bytes[..bytes.len().div_ceil(2)]).await?;
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            LinkFault::Drip(rate) => {
                let each = u32::try_from(DRIP_INTERVAL.as_millis()).unwrap_or(u32::MAX);
                let size = (rate.saturating_mul(each) / 1000).max(1) as usize;
                self.next_drip = Instant::now() + DRIP_INTERVAL;
                let rest = bytes.split_off(size.min(bytes.len()));
                if !rest.is_empty() {
                    self.buffered.push_front((arrived, rest));
                }
            }
            _ => {}
        }
        self.to.write_all(&bytes).await
    }
}
