//! Forbids addresses that no request should go to, and filters them from name resolution.
//!
//! Clouds serve the credentials of their machines on link-local addresses. They are filtered after
//! a name was resolved, so that a name that points there does not help either.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Metadata services of clouds, beside the link-local addresses.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// Whether an address is link-local, a cloud's metadata service, or not of a single host.
pub fn is_forbidden(address: IpAddr) -> bool {
    let address = embedded(address);
    METADATA.contains(&address)
        || match address {
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast() || v4.is_multicast(),
            IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_multicast(),
        }
        || address.is_unspecified()
}

/// The IPv4 address that an IPv6 address contains: mapped, NAT64, or 6to4.
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

/// The error for a name that resolves only to forbidden addresses.
#[derive(Debug)]
pub struct ForbiddenAddress(String);

impl fmt::Display for ForbiddenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is a link-local or metadata address, which is not called", self.0)
    }
}

impl std::error::Error for ForbiddenAddress {}

/// Resolves names as the system does, without the forbidden addresses.
pub struct GuardedResolver;

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let allowed = filter_addresses(name.as_str(), found)?;
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

fn filter_addresses(name: &str, mut found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, ForbiddenAddress> {
    let some = !found.is_empty();
    found.retain(|address| !is_forbidden(address.ip()));
    if some && found.is_empty() { Err(ForbiddenAddress(name.to_owned())) } else { Ok(found) }
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
        assert_eq!(filter_addresses("mixed", all.to_vec()).unwrap(), all[1..]);
        let error = filter_addresses("rebound.example", all[..1].to_vec()).unwrap_err().to_string();
        assert!(error.contains("rebound.example"), "{error}");
        assert_eq!(filter_addresses("none", Vec::new()).unwrap(), []);
    }
}
