//! A program's bounded pools by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_core::PoolName;

use super::BoundedPool;

/// A program's bounded pools by name. The program creates them in one place; other components find
/// them by the names in their settings. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct PoolRegistry(Arc<BTreeMap<PoolName, BoundedPool>>);

impl PoolRegistry {
    /// The pool with this name.
    pub fn find(&self, name: &PoolName) -> Option<&BoundedPool> {
        self.0.get(name)
    }

    /// Returns once all dropped permits are released and alerts in flight are sent.
    pub async fn flush(&self) {
        for pool in self.0.values() {
            pool.flush().await;
        }
    }
}

impl FromIterator<BoundedPool> for PoolRegistry {
    fn from_iter<I: IntoIterator<Item = BoundedPool>>(pools: I) -> Self {
        Self(Arc::new(pools.into_iter().map(|pool| (pool.name().clone(), pool)).collect()))
    }
}
