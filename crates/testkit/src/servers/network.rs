//! A private network: hosts are network namespaces of this machine, connected by a bridge.
//!
//! The link of each host to the bridge can be cut and healed. As with a real cable, packets are then
//! dropped without an error on either side. Needs root, and the `ip` of Debian's iproute2.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{os_user, program, run};

const PACKAGE: &str = "iproute2";

/// Creates the network, and removes it when its input ends: on drop, or when the test process ends.
/// Removing a namespace removes its end of the link, and with it the other end.
const SETUP_SCRIPT: &str = r#"ip=$1 net=$2 subnet=$3 hosts=$4
clean() { for n in $(seq "$hosts"); do "$ip" netns del "$net-$n"; done; "$ip" link del "$net"; }
trap '' INT TERM HUP
trap 'clean 2>/dev/null' EXIT
set -e
"$ip" link add "$net" type bridge
"$ip" addr add "$subnet.254/24" dev "$net"
"$ip" link set "$net" up
for n in $(seq "$hosts"); do
  "$ip" netns add "$net-$n"
  "$ip" link add "$net-$n" type veth peer name eth0 netns "$net-$n"
  "$ip" link set "$net-$n" master "$net" up
  "$ip" -n "$net-$n" addr add "$subnet.$n/24" dev eth0
  "$ip" -n "$net-$n" link set lo up
  "$ip" -n "$net-$n" link set eth0 up
done
echo ready
read -r over || true"#;

/// How many networks this process has created.
static NETWORKS_CREATED: AtomicU32 = AtomicU32::new(0);

/// A network for one test. Removed on drop, or when the test process ends.
#[derive(Debug)]
pub struct PrivateNetwork {
    guard: Child,
    input: Option<ChildStdin>,
    ip: PathBuf,
    name: String,
    subnet: [u8; 3],
    hosts: u8,
}

impl PrivateNetwork {
    /// Creates a bridge and hosts, numbered from 1.
    pub fn start(hosts: u8) -> io::Result<Self> {
        if !os_user::is_root() {
            return Err(io::Error::other("a private network needs root to create namespaces"));
        }
        let ip = program("ip", &["/usr/sbin".into(), "/sbin".into()], PACKAGE)?;
        let number =
            std::process::id().wrapping_mul(8).wrapping_add(NETWORKS_CREATED.fetch_add(1, Ordering::Relaxed));
        // An interface name has at most 15 characters.
        let name = format!("ls{number:x}");
        // 198.18.0.0/15 is reserved for test networks (RFC 2544).
        let [_, _, high, low] = number.to_be_bytes();
        let subnet = [198, 18 + (high & 1), low];
        let (guard, input) = set_up(&ip, &name, subnet, hosts)?;
        Ok(Self { guard, input: Some(input), ip, name, subnet, hosts })
    }

    /// The address of this machine in the network, for servers to listen on.
    pub fn address(&self) -> IpAddr {
        let [a, b, c] = self.subnet;
        Ipv4Addr::new(a, b, c, 254).into()
    }

    /// A command that runs on a host and can reach only the private network.
    pub fn command(&self, host: u8, program: impl AsRef<OsStr>) -> Command {
        // `ip` execs the program, so the child's process id is that of the program.
        let mut command = Command::new(&self.ip);
        command.args(["netns", "exec", &self.namespace(host)]).arg(program);
        command
    }

    /// Cuts a host's link: packets are dropped silently.
    pub fn cut(&self, host: u8) -> io::Result<()> {
        self.set_link(host, "down")
    }

    /// Restores a host's link.
    pub fn heal(&self, host: u8) -> io::Result<()> {
        self.set_link(host, "up")
    }

    fn set_link(&self, host: u8, state: &str) -> io::Result<()> {
        let mut command = Command::new(&self.ip);
        command.args(["link", "set", &self.namespace(host), state]);
        run(command).map(drop)
    }

    /// The name of a host's namespace, and of its link at the bridge.
    fn namespace(&self, host: u8) -> String {
        assert!((1..=self.hosts).contains(&host), "there is no host {host}");
        format!("{}-{host}", self.name)
    }
}

impl Drop for PrivateNetwork {
    fn drop(&mut self) {
        drop(self.input.take());
        // An error of wait cannot be handled.
        let _ = self.guard.wait();
    }
}

/// Starts the script that creates and removes the network.
fn set_up(ip: &Path, name: &str, subnet: [u8; 3], hosts: u8) -> io::Result<(Child, ChildStdin)> {
    let subnet = subnet.map(|byte| byte.to_string()).join(".");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SETUP_SCRIPT, "lay"]).arg(ip).args([name, &subnet, &hosts.to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut guard = command.spawn()?;
    let (input, output) = (guard.stdin.take(), guard.stdout.take());
    let mut line = String::new();
    if let Some(output) = output {
        BufReader::new(output).read_line(&mut line)?;
    }
    match input {
        Some(input) if line.trim() == "ready" => Ok((guard, input)),
        _ => {
            let stderr = guard.wait_with_output()?.stderr;
            let stderr = String::from_utf8_lossy(&stderr).into_owned();
            Err(io::Error::other(format!("cannot create a private network: {stderr}")))
        }
    }
}
