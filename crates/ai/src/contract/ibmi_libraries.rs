//! IBM i libraries: they identify the tenant of a reply queue.

use std::collections::BTreeMap;

use longshore::TenantId;
use serde::{Deserialize, Serialize};

/// Maps libraries to tenants.
///
/// ```
/// use longshore_ai::contract::Libraries;
/// use longshore::TenantId;
///
/// let acme = TenantId::new("acme").unwrap();
/// let libraries = Libraries::default();
/// assert!(libraries.owns(&acme, "ACME") && libraries.owns(&acme, "ACME_5DTA"));
/// assert!(!libraries.owns(&acme, "OTHER_5DTA"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Libraries {
    /// Suffixes that may follow the tenant's name.
    pub suffixes: Vec<String>,
    /// Libraries with other names, and their tenants. A library in this map belongs to no other
    /// tenant, whatever its name.
    pub map: BTreeMap<String, TenantId>,
}

impl Default for Libraries {
    fn default() -> Self {
        Self { suffixes: vec!["_5DTA".into()], map: BTreeMap::new() }
    }
}

impl Libraries {
    /// Whether a library belongs to a tenant: by the map, or else by its name, with or without a
    /// suffix. Case-insensitive.
    pub fn owns(&self, tenant: &TenantId, library: &str) -> bool {
        let mut mapped = self.map.iter().filter(|(name, _)| name.eq_ignore_ascii_case(library));
        if let Some((_, owner)) = mapped.next() {
            return owner == tenant;
        }
        let names = |name: &str| name.eq_ignore_ascii_case(tenant.as_str());
        let mut cut = self.suffixes.iter().filter_map(|suffix| strip_suffix(library, suffix));
        names(library) || cut.any(names)
    }
}

/// The library's name without a suffix.
fn strip_suffix<'a>(library: &'a str, suffix: &str) -> Option<&'a str> {
    let (name, end) = library.split_at_checked(library.len().checked_sub(suffix.len())?)?;
    end.eq_ignore_ascii_case(suffix).then_some(name)
}
