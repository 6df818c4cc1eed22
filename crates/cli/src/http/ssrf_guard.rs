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

/// The units that may call an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressClass {
    /// Every unit.
    Public,
    /// Units that were sent with the operator's rights: loopback, private and other networks that are
    /// not of the internet.
    Private,
    /// None: link-local addresses, metadata services of clouds, and addresses of no single host.
    Forbidden,
}

impl AddressClass {
    /// The class of an address, by the strictest of all its readings.
    pub fn of(address: IpAddr) -> Self {
        let itself = match address {
            IpAddr::V4(v4) => Self::of_v4(v4),
            IpAddr::V6(v6) => Self::of_v6(v6),
        };
        embedded(address).into_iter().flatten().map(Self::of_v4).fold(itself, Self::max)
    }

    fn of_v4(v4: Ipv4Addr) -> Self {
        let is_forbidden =
            v4.is_link_local() || v4.is_broadcast() || v4.is_multicast() || v4.is_unspecified();
        if is_forbidden || METADATA.contains(&v4.into()) {
            return Self::Forbidden;
        }
        // Shared by carriers; this network; protocol assignments; 6to4 relays; benchmarks; reserved.
        let is_special = matches!(
            v4.octets(),
            [100, 64..=127, ..]
                | [0, ..]
                | [192, 0, 0, _]
                | [192, 88, 99, _]
                | [198, 18..=19, ..]
                | [240..=255, ..]
        );
        match v4.is_loopback() || v4.is_private() || v4.is_documentation() || is_special {
            true => Self::Private,
            false => Self::Public,
        }
    }

    fn of_v6(v6: Ipv6Addr) -> Self {
        let is_forbidden = v6.is_unicast_link_local() || v6.is_multicast() || v6.is_unspecified();
        if is_forbidden || METADATA.contains(&v6.into()) {
            return Self::Forbidden;
        }
        // The internet is 2000::/3. In it, protocol assignments (Teredo, benchmarks, ORCHID …) and addresses for
        // documentation are not. Outside it, NAT64 and mapped addresses stand for the IPv4 internet.
        match v6.segments() {
            [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Self::Private,
            [0x2000..=0x3fff, ..] => Self::Public,
            [0x64, 0xff9b, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0, 0xffff, ..] => Self::Public,
            _ => Self::Private,
        }
    }
}

/// The IPv4 addresses that an IPv6 address may stand for: mapped, compatible, NAT64, or 6to4. The
/// local network's NAT64 prefix (`64:ff9b:1::/48`) has the address after the prefix or at the end.
fn embedded(address: IpAddr) -> [Option<Ipv4Addr>; 2] {
    let IpAddr::V6(v6) = address else { return [None; 2] };
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Some(Ipv4Addr::new(a, b, c, d))
    };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => [None; 2],
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => [v4(high, low), None],
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => [v4(high, low), None],
        [0x64, 0xff9b, 1, high, middle, rest, last_high, last_low] => {
            let readings = [v4(high, (middle << 8) | (rest >> 8)), v4(last_high, last_low)];
            readings.map(|v4| v4.filter(|v4| !v4.is_unspecified()))
        }
        [0x2002, high, low, ..] => [v4(high, low), None],
        _ => [None; 2],
    }
}

/// The error for a name that resolves only to addresses that the request may not call.
#[derive(Debug)]
pub struct ForbiddenAddress(String);

impl fmt::Display for ForbiddenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is a link-local, metadata or private address, which is not called", self.0)
    }
}

impl std::error::Error for ForbiddenAddress {}

/// Resolves names as the system does, without the addresses above a class.
pub struct GuardedResolver(pub AddressClass);

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let most = self.0;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let allowed = filter_addresses(name.as_str(), found, most)?;
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

fn filter_addresses(
    name: &str,
    mut found: Vec<SocketAddr>,
    most: AddressClass,
) -> Result<Vec<SocketAddr>, ForbiddenAddress> {
    let some = !found.is_empty();
    found.retain(|address| AddressClass::of(address.ip()) <= most);
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
            "::169.254.169.254",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::169.254.169.254",
            "64:ff9b:1:a9fe:a9:fe00::",
            "2002:a9fe:a9fe::1",
        ] {
            assert_eq!(AddressClass::of(address.parse().unwrap()), AddressClass::Forbidden, "{address}");
        }
    }

    #[test]
    fn networks_that_are_not_of_the_internet_are_private_in_every_disguise() {
        for address in [
            "127.0.0.1",
            "10.0.0.1",
            "172.31.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "0.1.2.3",
            "198.18.0.1",
            "240.0.0.1",
            "203.0.113.1",
            "192.88.99.1",
            "::1",
            "::ffff:0:127.0.0.1",
            "2001:0:7f00:1::1",
            "64:ff9b:2::7f00:1",
            "2001:db8::1",
            "2001:20::1",
            "3fff::1",
            "100::1",
            "5f00::1",
            "4000::1",
            "fd00::1",
            "fec0::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::8.8.8.8",
            "64:ff9b:1:7f00::",
            "2002:7f00:1::1",
        ] {
            assert_eq!(AddressClass::of(address.parse().unwrap()), AddressClass::Private, "{address}");
        }
        for address in
            ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"]
        {
            assert_eq!(AddressClass::of(address.parse().unwrap()), AddressClass::Public, "{address}");
        }
    }

    #[test]
    fn a_name_is_as_good_as_the_addresses_that_are_left() {
        let all = ["169.254.169.254:0", "10.0.0.1:0"].map(|text| text.parse().unwrap());
        let filter = |name: &str, found: &[SocketAddr], most| filter_addresses(name, found.to_vec(), most);
        assert_eq!(filter("mixed", &all, AddressClass::Private).unwrap(), all[1..]);
        for (found, most) in [(&all[..1], AddressClass::Private), (&all[..], AddressClass::Public)] {
            let error = filter("rebound.example", found, most).unwrap_err().to_string();
            assert!(error.contains("rebound.example"), "{error}");
        }
        assert_eq!(filter("none", &[], AddressClass::Public).unwrap(), []);
    }
}
