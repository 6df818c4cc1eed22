//! Pages, and what pages are made with, by what they were made of: bounded, the oldest goes first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::Rendered;

/// What a page was made of: the renderer and every byte of the template.
pub(super) type Key = [u8; 32];

pub(super) fn key(renderer: &str, template: &str) -> Key {
    Sha256::new().chain_update(renderer).chain_update([0]).chain_update(template).finalize().into()
}

/// How many bytes something takes, about.
pub(super) trait Weighed {
    fn weight(&self) -> usize;
}

impl Weighed for Rendered {
    fn weight(&self) -> usize {
        self.html.len()
    }
}

#[derive(Debug)]
pub(super) struct Cache<T> {
    kept: HashMap<Key, Arc<T>>,
    order: VecDeque<Key>,
    bytes: usize,
    most: usize,
}

impl<T: Weighed> Cache<T> {
    /// Holds so many bytes in all.
    pub(super) fn new(most: usize) -> Self {
        Self { kept: HashMap::new(), order: VecDeque::new(), bytes: 0, most }
    }

    pub(super) fn find(&self, key: &Key) -> Option<Arc<T>> {
        self.kept.get(key).cloned()
    }

    /// Keeps it in the place of what was known by this key.
    pub(super) fn keep(&mut self, key: Key, one: &Arc<T>) {
        if one.weight() > self.most {
            return;
        }
        self.bytes += one.weight();
        match self.kept.insert(key, Arc::clone(one)) {
            Some(before) => self.bytes -= before.weight(),
            None => self.order.push_back(key),
        }
        while self.bytes > self.most {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes -= self.kept.remove(&oldest).map_or(0, |one| one.weight());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(html: &str) -> Arc<Rendered> {
        Arc::new(Rendered { html: html.into(), warnings: Vec::new() })
    }

    #[test]
    fn it_never_holds_more_than_it_may_and_the_oldest_goes_first() {
        let mut cache = Cache::new(10);
        for (name, html) in [("a", "1234"), ("b", "5678"), ("c", "9012"), ("d", "12345678901")] {
            cache.keep(key("r", name), &page(html));
        }
        let held = |name| cache.find(&key("r", name)).is_some();
        assert_eq!([held("a"), held("b"), held("c"), held("d")], [false, true, true, false]);
        assert_eq!(cache.bytes, 8);
    }

    #[test]
    fn another_renderers_page_is_another_page() {
        assert_ne!(key("a", "bc"), key("ab", "c"));
    }
}
