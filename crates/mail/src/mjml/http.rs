//! A renderer somewhere else: a server that takes MJML over HTTP.
//!
//! There are two kinds in the wild. Some take the template as it is and answer with the page
//! (adrianrudnik/mjml-server); some take and answer JSON (mjml.io's API, danihodovic/mjml-server).

use async_trait::async_trait;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, StatusCode, Url};
use serde::{Deserialize, Serialize};

use super::error::{RenderError, chain};
use super::{Rendered, Renderer, Template};

/// A server that renders.
#[derive(Debug, Clone)]
pub struct Http {
    client: Client,
    url: Url,
    form: Form,
    name: String,
}

/// What is sent and answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The template as it is; the page as it is.
    Raw,
    /// `{"mjml": …}`; `{"html": …, "errors": […]}`.
    Json,
}

/// A page is never larger; an answer that is has lost its way.
const LARGEST: usize = 16 << 20;
/// Of what a server says about an error.
const WORDS: usize = 500;

#[derive(Serialize)]
struct Ask<'a> {
    mjml: &'a str,
}

#[derive(Deserialize)]
struct Answer {
    html: Option<String>,
    #[serde(default)]
    errors: Vec<Complaint>,
}

#[derive(Deserialize)]
struct Complaint {
    line: Option<usize>,
    message: String,
}

impl Http {
    /// A server at that address. The client decides about proxies, time limits and TLS.
    pub fn new(client: Client, url: Url, form: Form) -> Self {
        let name = format!("the MJML server {}", url.host_str().unwrap_or("without a name"));
        Self { client, url, form, name }
    }

    async fn ask(&self, template: &Template) -> Result<(StatusCode, Vec<u8>), reqwest::Error> {
        let request = self.client.post(self.url.clone());
        let request = match self.form {
            // Without a type the raw server answers 500.
            Form::Raw => request
                .header(CONTENT_TYPE, "text/plain; charset=utf-8")
                .body(template.text().to_owned()),
            Form::Json => {
                let body = serde_json::to_vec(&Ask { mjml: template.text() }).unwrap_or_default();
                request.header(CONTENT_TYPE, "application/json").body(body)
            }
        };
        let mut answer = request.send().await?;
        let (status, mut body) = (answer.status(), Vec::new());
        while let Some(chunk) = answer.chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() > LARGEST {
                break;
            }
        }
        Ok((status, body))
    }

    fn unavailable(&self, message: impl ToString) -> RenderError {
        RenderError::Unavailable { renderer: self.name.clone(), message: message.to_string() }
    }

    fn refused(&self, message: String) -> RenderError {
        RenderError::Refused { renderer: self.name.clone(), message }
    }

    fn read(&self, body: Vec<u8>, template: &Template) -> Result<Rendered, RenderError> {
        if body.len() > LARGEST {
            return Err(self.refused(format!("its answer is larger than {LARGEST} bytes")));
        }
        let (html, warnings) = match self.form {
            Form::Raw => (String::from_utf8(body).unwrap_or_default(), Vec::new()),
            Form::Json => {
                let answer: Answer = serde_json::from_slice(&body).map_err(|cause| {
                    self.refused(format!("its answer is not as expected: {cause}"))
                })?;
                let warnings = answer.errors.into_iter();
                let warnings =
                    warnings.map(|one| template.fault(one.line.unwrap_or(1), one.message));
                (answer.html.unwrap_or_default(), warnings.collect())
            }
        };
        // A server that was asked in the wrong form answers with nothing, and 200.
        if html.trim().is_empty() {
            return Err(self.refused("it answered with an empty page".into()));
        }
        Ok(Rendered { html, warnings })
    }
}

#[async_trait]
impl Renderer for Http {
    fn name(&self) -> &str {
        &self.name
    }

    async fn render(&self, template: &Template) -> Result<Rendered, RenderError> {
        template.includes_nothing()?;
        let asked = self.ask(template).await;
        let (status, body) =
            asked.map_err(|error| self.unavailable(chain(&error.without_url())))?;
        if status.is_success() {
            return self.read(body, template);
        }
        let words: String = String::from_utf8_lossy(&body).trim().chars().take(WORDS).collect();
        match status {
            StatusCode::BAD_REQUEST
            | StatusCode::UNPROCESSABLE_ENTITY
            | StatusCode::PAYLOAD_TOO_LARGE => Err(self.refused(words)),
            _ => Err(self.unavailable(format!("it answered {status}: {words}"))),
        }
    }
}
