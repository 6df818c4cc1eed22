//! A private network: hosts that are network namespaces of this machine, joined by a switch.
//!
//! Each host has a cable to the switch that can be cut and healed. Both sides of a cut cable see what
//! they see when a real one is cut: silence. Needs root, and the `ip` of Debian's iproute2.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{account, program, run};

const PACKAGE: &str = "iproute2";

/// Lays the cables, and takes everything away once its input ends: when we say so, or when we are no
/// more. A namespace takes its end of a cable with it, and that the other end.
const LAY: &str = r#"ip=$1 net=$2 subnet=$3 hosts=$4
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

/// Networks that this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A network of one test's own. Removed when dropped, or when the process is gone.
#[derive(Debug)]
pub struct PrivateNetwork {
    keeper: Child,
    input: Option<ChildStdin>,
    ip: PathBuf,
    name: String,
    subnet: [u8; 3],
    hosts: u8,
}

impl PrivateNetwork {
    /// A switch with so many hosts, numbered from 1.
    pub fn start(hosts: u8) -> io::Result<Self> {
        if !account::is_root() {
            return Err(io::Error::other(
                "a private network needs root: only root makes namespaces",
            ));
        }
        let ip = program("ip", &["/usr/sbin".into(), "/sbin".into()], PACKAGE)?;
        let number =
            std::process::id().wrapping_mul(8).wrapping_add(MADE.fetch_add(1, Ordering::Relaxed));
        // The name of an interface has 15 characters at most.
        let name = format!("ls{number:x}");
        // 198.18.0.0/15 is for test networks; nobody lives there.
        let [_, _, high, low] = number.to_be_bytes();
        let subnet = [198, 18 + (high & 1), low];
        let (keeper, input) = lay(&ip, &name, subnet, hosts)?;
        Ok(Self { keeper, input: Some(input), ip, name, subnet, hosts })
    }

    /// The address of this machine itself in the network, for servers to listen on.
    pub fn address(&self) -> IpAddr {
        let [a, b, c] = self.subnet;
        Ipv4Addr::new(a, b, c, 254).into()
    }

    /// A command that runs on a host: it sees nothing of this machine's network but the switch.
    pub fn command(&self, host: u8, program: impl AsRef<OsStr>) -> Command {
        // `ip` becomes the program, so the child's process id is the program's.
        let mut command = Command::new(&self.ip);
        command.args(["netns", "exec", &self.place(host)]).arg(program);
        command
    }

    /// Cuts a host's cable. Packets are swallowed; nobody is told.
    pub fn cut(&self, host: u8) -> io::Result<()> {
        self.set_cable(host, "down")
    }

    /// Heals it.
    pub fn heal(&self, host: u8) -> io::Result<()> {
        self.set_cable(host, "up")
    }

    fn set_cable(&self, host: u8, state: &str) -> io::Result<()> {
        let mut command = Command::new(&self.ip);
        command.args(["link", "set", &self.place(host), state]);
        run(command).map(drop)
    }

    /// The name of a host's namespace, and of its cable at the switch.
    fn place(&self, host: u8) -> String {
        assert!((1..=self.hosts).contains(&host), "there is no host {host}");
        format!("{}-{host}", self.name)
    }
}

impl Drop for PrivateNetwork {
    fn drop(&mut self) {
        drop(self.input.take());
        // Nothing can be done about a process that cannot be waited for.
        let _ = self.keeper.wait();
    }
}

/// Starts who lays the cables and takes them away.
fn lay(ip: &Path, name: &str, subnet: [u8; 3], hosts: u8) -> io::Result<(Child, ChildStdin)> {
    let subnet = subnet.map(|byte| byte.to_string()).join(".");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", LAY, "lay"]).arg(ip).args([name, &subnet, &hosts.to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut keeper = command.spawn()?;
    let (input, output) = (keeper.stdin.take(), keeper.stdout.take());
    let mut said = String::new();
    if let Some(output) = output {
        BufReader::new(output).read_line(&mut said)?;
    }
    match input {
        Some(input) if said.trim() == "ready" => Ok((keeper, input)),
        _ => {
            let words = keeper.wait_with_output()?.stderr;
            let words = String::from_utf8_lossy(&words).into_owned();
            Err(io::Error::other(format!("no private network: {words}")))
        }
    }
}
