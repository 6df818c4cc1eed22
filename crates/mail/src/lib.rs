//! Mail: templates in MJML, a spool that loses nothing, and whoever sends from it.
//!
//! [`mjml`] makes HTML of a template, by whichever renderer.

pub mod mjml;
