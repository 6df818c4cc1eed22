//! Renders MJML to HTML: one trait, three renderers.
//!
//! Includes are resolved only in [`MjmlTemplate`], so that every renderer gets the same text and none opens files
//! itself. [`EmbeddedRenderer`] (mrml) is the default and has no dependencies at run time. [`NpmRenderer`] runs npm's
//! mjml in persistent Node workers. [`HttpRenderer`] calls a rendering server. A [`Compiler`] adds a bounded pool, a
//! timeout and a cache to a renderer.

mod cache;
mod compiler;
mod diff;
mod error;
mod http;
mod include;
mod lexer;
mod mrml;
mod normalise;
mod npm;
mod skeleton_cache;
mod splitter;
mod template;

use async_trait::async_trait;

pub use self::mrml::EmbeddedRenderer;
pub use compiler::Compiler;
pub use diff::{Difference, differences};
pub use error::{MjmlError, MjmlLocation, RenderError};
pub use http::{HttpFormat, HttpRenderer};
pub(crate) use include::find_include;
pub use npm::NpmRenderer;
pub use template::{MjmlTemplate, Roots};

/// Renders MJML to HTML.
#[async_trait]
pub trait Renderer: Send + Sync {
    /// The renderer's name, with its version where known. It is part of the cache key.
    fn name(&self) -> &str;

    /// Renders a template. May be dropped at any await point.
    async fn render(&self, template: &MjmlTemplate) -> Result<RenderedPage, RenderError>;
}

/// The result of rendering a template.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RenderedPage {
    /// The HTML.
    pub html: String,
    /// Problems that the renderer reported and worked around.
    pub warnings: Vec<MjmlError>,
}
