//! A provider's base URL: from a path to a full URL.

use std::sync::OnceLock;

use hyper::Uri;

/// Scheme, host and path prefix.
#[derive(Debug)]
pub(crate) struct BaseUrl {
    address: String,
    /// The first path that was requested, and its URL. Hardly any provider is asked for another
    /// path, and parsing a URL costs as much as sending it.
    first: OnceLock<(String, Uri)>,
}

impl BaseUrl {
    pub(crate) fn new(address: String) -> Self {
        Self { address, first: OnceLock::new() }
    }

    /// The URL of a path; `None` if it is not valid.
    pub(crate) fn uri(&self, path: &str) -> Option<Uri> {
        if let Some((known, uri)) = self.first.get()
            && known == path
        {
            return Some(uri.clone());
        }
        let uri = Uri::try_from(format!("{}{path}", self.address)).ok()?;
        // The first path stays cached.
        let _ = self.first.set((path.to_owned(), uri.clone()));
        Some(uri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_its_own_address() {
        let base = BaseUrl::new("http://host/v1".to_owned());
        for path in ["/chat", "/models?limit=1", "/chat"] {
            assert_eq!(base.uri(path).unwrap().to_string(), format!("http://host/v1{path}"));
        }
        assert_eq!(base.uri("/a b"), None);
    }
}
