//! Renders over HTTP.
//!
//! There are two kinds of server: some take the template as the request body and answer with the page
//! (adrianrudnik/mjml-server), others take and answer JSON (mjml.io's API, danihodovic/mjml-server).

use async_trait::async_trait;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, StatusCode, Url};
use serde::{Deserialize, Serialize};

use super::error::{RenderError, chain};
use super::{MjmlTemplate, RenderedPage, Renderer};

/// A rendering server.
#[derive(Debug, Clone)]
pub struct HttpRenderer {
    client: Client,
    url: Url,
    form: HttpFormat,
    name: String,
}

/// The format of requests and responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HttpFormat {
    /// The request body is the template; the response body is the page.
    Raw,
    /// `{"mjml": …}`; `{"html": …, "errors": […]}`.
    Json,
}

/// Maximum size of a response.
const MAX_RESPONSE_BYTES: usize = 16 << 20;
/// Maximum length of a server's error text in our error.
const MAX_ERROR_CHARS: usize = 500;

#[derive(Serialize)]
struct RenderRequest<'a> {
    mjml: &'a str,
}

#[derive(Deserialize)]
struct RenderResponse {
    html: Option<String>,
    #[serde(default)]
    errors: Vec<RenderWarning>,
}

#[derive(Deserialize)]
struct RenderWarning {
    line: Option<usize>,
    message: String,
}

impl HttpRenderer {
    /// A server at this URL. The client configures proxies, timeouts and TLS.
    pub fn new(client: Client, url: Url, form: HttpFormat) -> Self {
        let name = format!("the MJML server {}", url.host_str().unwrap_or("(no host)"));
        Self { client, url, form, name }
    }

    async fn post(&self, template: &MjmlTemplate) -> Result<(StatusCode, Vec<u8>), reqwest::Error> {
        let request = self.client.post(self.url.clone());
        let request = match self.form {
            // The raw server answers 500 to a request without a content type.
            HttpFormat::Raw => {
                request.header(CONTENT_TYPE, "text/plain; charset=utf-8").body(template.text().to_owned())
            }
            HttpFormat::Json => {
                let body = serde_json::to_vec(&RenderRequest { mjml: template.text() }).unwrap_or_default();
                request.header(CONTENT_TYPE, "application/json").body(body)
            }
        };
        let mut response = request.send().await?;
        let (status, mut body) = (response.status(), Vec::new());
        while let Some(chunk) = response.chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_RESPONSE_BYTES {
                break;
            }
        }
        Ok((status, body))
    }

    fn unavailable(&self, message: impl ToString) -> RenderError {
        RenderError::Unavailable { renderer: self.name.clone(), message: message.to_string() }
    }

    fn rejected(&self, message: String) -> RenderError {
        RenderError::Refused { renderer: self.name.clone(), message }
    }

    fn parse(&self, body: Vec<u8>, template: &MjmlTemplate) -> Result<RenderedPage, RenderError> {
        if body.len() > MAX_RESPONSE_BYTES {
            return Err(self.rejected(format!("its response is larger than {MAX_RESPONSE_BYTES} bytes")));
        }
        let (html, warnings) = match self.form {
            HttpFormat::Raw => (String::from_utf8(body).unwrap_or_default(), Vec::new()),
            HttpFormat::Json => {
                let response: RenderResponse = serde_json::from_slice(&body).map_err(|cause| {
                    self.rejected(format!("its response is not the expected JSON: {cause}"))
                })?;
                let warnings = response.errors.into_iter();
                let warnings = warnings.map(|one| template.error(one.line.unwrap_or(1), one.message));
                (response.html.unwrap_or_default(), warnings.collect())
            }
        };
        // A server that gets the wrong request format answers 200 with an empty body.
        if html.trim().is_empty() {
            return Err(self.rejected("it returned an empty page".into()));
        }
        Ok(RenderedPage { html, warnings })
    }
}

#[async_trait]
impl Renderer for HttpRenderer {
    fn name(&self) -> &str {
        &self.name
    }

    async fn render(&self, template: &MjmlTemplate) -> Result<RenderedPage, RenderError> {
        template.reject_includes()?;
        let response = self.post(template).await;
        let (status, body) = response.map_err(|error| self.unavailable(chain(&error.without_url())))?;
        if status.is_success() {
            return self.parse(body, template);
        }
        let text: String = String::from_utf8_lossy(&body).trim().chars().take(MAX_ERROR_CHARS).collect();
        match status {
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY | StatusCode::PAYLOAD_TOO_LARGE => {
                Err(self.rejected(text))
            }
            _ => Err(self.unavailable(format!("it answered {status}: {text}"))),
        }
    }
}
