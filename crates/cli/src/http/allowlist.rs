//! The destinations that requests may go to: any, or the entries of `http.allow`; never by accident
//! the addresses that [`super::ssrf_guard`] forbids, and for tenants' units private addresses only
//! where an entry names the host, or `http.allow_private` has it.

use std::net::IpAddr;

use longshore::Rights;
use reqwest::Url;

use super::ssrf_guard::AddressClass;

/// `http.allow` and `http.allow_private`.
#[derive(Debug, Clone, Default)]
pub struct DestinationRules {
    /// The allowed destinations; empty means all.
    pub allow: Allowlist,
    /// Destinations in private networks that tenants' units may call besides.
    pub allow_private: Allowlist,
}

impl DestinationRules {
    /// Checks whether `url` may be called with these rights; the error says why not. Returns the
    /// class of addresses that a name may resolve to.
    pub fn check(&self, url: &Url, rights: Rights) -> Result<AddressClass, String> {
        let listed = self.listed(url);
        if listed.is_none() && !self.allow.0.is_empty() {
            return Err(format!("{} is not in `http.allow`", origin_text(url)));
        }
        // A name below a wildcard may belong to another owner, and resolve to any address.
        let opens_private = listed.is_some_and(|entry| !entry.subdomains) || self.allow_private.matches(url);
        let most = match rights {
            Rights::Tenant if !opens_private => AddressClass::Public,
            _ => AddressClass::Private,
        };
        match address(url).map_or(AddressClass::Public, AddressClass::of) {
            // An entry that names such an address exactly is intended.
            AddressClass::Forbidden if listed.is_none_or(|entry| entry.subdomains) => {
                Err(format!("{} is a link-local or metadata address", origin_text(url)))
            }
            AddressClass::Private if most == AddressClass::Public => {
                Err(format!("{} is a private address, which is closed to tenants", origin_text(url)))
            }
            _ => Ok(most),
        }
    }

    /// The entry for a destination, rather one without a wildcard.
    fn listed(&self, url: &Url) -> Option<&AllowedOrigin> {
        let entries = self.allow.0.iter().chain(&self.allow_private.0);
        entries.filter(|entry| entry.matches(url)).min_by_key(|entry| entry.subdomains)
    }
}

/// A list of destinations.
#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct Allowlist(Vec<AllowedOrigin>);

impl TryFrom<Vec<String>> for Allowlist {
    type Error = String;

    fn try_from(entries: Vec<String>) -> Result<Self, String> {
        Self::new(&entries)
    }
}

impl Allowlist {
    /// Parses the entries.
    pub fn new(entries: &[String]) -> Result<Self, String> {
        entries.iter().map(|text| AllowedOrigin::read(text)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether an entry has the destination.
    pub fn matches(&self, url: &Url) -> bool {
        self.0.iter().any(|entry| entry.matches(url))
    }
}

/// One entry, as `https://api.example.com`, `https://*.example.com:8443` or `http://127.0.0.1:*`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AllowedOrigin {
    scheme: String,
    host: String,
    /// Whether the host began with `*.`.
    subdomains: bool,
    /// `None` for any.
    port: Option<u16>,
}

impl AllowedOrigin {
    fn read(text: &str) -> Result<Self, String> {
        let bad = |why: &str| {
            format!("`{text}` is not a destination as https://api.example.com or http://127.0.0.1:*: {why}")
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| bad("there is no `://`"))?;
        if !["http", "https"].contains(&scheme) {
            return Err(bad("it begins with http:// or https://"));
        }
        let (rest, any_port) = rest.strip_suffix(":*").map_or((rest, false), |rest| (rest, true));
        let (host, subdomains) = rest.strip_prefix("*.").map_or((rest, false), |h| (h, true));
        let url = Url::parse(&format!("{scheme}://{host}")).map_err(|e| bad(&e.to_string()))?;
        let extra = url.path() != "/" || url.query().is_some() || url.fragment().is_some();
        if extra || !url.username().is_empty() || host.ends_with('/') || host.contains('*') {
            return Err(bad("it has a host and perhaps a port, no more"));
        }
        let port = url.port_or_known_default().filter(|_| !any_port);
        let host = url.host_str().unwrap_or_default().to_owned();
        Ok(Self { scheme: scheme.to_owned(), host, subdomains, port })
    }

    fn matches(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        let host_fits = match self.subdomains {
            true => host.strip_suffix(&self.host).is_some_and(|left| left.ends_with('.')),
            false => host == self.host,
        };
        let port_fits = self.port.is_none() || url.port_or_known_default() == self.port;
        host_fits && port_fits && url.scheme() == self.scheme
    }
}

/// The address, if the URL's host is one.
fn address(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_matches(['[', ']']).parse().ok()
}

/// The part of a URL that may be printed: its path may hold secrets.
fn origin_text(url: &Url) -> String {
    let port = url.port().map_or(String::new(), |port| format!(":{port}"));
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[&str]) -> Allowlist {
        let entries: Vec<String> = entries.iter().map(|&text| text.to_owned()).collect();
        Allowlist::new(&entries).unwrap()
    }

