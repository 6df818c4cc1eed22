//! A bounded cache with first-in-first-out eviction, for rendered pages and page skeletons.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::RenderedPage;

/// SHA-256 of the renderer's name and the template text.
pub(super) type CacheKey = [u8; 32];

pub(super) fn cache_key(renderer: &str, template: &str) -> CacheKey {
    Sha256::new().chain_update(renderer).chain_update([0]).chain_update(template).finalize().into()
}

/// The approximate size of a cached value in bytes.
pub(super) trait CacheSize {
    fn size_bytes(&self) -> usize;
}

impl CacheSize for RenderedPage {
    fn size_bytes(&self) -> usize {
        self.html.len()
    }
}

#[derive(Debug)]
pub(super) struct Cache<T> {
    entries: HashMap<CacheKey, Arc<T>>,
    order: VecDeque<CacheKey>,
    bytes: usize,
    max_bytes: usize,
}

impl<T: CacheSize> Cache<T> {
    /// A cache of at most `max_bytes`.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new(), bytes: 0, max_bytes }
    }

    pub(super) fn get(&self, cache_key: &CacheKey) -> Option<Arc<T>> {
        self.entries.get(cache_key).cloned()
    }

    /// Inserts a value, replacing an earlier one with the same key.
    pub(super) fn insert(&mut self, cache_key: CacheKey, value: &Arc<T>) {
        if value.size_bytes() > self.max_bytes {
            return;
        }
        self.bytes += value.size_bytes();
        match self.entries.insert(cache_key, Arc::clone(value)) {
            Some(replaced) => self.bytes -= replaced.size_bytes(),
            None => self.order.push_back(cache_key),
        }
        while self.bytes > self.max_bytes {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes -= self.entries.remove(&oldest).map_or(0, |value| value.size_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(html: &str) -> Arc<RenderedPage> {
        Arc::new(RenderedPage { html: html.into(), warnings: Vec::new() })
    }

    #[test]
    fn it_never_holds_more_than_it_may_and_the_oldest_goes_first() {
        let mut cache = Cache::new(10);
        for (name, html) in [("a", "1234"), ("b", "5678"), ("c", "9012"), ("d", "12345678901")] {
            cache.insert(cache_key("r", name), &page(html));
        }
        let held = |name| cache.get(&cache_key("r", name)).is_some();
        assert_eq!([held("a"), held("b"), held("c"), held("d")], [false, true, true, false]);
        assert_eq!(cache.bytes, 8);
    }

    #[test]
    fn another_renderers_page_is_another_page() {
        assert_ne!(cache_key("a", "bc"), cache_key("ab", "c"));
    }
}
