//! A renderer as it is used: under a bounded pool, within a time limit, and never twice for the same text.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore::BoundedPool;

use super::cache::{Cache, key};
use super::error::RenderError;
use super::{Rendered, Renderer, Template};

/// Compiles templates. Cheap to clone; all clones share one cache.
#[derive(Clone)]
pub struct Compiler {
    renderer: Arc<dyn Renderer>,
    pool: Option<BoundedPool>,
    timeout: Duration,
    kept: usize,
    cache: Arc<Mutex<Cache<Rendered>>>,
}

/// Pages that are kept, unless told.
const KEPT: usize = 16 << 20;

impl Compiler {
    /// With a limit of 30 seconds, no pool, and 16 MiB of pages kept.
    pub fn new(renderer: Arc<dyn Renderer>) -> Self {
        let (timeout, cache) = (Duration::from_secs(30), Cache::new(KEPT));
        let cache = Arc::new(Mutex::new(cache));
        Self { renderer, pool: None, timeout, kept: KEPT, cache }
    }

    /// Each rendering holds a permit of this pool; who waits for one holds up whoever asked: that is how
    /// a slow renderer slows down those who need it, instead of drowning.
    #[must_use]
    pub fn within(self, pool: BoundedPool) -> Self {
        Self { pool: Some(pool), ..self }
    }

    /// How long a rendering may take, once it has its permit.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// How many bytes of pages are kept; none keeps none.
    #[must_use]
    pub fn keeping(self, bytes: usize) -> Self {
        Self { kept: bytes, cache: Arc::new(Mutex::new(Cache::new(bytes))), ..self }
    }

    /// The page of a template.
    pub async fn compile(&self, template: &Template) -> Result<Arc<Rendered>, RenderError> {
        // Nobody remembers pages of which none comes twice.
        let key = (self.kept > 0).then(|| key(self.renderer.name(), template.text()));
        if let Some(page) = key.and_then(|key| self.cache().find(&key)) {
            return Ok(page);
        }
        let page = match &self.pool {
            Some(pool) => pool.with_permit(self.render(template)).await??,
            None => self.render(template).await?,
        };
        let page = Arc::new(page);
        if let Some(key) = key {
            self.cache().keep(key, &page);
        }
        Ok(page)
    }

    async fn render(&self, template: &Template) -> Result<Rendered, RenderError> {
        let late = |_| RenderError::Late {
            renderer: self.renderer.name().to_owned(),
            limit: self.timeout,
        };
        tokio::time::timeout(self.timeout, self.renderer.render(template)).await.map_err(late)?
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache<Rendered>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
