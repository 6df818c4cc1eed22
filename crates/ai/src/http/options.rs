//! A profile's proxy and certificate authorities.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::Uri;
use hyper::header::HeaderValue;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use secrecy::{ExposeSecret, SecretString};

use super::trust_certificates;

/// How a client reaches its servers: directly, or through a proxy, and which certificate
/// authorities it trusts. The default is directly, with those of the machine.
#[derive(Clone, Default)]
pub struct HttpOptions {
    pub(super) proxy: Option<Uri>,
    proxy_key: Option<SecretString>,
    ca: Option<String>,
}

/// Why a proxy or certificates cannot be used. Contains no part of the proxy's URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpOptionsError {
    /// The proxy's URL is invalid.
    #[error("`proxy` is not the URL of an HTTP proxy, as http://proxy.example:3128")]
    Proxy,
    /// The proxy's URL contains a password.
    #[error("`proxy` holds a password, which belongs into the vault: `proxy_key` names it")]
    ProxyPassword,
    /// There is a key for no proxy.
    #[error("`proxy_key` is for a `proxy`, and there is none")]
    NoProxy,
    /// The proxy's key has another format.
    #[error("the key of the proxy is not USER:PASSWORD")]
    ProxyKey,
    /// The certificates cannot be read.
    #[error("`ca` holds no certificates in PEM format: {0}")]
    Ca(String),
}

impl HttpOptions {
    /// The options for a proxy's URL, the key (`USER:PASSWORD`) that it requires, and the
    /// certificates (PEM) of the authorities to trust.
    pub fn new(
        proxy: Option<&str>,
        proxy_key: Option<SecretString>,
        ca: Option<&str>,
    ) -> Result<Self, HttpOptionsError> {
        if proxy.is_none() && proxy_key.is_some() {
            return Err(HttpOptionsError::NoProxy);
        }
        if proxy_key.as_ref().is_some_and(|key| !key.expose_secret().contains(':')) {
            return Err(HttpOptionsError::ProxyKey);
        }
        let options =
            Self { proxy: proxy.map(parse_proxy).transpose()?, proxy_key, ca: ca.map(str::to_owned) };
        options.tls_config()?;
        Ok(options)
    }

    /// Whether these are the default options.
    pub(crate) fn is_default(&self) -> bool {
        self.proxy.is_none() && self.ca.is_none()
    }

    /// A TLS configuration that trusts `ca`, if the authorities of the machine are not trusted.
    pub(super) fn tls_config(&self) -> Result<Option<ClientConfig>, HttpOptionsError> {
        let Some(pem) = &self.ca else { return Ok(None) };
        let invalid = |error: &dyn fmt::Display| HttpOptionsError::Ca(error.to_string());
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let certificates = certificates.map_err(|error| invalid(&error))?;
        if certificates.is_empty() {
            return Err(invalid(&"the text has none"));
        }
        trust_certificates(certificates).map(Some).map_err(|error| invalid(&error))
    }

    /// The `Proxy-Authorization` header.
    pub(super) fn proxy_authorization(&self) -> Option<HeaderValue> {
        let key = self.proxy_key.as_ref()?.expose_secret().trim();
        let mut value = HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(key))).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// Parses a proxy's URL: scheme, host and port.
fn parse_proxy(text: &str) -> Result<Uri, HttpOptionsError> {
    let uri: Uri = text.parse().map_err(|_| HttpOptionsError::Proxy)?;
    let authority = uri.authority().ok_or(HttpOptionsError::Proxy)?;
    if authority.as_str().contains('@') {
        return Err(HttpOptionsError::ProxyPassword);
    }
    let plain = matches!(uri.path(), "" | "/") && uri.query().is_none();
    if uri.scheme_str() != Some("http") || authority.host().is_empty() || !plain {
        return Err(HttpOptionsError::Proxy);
    }
    Ok(uri)
}

impl PartialEq for HttpOptions {
    fn eq(&self, other: &Self) -> bool {
        let key = |options: &Self| options.proxy_key.as_ref().map(|key| key.expose_secret().to_owned());
        (&self.proxy, &self.ca) == (&other.proxy, &other.ca) && key(self) == key(other)
    }
}

impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOptions").field("proxy", &self.proxy).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_a_plain_address_and_its_password_is_elsewhere() {
        let of = |proxy| HttpOptions::new(Some(proxy), None, None);
        for good in ["http://proxy.example:3128", "http://10.0.0.1:8080/", "http://[::1]:3128"] {
            assert!(of(good).is_ok(), "{good}");
        }
        for bad in ["proxy", "https://proxy.example", "socks5://p:1", "http://p:1/path", "http://p?q", ""] {
            assert_eq!(of(bad), Err(HttpOptionsError::Proxy), "{bad}");
        }
        for proxy in ["http://user:marked@proxy:1", "http://marked@proxy:1"] {
            let error = of(proxy).unwrap_err();
            assert_eq!(error, HttpOptionsError::ProxyPassword);
            assert!(!error.to_string().contains("marked"));
        }
    }

    #[test]
    fn a_key_without_a_proxy_and_texts_without_certificates_are_rejected() {
        assert_eq!(HttpOptions::new(None, Some("a:b".into()), None), Err(HttpOptionsError::NoProxy));
        let proxy = Some("http://p:1");
        assert_eq!(HttpOptions::new(proxy, Some("ab".into()), None), Err(HttpOptionsError::ProxyKey));
        let known = HttpOptions::new(proxy, Some("a:marked\n".into()), None).unwrap();
        assert!(!format!("{known:?}").contains("marked"));
        assert_eq!(known.proxy_authorization().unwrap(), "Basic YTptYXJrZWQ=");
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for text in ["", "no certificate", broken] {
            let error = HttpOptions::new(None, None, Some(text)).unwrap_err();
            assert!(matches!(error, HttpOptionsError::Ca(_)), "{text}");
        }
    }
}
