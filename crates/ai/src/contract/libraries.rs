//! Libraries: how callers say whose a reply queue is.

use std::collections::BTreeMap;

use longshore_core::TenantId;
use serde::{Deserialize, Serialize};

/// Which library is whose.
///
/// ```
/// use longshore_ai::contract::Libraries;
/// use longshore_core::TenantId;
///
/// let acme = TenantId::new("acme").unwrap();
/// let libraries = Libraries::default();
/// assert!(libraries.owns(&acme, "ACME") && libraries.owns(&acme, "ACME_5DTA"));
/// assert!(!libraries.owns(&acme, "OTHER_5DTA"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Libraries {
    /// What may stand after the tenant's name.
    pub suffixes: Vec<String>,
    /// Libraries that are named otherwise, and whose they are. What stands here is nobody else's,
    /// whatever it is called.
    pub map: BTreeMap<String, TenantId>,
}

impl Default for Libraries {
    fn default() -> Self {
        Self { suffixes: vec!["_5DTA".into()], map: BTreeMap::new() }
    }
}

impl Libraries {
    /// Whether a library is a tenant's: by the map, else by its name, with or without a suffix.
    /// Small and capital letters are the same.
    pub fn owns(&self, tenant: &TenantId, library: &str) -> bool {
        let mut mapped = self.map.iter().filter(|(name, _)| name.eq_ignore_ascii_case(library));
        if let Some((_, owner)) = mapped.next() {
            return owner == tenant;
        }
        let names = |name: &str| name.eq_ignore_ascii_case(tenant.as_str());
        let mut cut = self.suffixes.iter().filter_map(|suffix| without(library, suffix));
        names(library) || cut.any(names)
    }
}

/// What stands before a suffix.
fn without<'a>(library: &'a str, suffix: &str) -> Option<&'a str> {
    let (name, end) = library.split_at_checked(library.len().checked_sub(suffix.len())?)?;
    end.eq_ignore_ascii_case(suffix).then_some(name)
}
