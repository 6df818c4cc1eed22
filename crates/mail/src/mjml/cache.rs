//! A bounded cache of rendered pages, with first-in-first-out eviction.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::RenderedPage;

/// SHA-256 of the renderer's name and the template text.
pub(super) type CacheKey = [u8; 32];

pub(super) fn cache_key(renderer: &str, template: &str) -> CacheKey {
    Sha256::new().chain_update(renderer).chain_update([0]).chain_update(template).finalize().into()
}

#[derive(Debug)]
pub(super) struct PageCache {
    entries: HashMap<CacheKey, Arc<RenderedPage>>,
    order: VecDeque<CacheKey>,
    bytes: usize,
    max_bytes: usize,
}

impl PageCache {
    /// A cache of at most `max_bytes` of HTML.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new(), bytes: 0, max_bytes }
    }

    pub(super) fn get(&self, cache_key: &CacheKey) -> Option<Arc<RenderedPage>> {
        self.entries.get(cache_key).cloned()
    }

    /// Inserts a page, replacing an earlier one with the same key.
    pub(super) fn insert(&mut self, cache_key: CacheKey, page: &Arc<RenderedPage>) {
        if page.html.len() > self.max_bytes {
            return;
        }
        self.bytes += page.html.len();
        match self.entries.insert(cache_key, Arc::clone(page)) {
            Some(replaced) => self.bytes -= replaced.html.len(),
            None => self.order.push_back(cache_key),
        }
        while self.bytes > self.max_bytes {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes -= self.entries.remove(&oldest).map_or(0, |page| page.html.len());
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
        let mut cache = PageCache::new(10);
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
