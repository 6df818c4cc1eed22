//! The renderer that is built in: mrml, on a thread of a small pool.

use std::time::Duration;

use async_trait::async_trait;
use longshore_pool::{CallError, ErrorKind, Operations, Settings, WhenFull, WorkerPool};
use mrml::prelude::parser::{Error as ParseError, ParserOptions};
use mrml::prelude::render::RenderOptions;

use super::error::{Fault, RenderError, chain};
use super::mould::Moulds;
use super::normalise::{Normal, normalise};
use super::{Rendered, Renderer, Roots, Template};

/// mrml: many times as fast as npm's mjml (bench/mail), and nearly the same pages (docs/mjml.md).
#[derive(Debug, Clone)]
pub struct Embedded {
    threads: WorkerPool,
    moulds: Moulds,
}

/// With the version, since another may render otherwise.
const NAME: &str = "mrml 6.0.1";
/// What the library writes above rules that only Yahoo is to read, which hide a carousel's arrows: with the
/// comma everybody does.
const FOR_ALL: &str = "@media screen, yahoo";
/// What is no media query to anybody else.
const FOR_YAHOO: &str = "@media screen yahoo";
/// Longer than a compiler waits: it tells first.
const LONGEST: Duration = Duration::from_secs(300);

impl Embedded {
    /// Renders on as many threads at once.
    pub async fn new(threads: usize) -> Result<Self, RenderError> {
        let settings = Settings {
            min: 1.min(threads),
            max: threads,
            max_calls: None,
            timeout: LONGEST,
            when_full: WhenFull::Wait,
            ..Settings::default()
        };
        let threads = WorkerPool::threads("mrml", Operations::stateless(), settings).await;
        Ok(Self { threads: threads.map_err(unavailable)?, moulds: Moulds::default() })
    }

    /// The same page, put together of what was rendered for others like it where that is possible.
    fn render_alike(moulds: &Moulds, template: &Template) -> Result<Rendered, Fault> {
        let without_a_word = |page: &str| {
            let page = Template::from_text(page, &Roots::default()).ok()?;
            Self::render_here(&page).ok().filter(|page| page.warnings.is_empty())
        };
        let html = moulds.pour(template.text(), |page| Some(without_a_word(page)?.html));
        match html {
            Some(html) => Ok(Rendered { html, warnings: Vec::new() }),
            None => Self::render_here(template),
        }
    }

    /// Renders on the caller's own thread.
    pub fn render_here(template: &Template) -> Result<Rendered, Fault> {
        let normal = normalise(template.text());
        let normal = normal.map_err(|(line, what)| template.fault(line, what))?;
        let parsed = mrml::parse_with_options(&normal.text, &ParserOptions::default());
        let parsed = parsed.map_err(|cause| told(&cause, &normal, template))?;
        let html = parsed.element.render(&RenderOptions::default());
        let mut html = html.map_err(|cause| template.fault(1, cause.to_string()))?;
        if normal.text.contains("<mj-carousel") {
            html = html.replace(FOR_ALL, FOR_YAHOO);
        }
        let warnings = parsed.warnings.iter().map(|warning| {
            let line = normal.line(warning.span.start);
            template.fault(line, warning.kind.to_string())
        });
        Ok(Rendered { html, warnings: warnings.collect() })
    }
}

#[async_trait]
impl Renderer for Embedded {
    fn name(&self) -> &str {
        NAME
    }

    async fn render(&self, template: &Template) -> Result<Rendered, RenderError> {
        let (template, moulds) = (template.clone(), self.moulds.clone());
        let render = move || Self::render_alike(&moulds, &template);
        let rendered = self.threads.run_blocking(render).await;
        match rendered {
            Ok(rendered) => Ok(rendered?),
            // What makes the library panic will do so again.
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

/// The library's words, without its byte positions.
fn told(error: &ParseError, normal: &Normal, template: &Template) -> Fault {
    let at = |start: usize| normal.line(start);
    let word = |start: usize, end: usize| normal.text.get(start..end).unwrap_or("").trim();
    let (line, what) = match error {
        ParseError::UnexpectedElement { position, .. } => (
            at(position.start),
            format!("<{}> is not allowed here", word(position.start, position.end)),
        ),
        ParseError::UnexpectedToken { position, .. } => {
            let word: String = word(position.start, position.end).chars().take(40).collect();
            (at(position.start), format!("`{word}` is not allowed here"))
        }
        ParseError::MissingAttribute { name, position, .. } => {
            (at(position.start), format!("the attribute `{name}` is missing"))
        }
        ParseError::InvalidAttribute { position, .. } => {
            let word = word(position.start, position.end);
            (at(position.start), format!("`{word}` is no good attribute"))
        }
        ParseError::InvalidFormat { position, .. } => (
            at(position.start),
            format!("`{}` is no good value", word(position.start, position.end)),
        ),
        ParseError::NoRootNode => (1, "there is no <mjml> in it".to_owned()),
        ParseError::EndOfStream { .. } => {
            (at(normal.text.len()), "the template ends too early".to_owned())
        }
        ParseError::ParserError { source, .. } => {
            (normal.line_of(source.pos().row as usize), format!("that is no MJML: {source}"))
        }
        other => (1, chain(other)),
    };
    template.fault(line, what)
}
