//! Runs each contestant in its own process: this program again, in another role. The process prints its address
//! and ends when its standard input does.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use clap::Subcommand;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::{durable, floor, gateway, upstream};

/// The role of the process.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// The upstream.
    #[command(hide = true)]
    Upstream,
    /// The bare proxy.
    #[command(hide = true)]
    Floor { upstream: String },
    /// Our gateway.
    #[command(hide = true)]
    Gateway { upstream: String, folder: PathBuf },
    /// One run of the durable path; prints its figures.
    #[command(hide = true)]
    Durable { way: durable::Way, requests: usize, folder: PathBuf },
}

impl Role {
    pub(crate) fn run(self) -> Result<()> {
        let mut runtime = match self {
            // The upstream is no contestant: it should use as little CPU as possible.
            Self::Upstream => tokio::runtime::Builder::new_current_thread(),
            _ => tokio::runtime::Builder::new_multi_thread(),
        };
        let runtime = runtime.enable_all().build()?;
        runtime.block_on(async {
            match self {
                Self::Upstream => upstream::run().await,
                Self::Floor { upstream } => floor::run(upstream).await,
                Self::Gateway { upstream, folder } => gateway::run(&upstream, &folder).await,
                Self::Durable { way, requests, folder } => way.run(requests, &folder).await,
            }
        })
    }
}

/// Binds a free port and prints the address to the parent process.
pub(crate) async fn listen() -> Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("http://{}", listener.local_addr()?);
    Ok(listener)
}

/// Waits until the parent process closes the standard input.
pub(crate) async fn input_ended() {
    let mut rest = Vec::new();
    let _ = tokio::io::stdin().read_to_end(&mut rest).await;
}

/// Answers requests with a function, directly on hyper.
pub(crate) async fn serve<F, R, E>(answer: F) -> Result<()>
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<Response<Full<Bytes>>, E>> + Send + 'static,
    E: std::error::Error + Send + Sync + 'static,
{
    let listener = listen().await?;
    let mut connections = JoinSet::new();
    let accept = async {
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let (stream, _) = accepted?;
                    stream.set_nodelay(true)?;
                    let service = service_fn(answer.clone());
                    let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                    connections.spawn(serving);
                }
                Some(_) = connections.join_next() => {}
            }
        }
    };
    tokio::select! {
        ended = accept => ended,
        () = input_ended() => Ok(()),
    }
}

/// A child process with a listening socket. Ends on drop.
pub(crate) struct Process {
    child: Child,
    _input: Option<ChildStdin>,
    /// The address of the socket.
    pub(crate) url: String,
}

impl Process {
    /// Starts this program in another role.
    pub(crate) fn ours<A: AsRef<OsStr>>(args: &[A]) -> Result<Self> {
        Self::start(Command::new(std::env::current_exe()?).args(args))
    }

    /// Starts a process and waits until it prints its address.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("no output")?;
        let mut process = Self { child, _input: input, url: String::new() };
        let mut lines = BufReader::new(output).lines();
        // Other gateways print other lines first.
        let url = lines.find_map(|line| line.ok().filter(|line| line.starts_with("http://")));
        process.url = url.with_context(|| format!("{command:?} did not say where it listens"))?;
        Ok(process)
    }

    /// The CPU time used so far, in seconds.
    pub(crate) fn cpu(&self) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The second field is a name, which may contain blanks.
        let fields = text.rsplit_once(')').context("no fields")?.1;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        ensure!(fields.len() > 12, "too few fields");
        // A tick is a hundredth of a second on every relevant Linux.
        Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / 100.0)
    }

    /// The resident memory, in megabytes.
    pub(crate) fn megabytes(&self) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kilobytes = line.trim().trim_end_matches(" kB").parse::<f64>()?;
        Ok(kilobytes / 1024.0)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
