//! Where calls may go: anywhere, or to the places that `http.allow` lists; never by accident to
//! the addresses that [`super::address`] names.

use std::net::IpAddr;

use reqwest::Url;

use super::address::is_forbidden;

/// The places that may be called; none means all.
#[derive(Debug, Default)]
pub struct Rules(Vec<Place>);

impl Rules {
    /// Reads `http.allow`.
    pub fn new(places: &[String]) -> Result<Self, String> {
        places.iter().map(|text| Place::read(text)).collect::<Result<_, _>>().map(Self)
    }

    /// Says why `url` may not be called, if so.
    pub fn check(&self, url: &Url) -> Result<(), String> {
        let listed = self.0.iter().find(|place| place.holds(url));
        if listed.is_none() && !self.0.is_empty() {
            return Err(format!("{} is not in `http.allow`", shown(url)));
        }
        let forbidden = address(url).is_some_and(is_forbidden);
        // Whoever writes such an address into the list means it.
        if forbidden && listed.is_none_or(|place| place.subdomains) {
            return Err(format!("{} is a link-local or metadata address", shown(url)));
        }
        Ok(())
    }
}

/// One entry, as `https://api.example.com`, `https://*.example.com:8443` or `http://127.0.0.1:*`.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    scheme: String,
    host: String,
    /// Whether `*.` stood before the host.
    subdomains: bool,
    /// `None` for any.
    port: Option<u16>,
}

impl Place {
    fn read(text: &str) -> Result<Self, String> {
        let bad = |why: &str| {
            format!(
                "`{text}` is not a place as https://api.example.com or http://127.0.0.1:*: {why}"
            )
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

    fn holds(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        let host_fits = match self.subdomains {
            true => host.strip_suffix(&self.host).is_some_and(|left| left.ends_with('.')),
            false => host == self.host,
        };
        let port_fits = self.port.is_none() || url.port_or_known_default() == self.port;
        host_fits && port_fits && url.scheme() == self.scheme
    }
}

/// The address, if the URL names no name.
fn address(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_matches(['[', ']']).parse().ok()
}

/// As much of a URL as may be told: its path may hold secrets.
fn shown(url: &Url) -> String {
    let port = url.port().map_or(String::new(), |port| format!(":{port}"));
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(places: &[&str], url: &str) -> bool {
        let places: Vec<String> = places.iter().map(|&text| text.to_owned()).collect();
        Rules::new(&places).unwrap().check(&url.parse().unwrap()).is_ok()
    }

    #[test]
    fn without_a_list_all_but_the_forbidden_addresses_may_be_called() {
        for url in
            ["https://example.com/", "http://127.0.0.1:99/", "http://[::1]/", "http://10.1.2.3"]
        {
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
        let list =
            &["https://api.example.com", "https://*.corp.example:8443", "http://127.0.0.1:*"];
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
            let error = Rules::new(&[text.to_owned()]).unwrap_err();
            assert!(error.contains(why) && error.contains(text), "{error}");
        }
    }
}
