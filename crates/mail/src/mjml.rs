//! HTML for mail from MJML: one seam, three renderers.
//!
//! Includes are read here and nowhere else ([`Template`]), so that every renderer gets the same text and
//! none reads a file of its own choosing. [`Embedded`] is the default and needs nothing beside it;
//! [`Reference`] is npm's mjml in Node workers that stay; [`Http`] is a server somewhere. A [`Compiler`]
//! puts one of them under a bounded pool, a time limit and a cache.

mod cache;
mod compiler;
mod cut;
mod differ;
mod embedded;
mod error;
mod http;
mod include;
mod mould;
mod normalise;
mod reference;
mod scan;
mod template;

use async_trait::async_trait;

pub use compiler::Compiler;
pub use differ::{Difference, differences};
pub use embedded::Embedded;
pub use error::{Fault, Place, RenderError};
pub use http::{Form, Http};
pub(crate) use include::any_include;
pub use reference::Reference;
pub use template::{Roots, Template};

/// Whatever makes HTML of MJML.
#[async_trait]
pub trait Renderer: Send + Sync {
    /// What it is, with its version where it is known: answers of another are not taken for its own.
    fn name(&self) -> &str;

    /// Renders a template. May be dropped at any await point.
    async fn render(&self, template: &Template) -> Result<Rendered, RenderError>;
}

/// What a renderer made of a template.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rendered {
    /// The page.
    pub html: String,
    /// What the renderer did not like and made something of all the same.
    pub warnings: Vec<Fault>,
}
