//! Where a provider is: from a path to a whole address.

use std::sync::OnceLock;

use hyper::Uri;

/// Scheme, host, and the paths' beginning.
#[derive(Debug)]
pub(crate) struct Base {
    address: String,
    /// The first path that was asked for, and its address. Hardly any provider is asked for another, and
    /// reading an address costs as much as sending some.
    first: OnceLock<(String, Uri)>,
}

impl Base {
    pub(crate) fn new(address: String) -> Self {
        Self { address, first: OnceLock::new() }
    }

    /// The address of a path; nothing if it makes none.
    pub(crate) fn uri(&self, path: &str) -> Option<Uri> {
        if let Some((known, uri)) = self.first.get()
            && known == path
        {
            return Some(uri.clone());
        }
        let uri = Uri::try_from(format!("{}{path}", self.address)).ok()?;
        // Whoever came first stays.
        let _ = self.first.set((path.to_owned(), uri.clone()));
        Some(uri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_its_own_address() {
        let base = Base::new("http://host/v1".to_owned());
        for path in ["/chat", "/models?limit=1", "/chat"] {
            assert_eq!(base.uri(path).unwrap().to_string(), format!("http://host/v1{path}"));
        }
        assert_eq!(base.uri("/a b"), None);
    }
}
