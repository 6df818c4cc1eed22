//! The compiler: bounded pool, timeout and cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use longshore::{BoundedPool, MemoryPermits, PoolName};
use longshore_mail::mjml::{Compiler, MjmlTemplate, RenderError, RenderedPage, Renderer};
use tokio::sync::Semaphore;

use super::template;

/// A renderer that counts its calls, and blocks until the test opens its gate.
#[derive(Default)]
struct Watched {
    asked: AtomicUsize,
    inside: AtomicUsize,
    most: AtomicUsize,
    gate: Option<Semaphore>,
}

#[async_trait]
impl Renderer for Watched {
    fn name(&self) -> &str {
        "watched"
    }

    async fn render(&self, template: &MjmlTemplate) -> Result<RenderedPage, RenderError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        match &self.gate {
            Some(gate) => gate.acquire().await.expect("it is never closed").forget(),
            None => tokio::task::yield_now().await,
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
        match template.text() {
            "bad" => Err(RenderError::Refused { renderer: "watched".into(), message: "bad".into() }),
            text => Ok(RenderedPage { html: text.to_uppercase(), warnings: Vec::new() }),
        }
    }
}

#[tokio::test]
async fn the_same_text_is_rendered_once_and_a_refusal_is_not_kept() {
    let watched = Arc::new(Watched::default());
    let compiler = Compiler::new(watched.clone());
    for _ in 0..3 {
        assert_eq!(compiler.compile(&template("a")).await.expect("rendered").html, "A");
    }
    assert_eq!(watched.asked.load(Ordering::SeqCst), 1);
    for _ in 0..2 {
        compiler.compile(&template("bad")).await.expect_err("it is refused");
    }
    assert_eq!(watched.asked.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn no_more_are_rendered_at_once_than_the_pool_has_permits() {
    let gate = Some(Semaphore::new(0));
    let watched = Arc::new(Watched { gate, ..Watched::default() });
    let pool =
        BoundedPool::builder(Arc::new(MemoryPermits::default()), PoolName::new("mjml").expect("a name"), 2);
    let compiler = Compiler::new(watched.clone()).with_pool(pool.build());
    let texts: Vec<MjmlTemplate> = (0..20).map(|n| template(&n.to_string())).collect();
    let all = futures_util::future::join_all(texts.iter().map(|text| compiler.compile(text)));
    let opens = async {
        for _ in 0..20 {
            // Let every rendering that has a permit start before the next one ends.
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
            watched.gate.as_ref().expect("there is one").add_permits(1);
        }
    };
    let (all, ()) = tokio::join!(all, opens);
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    assert_eq!(watched.most.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn what_takes_too_long_is_told_and_gives_its_permit_back() {
    let watched = Arc::new(Watched { gate: Some(Semaphore::new(0)), ..Watched::default() });
    let pool =
        BoundedPool::builder(Arc::new(MemoryPermits::default()), PoolName::new("mjml").expect("a name"), 1);
    let pool = pool.build();
    let compiler = Compiler::new(watched).with_pool(pool.clone()).timeout(Duration::from_secs(1));
    let error = compiler.compile(&template("a")).await.expect_err("it never ends");
    assert_eq!(error.to_string(), "watched took longer than 1s");
    assert!(error.is_retryable());
    pool.flush().await;
    assert!(pool.try_acquire().await.expect("it is there").is_some());
}
