//! The embedded renderer: mrml on a small thread pool.

use std::time::Duration;

use async_trait::async_trait;
use longshore_pool::{CallError, ErrorKind, Operations, PoolSettings, WhenQueueFull, WorkerPool};
use mrml::prelude::parser::{Error as ParseError, ParserOptions};
use mrml::prelude::render::RenderOptions;

use super::error::{MjmlError, RenderError, chain};
use super::normalise::{NormalisedTemplate, normalise};
use super::skeleton_cache::SkeletonCache;
use super::{MjmlTemplate, RenderedPage, Renderer, Roots};

/// Renders with mrml: many times faster than npm's mjml (bench/mail), with nearly the same output
/// (docs/mjml.md).
#[derive(Debug, Clone)]
pub struct EmbeddedRenderer {
    threads: WorkerPool,
    skeletons: SkeletonCache,
}

/// With the version: another version may render differently.
const NAME: &str = "mrml 6.0.1";
/// mrml's media query for rules that only Yahoo should apply, which hide a carousel's arrows. The comma makes
/// every client apply them.
const MRML_MEDIA_QUERY: &str = "@media screen, yahoo";
/// The corrected query, which other clients reject as invalid.
const YAHOO_MEDIA_QUERY: &str = "@media screen yahoo";
/// Longer than the compiler's timeout, so that the compiler's error is reported.
const POOL_TIMEOUT: Duration = Duration::from_secs(300);

impl EmbeddedRenderer {
    /// Starts a pool of so many threads.
    pub async fn new(threads: usize) -> Result<Self, RenderError> {
        let settings = PoolSettings {
            min: 1.min(threads),
            max: threads,
            max_calls: None,
            timeout: POOL_TIMEOUT,
            when_full: WhenQueueFull::Wait,
            ..PoolSettings::default()
        };
        let threads = WorkerPool::threads("mrml", Operations::stateless(), settings).await;
        Ok(Self { threads: threads.map_err(unavailable)?, skeletons: SkeletonCache::default() })
    }

    /// Renders via the skeleton cache where possible.
    fn render_cached(skeletons: &SkeletonCache, template: &MjmlTemplate) -> Result<RenderedPage, MjmlError> {
        let without_warnings = |page: &str| {
            let page = MjmlTemplate::from_text(page, &Roots::default()).ok()?;
            Self::render_blocking(&page).ok().filter(|page| page.warnings.is_empty())
        };
        let html = skeletons.render(template.text(), |page| Some(without_warnings(page)?.html));
        match html {
            Some(html) => Ok(RenderedPage { html, warnings: Vec::new() }),
            None => Self::render_blocking(template),
        }
    }

    /// Renders on the caller's thread, without the skeleton cache.
    pub fn render_blocking(template: &MjmlTemplate) -> Result<RenderedPage, MjmlError> {
        let normalised = normalise(template.text());
        let normalised = normalised.map_err(|(line, what)| template.error(line, what))?;
        let parsed = mrml::parse_with_options(&normalised.text, &ParserOptions::default());
        let parsed = parsed.map_err(|cause| parse_error(&cause, &normalised, template))?;
        let html = parsed.element.render(&RenderOptions::default());
        let mut html = html.map_err(|cause| template.error(1, cause.to_string()))?;
        if normalised.text.contains("<mj-carousel") {
            html = html.replace(MRML_MEDIA_QUERY, YAHOO_MEDIA_QUERY);
        }
        let warnings = parsed.warnings.iter().map(|warning| {
            let line = normalised.line(warning.span.start);
            template.error(line, warning.kind.to_string())
        });
        Ok(RenderedPage { html, warnings: warnings.collect() })
    }
}

#[async_trait]
impl Renderer for EmbeddedRenderer {
    fn name(&self) -> &str {
        NAME
    }

    async fn render(&self, template: &MjmlTemplate) -> Result<RenderedPage, RenderError> {
        let (template, skeletons) = (template.clone(), self.skeletons.clone());
        let render = move || Self::render_cached(&skeletons, &template);
        let rendered = self.threads.run_blocking(render).await;
        match rendered {
            Ok(rendered) => Ok(rendered?),
            // The library would panic again on the same template.
            Err(CallError { kind: ErrorKind::Panic { message }, .. }) => {
                Err(RenderError::Refused { renderer: NAME.into(), message })
            }
            Err(error) => Err(unavailable(error)),
        }
    }
}

fn unavailable(error: CallError) -> RenderError {
    RenderError::Unavailable { renderer: NAME.into(), message: error.to_string() }
}

/// Translates mrml's parse error, replacing byte positions by template lines.
fn parse_error(error: &ParseError, normalised: &NormalisedTemplate, template: &MjmlTemplate) -> MjmlError {
    let at = |start: usize| normalised.line(start);
    let source_text = |start: usize, end: usize| normalised.text.get(start..end).unwrap_or("").trim();
    let (line, what) = match error {
        ParseError::UnexpectedElement { position, .. } => (
            at(position.start),
            format!("<{}> is not allowed here", source_text(position.start, position.end)),
        ),
        ParseError::UnexpectedToken { position, .. } => {
            let source_text: String = source_text(position.start, position.end).chars().take(40).collect();
            (at(position.start), format!("`{source_text}` is not allowed here"))
        }
        ParseError::MissingAttribute { name, position, .. } => {
            (at(position.start), format!("the attribute `{name}` is missing"))
        }
        ParseError::InvalidAttribute { position, .. } => {
            let source_text = source_text(position.start, position.end);
            (at(position.start), format!("`{source_text}` is not a valid attribute"))
        }
        ParseError::InvalidFormat { position, .. } => (
            at(position.start),
            format!("`{}` is not a valid value", source_text(position.start, position.end)),
        ),
        ParseError::NoRootNode => (1, "there is no <mjml> element".to_owned()),
        ParseError::EndOfStream { .. } => {
            (at(normalised.text.len()), "the template ends too early".to_owned())
        }
        ParseError::ParserError { source, .. } => {
            (normalised.line_of(source.pos().row as usize), format!("not valid MJML: {source}"))
        }
        other => (1, chain(other)),
    };
    template.error(line, what)
}
