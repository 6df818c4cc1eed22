//! A renderer with a bounded pool, a timeout and a page cache.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore::BoundedPool;

use super::cache::{Cache, cache_key};
use super::error::RenderError;
use super::{MjmlTemplate, RenderedPage, Renderer};

/// Renders templates. Cheap to clone; all clones share one cache.
#[derive(Clone)]
pub struct Compiler {
    renderer: Arc<dyn Renderer>,
    pool: Option<BoundedPool>,
    timeout: Duration,
    cache_bytes: usize,
    cache: Arc<Mutex<Cache<RenderedPage>>>,
}

/// Default size of the page cache in bytes.
const DEFAULT_CACHE_BYTES: usize = 16 << 20;

impl Compiler {
    /// A compiler with a timeout of 30 seconds, no pool, and a page cache of 16 MiB.
    pub fn new(renderer: Arc<dyn Renderer>) -> Self {
        let (timeout, cache) = (Duration::from_secs(30), Cache::new(DEFAULT_CACHE_BYTES));
        let cache = Arc::new(Mutex::new(cache));
        Self { renderer, pool: None, timeout, cache_bytes: DEFAULT_CACHE_BYTES, cache }
    }

    /// Each rendering holds a permit of this pool. Callers wait for a permit, so a slow renderer slows its
    /// callers down instead of being overloaded.
    #[must_use]
    pub fn with_pool(self, pool: BoundedPool) -> Self {
        Self { pool: Some(pool), ..self }
    }

    /// How long a rendering may take once it has its permit.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The size of the page cache in bytes; 0 disables it.
    #[must_use]
    pub fn cache_bytes(self, bytes: usize) -> Self {
        Self { cache_bytes: bytes, cache: Arc::new(Mutex::new(Cache::new(bytes))), ..self }
    }

    /// Renders a template, or returns the cached page.
    pub async fn compile(&self, template: &MjmlTemplate) -> Result<Arc<RenderedPage>, RenderError> {
        // With the cache disabled, the key need not be computed.
        let key = (self.cache_bytes > 0).then(|| cache_key(self.renderer.name(), template.text()));
        if let Some(page) = key.and_then(|key| self.cache().get(&key)) {
            return Ok(page);
        }
        let page = match &self.pool {
            Some(pool) => pool.with_permit(self.render(template)).await??,
            None => self.render(template).await?,
        };
        let page = Arc::new(page);
        if let Some(key) = key {
            self.cache().insert(key, &page);
        }
        Ok(page)
    }

    async fn render(&self, template: &MjmlTemplate) -> Result<RenderedPage, RenderError> {
        let timed_out =
            |_| RenderError::Timeout { renderer: self.renderer.name().to_owned(), limit: self.timeout };
        tokio::time::timeout(self.timeout, self.renderer.render(template)).await.map_err(timed_out)?
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache<RenderedPage>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