    fn allowed(entries: &[&str], url: &str) -> bool {
        let rules = DestinationRules { allow: list(entries), allow_private: Allowlist::default() };
        rules.check(&url.parse().unwrap(), Rights::Operator).is_ok()
    }

    #[test]
    fn a_tenant_reaches_a_private_address_only_where_an_entry_names_it() {
        let rules = |allow: &[&str], private: &[&str]| DestinationRules {
            allow: list(allow),
            allow_private: list(private),
        };
        let [open, named, besides] = [
            rules(&[], &[]),
            rules(&["http://10.0.0.5", "https://erp.corp.example"], &[]),
            rules(&[], &["http://10.0.0.5", "https://erp.corp.example"]),
        ];
        let check = |rules: &DestinationRules, url: &str| rules.check(&url.parse().unwrap(), Rights::Tenant);
        for url in ["http://127.0.0.1:99/", "http://[::1]/", "http://10.0.0.6/", "http://[::ffff:10.0.0.6]/"]
        {
            for rules in [&open, &named, &besides] {
                assert!(check(rules, url).is_err(), "{url}");
            }
        }
        assert_eq!(check(&open, "https://erp.corp.example/"), Ok(AddressClass::Public));
        for rules in [&named, &besides] {
            assert_eq!(check(rules, "https://erp.corp.example/"), Ok(AddressClass::Private));
            assert_eq!(check(rules, "http://10.0.0.5/"), Ok(AddressClass::Private));
        }
        let below =
            rules(&["https://*.corp.example", "https://erp.corp.example"], &["https://*.lan.example"]);
        assert_eq!(check(&below, "https://any.corp.example/"), Ok(AddressClass::Public));
        assert_eq!(check(&below, "https://erp.corp.example/"), Ok(AddressClass::Private));
        assert_eq!(check(&below, "https://any.lan.example/"), Ok(AddressClass::Private));
        assert!(check(&named, "https://example.com/").is_err());
        assert_eq!(check(&besides, "https://example.com/"), Ok(AddressClass::Public));
    }

    #[test]
    fn without_a_list_all_but_the_forbidden_addresses_may_be_called() {
        for url in ["https://example.com/", "http://127.0.0.1:99/", "http://[::1]/", "http://10.1.2.3"] {
            assert!(allowed(&[], url), "{url}");
        }
        for url in [
            "http://169.254.169.254/latest/meta-data",
            "http://2852039166/",
            "http://0xA9FEA9FE/",
            "http://169.254.43518/",
            "http://[::ffff:169.254.169.254]/",
            "http://[fe80::1]/",
            "http://0/",
        ] {
            assert!(!allowed(&[], url), "{url}");
        }
    }

    #[test]
    fn a_list_allows_what_it_names_and_nothing_else() {
        let list = &["https://api.example.com", "https://*.corp.example:8443", "http://127.0.0.1:*"];
        for url in [
            "https://api.example.com/any/path?q",
            "https://API.example.com:443/",
            "https://a.corp.example:8443/",
            "https://a.b.corp.example:8443/",
            "http://127.0.0.1/",
            "http://127.0.0.1:8080/",
        ] {
            assert!(allowed(list, url), "{url}");
        }
        for url in [
            "http://api.example.com/",
            "https://api.example.com:444/",
            "https://api.example.com.evil.example/",
            "https://evil-api.example.com/",
            "https://corp.example:8443/",
            "https://evilcorp.example:8443/",
            "https://127.0.0.1/",
            "http://127.0.0.2/",
            "https://api.example.com@evil.example/",
        ] {
            assert!(!allowed(list, url), "{url}");
        }
    }

    #[test]
    fn a_forbidden_address_may_be_called_only_where_the_list_names_it() {
        let url = "http://169.254.169.254/";
        assert!(allowed(&["http://169.254.169.254"], url));
        assert!(!allowed(&["http://*.169.254"], "http://10.0.0.1"));
        assert!(!allowed(&["http://127.0.0.1:*"], url));
    }

    #[test]
    fn what_is_no_place_is_refused_with_the_reason() {
        for (text, why) in [
            ("example.com", "no `://`"),
            ("ftp://example.com", "http:// or https://"),
            ("https://", "empty host"),
            ("https://example.com/path", "no more"),
            ("https://example.com/", "no more"),
            ("https://a:b@example.com", "no more"),
            ("https://exa*mple.com", "no more"),
            ("https://*", "no more"),
            ("https://example.com:x", "invalid port"),
        ] {
            let error = Allowlist::new(&[text.to_owned()]).unwrap_err();
            assert!(error.contains(why) && error.contains(text), "{error}");
        }
    }
}
