//! The bounded pools of a program, by their names.

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_core::PoolName;

use super::BoundedPool;

/// The bounded pools of a program, by their names: made in one place, for all that name a pool in their
/// own settings. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct PoolBook(Arc<BTreeMap<PoolName, BoundedPool>>);

impl PoolBook {
    /// The pool of this name.
    pub fn find(&self, name: &PoolName) -> Option<&BoundedPool> {
        self.0.get(name)
    }

    /// Returns once all that was dropped has been given back, and alerts on their way have been told.
    pub async fn settle(&self) {
        for pool in self.0.values() {
            pool.settle().await;
        }
    }
}

impl FromIterator<BoundedPool> for PoolBook {
    fn from_iter<I: IntoIterator<Item = BoundedPool>>(pools: I) -> Self {
        Self(Arc::new(pools.into_iter().map(|pool| (pool.name().clone(), pool)).collect()))
    }
}
