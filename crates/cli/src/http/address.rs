//! Addresses that nobody has a good reason to call, and the resolver that leaves them out.
//!
//! Link-local addresses are where clouds keep the credentials of their machines. They are left out
//! after a name was resolved, so a name that points there is of no use either.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Where clouds answer questions about a machine, beside the link-local addresses.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// Whether an address is link-local, a cloud's metadata service, or no single machine's.
pub fn is_forbidden(address: IpAddr) -> bool {
    let address = embedded(address);
    METADATA.contains(&address)
        || match address {
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast() || v4.is_multicast(),
            IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_multicast(),
        }
        || address.is_unspecified()
}

/// The IPv4 address that an IPv6 address stands for: mapped, behind NAT64, or 6to4.
fn embedded(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else {
        return address;
    };
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] => v4(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        _ => address,
    }
}

/// A name that leads only to forbidden addresses.
#[derive(Debug)]
pub struct Forbidden(String);

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is a link-local or metadata address, which is not called", self.0)
    }
}

impl std::error::Error for Forbidden {}

/// Resolves names as the system does, without the forbidden addresses.
pub struct Guard;

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let allowed = sift(name.as_str(), found)?;
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

fn sift(name: &str, mut found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Forbidden> {
    let some = !found.is_empty();
    found.retain(|address| !is_forbidden(address.ip()));
    if some && found.is_empty() { Err(Forbidden(name.to_owned())) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_services_are_forbidden_in_every_disguise() {
        for address in [
            "169.254.169.254",
            "169.254.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "::ffff:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "2002:a9fe:a9fe::1",
        ] {
            assert!(is_forbidden(address.parse().unwrap()), "{address}");
        }
        for address in ["127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "8.8.8.8", "fd00::1"] {
            assert!(!is_forbidden(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn a_name_is_as_good_as_the_addresses_that_are_left() {
        let all = ["169.254.169.254:0", "10.0.0.1:0"].map(|text| text.parse().unwrap());
        assert_eq!(sift("mixed", all.to_vec()).unwrap(), all[1..]);
        let error = sift("rebound.example", all[..1].to_vec()).unwrap_err().to_string();
        assert!(error.contains("rebound.example"), "{error}");
        assert_eq!(sift("none", Vec::new()).unwrap(), []);
    }
}
