//! Mail as configured: the spool, the renderer and the transport.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use async_trait::async_trait;
use longshore::{RetryPolicy, SystemClock};
use longshore_batch::mail::{MailSpool, MailSpoolError, OutgoingMail, SpooledMail};
pub use longshore_mail::digest::DigestBuilder;
use longshore_mail::digest::DigestSpool;
use longshore_mail::group_commit::GroupCommitQueue;
use longshore_mail::mjml::{Compiler, EmbeddedRenderer, HttpRenderer, NpmRenderer, Renderer, Roots};
use longshore_mail::send::{
    Credentials, DomainRate, FileTransport, SenderSettings, Smtp, SmtpSettings, Transport,
};
use longshore_mail::spool::{DeliveryPolicy, Spool};
use longshore_trusted_path::open_secret;
use tokio::sync::OnceCell;

use crate::alert_sinks::AlertSinks;
use crate::config::{MailConfig, RendererName, SmtpAddress, SmtpConfig};
use crate::env;
use crate::error::{WithHint, hinted, usage};
use crate::host_identity;
use crate::semaphore_backend;
use crate::settings::Settings;

/// Concurrent renderings: processes of Node, or threads of our own.
const MAX_RENDERERS: usize = 4;

/// The renderer without limits.
pub async fn renderer(name: &RendererName, settings: &MailConfig) -> anyhow::Result<Arc<dyn Renderer>> {
    Ok(match name {
        RendererName::Embedded => Arc::new(EmbeddedRenderer::new(MAX_RENDERERS).await?),
        RendererName::Reference => Arc::new(
            NpmRenderer::start(&settings.mjml_dir, MAX_RENDERERS)
                .await
                .hint("run `npm install mjml`, and name its folder in `mail.mjml_dir`")?,
        ),
        RendererName::Server(url) => {
            let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
            Arc::new(HttpRenderer::new(client, url.clone(), settings.form))
        }
    })
}

/// The renderer with its timeout and its bounded pool.
pub async fn compiler(typed: Option<&RendererName>, settings: &Settings) -> anyhow::Result<Compiler> {
    let mail = &settings.mail;
    let renderer = renderer(typed.unwrap_or(&mail.renderer), mail).await?;
    let compiler = Compiler::new(renderer).timeout(mail.render_timeout);
    let Some(name) = &mail.pool else { return Ok(compiler) };
    let shape = settings.bounded.shape(name, None)?;
    let alarm = AlertSinks::open(&settings.alerts)?;
    let permits = semaphore_backend::open(settings).await?;
    Ok(compiler.with_pool(semaphore_backend::pool(permits, name.clone(), &shape, alarm)))
}

/// The folders from which a template in this folder may include.
pub fn include_roots(folder: &Path, typed: &[PathBuf], settings: &MailConfig) -> anyhow::Result<Roots> {
    let all = std::iter::once(folder).chain(typed.iter().chain(&settings.includes).map(PathBuf::as_path));
    Roots::new(all).context("a folder of includes does not exist")
}

/// Opens the spool.
pub fn spool(settings: &MailConfig) -> anyhow::Result<Spool> {
    Spool::open(&settings.spool).hint("`mail.spool` names its folder")
}

/// Builds messages without spooling them. It holds no permits: these are for messages that are
/// spooled.
pub async fn sealer(settings: &Settings) -> anyhow::Result<DigestBuilder> {
    let settings = &settings.mail;
    let renderer = renderer(&settings.renderer, settings).await?;
    let compiler = Compiler::new(renderer).timeout(settings.render_timeout);
    Ok(DigestBuilder::new(compiler, settings.includes.clone(), Arc::new(SystemClock)))
}

/// Compiles messages and adds them to the spool, as configured. Nothing is opened before the first
/// message, because most workers send no mail.
pub struct LazyMailSpool {
    settings: Settings,
    spool: OnceCell<DigestSpool>,
}

impl LazyMailSpool {
    /// Opens nothing yet.
    pub fn new(settings: &Settings) -> Self {
        Self { settings: settings.clone(), spool: OnceCell::new() }
    }

    async fn open(&self) -> anyhow::Result<DigestSpool> {
        let compiler = compiler(None, &self.settings).await?;
        let mail = &self.settings.mail;
        let queue = GroupCommitQueue::new(spool(mail)?, Arc::new(SystemClock));
        Ok(DigestSpool::new(compiler, queue, mail.includes.clone(), Arc::new(SystemClock)))
    }
}

#[async_trait]
impl MailSpool for LazyMailSpool {
    async fn enqueue(&self, mail: OutgoingMail) -> Result<SpooledMail, MailSpoolError> {
        let spool = self.spool.get_or_try_init(|| self.open()).await;
        let spool = spool.map_err(|error| MailSpoolError {
            code: "SPOOL_ERROR",
            message: format!("{error:#}"),
            retryable: true,
            busy: false,
        })?;
        spool.enqueue(mail).await
    }
}

/// The transport: a folder or a mail server.
pub fn transport(folder: Option<&Path>, settings: &MailConfig) -> anyhow::Result<Arc<dyn Transport>> {
    if let Some(folder) = folder.or(settings.folder.as_deref()) {
        let transport =
            FileTransport::new(folder).with_context(|| format!("no folder {}", folder.display()))?;
        return Ok(Arc::new(transport));
    }
    let server = &settings.smtp;
    let Some(SmtpAddress { host, port }) = &server.server else {
        return Err(usage("no mail server is configured"))
            .hint("write [mail.smtp] server = \"HOST:PORT\" into longshore.toml, or use --folder DIR");
    };
    Ok(Arc::new(Smtp::new(SmtpSettings {
        security: server.security,
        authorities: server.authorities.clone(),
        credentials: credentials(server)?,
        hello: if server.hello.is_empty() { host_identity::host() } else { server.hello.clone() },
        timeout: server.timeout,
        ..SmtpSettings::new(host, *port)
    })?))
}

/// The login for the server. No error repeats the password.
fn credentials(server: &SmtpConfig) -> anyhow::Result<Option<Credentials>> {
    if server.user.is_empty() {
        return Ok(None);
    }
    let password = match &server.password_file {
        Some(file) => {
            read_secret(file).with_context(|| format!("cannot read the password in {}", file.display()))?
        }
        None => env::secret(env::SMTP_PASSWORD).ok_or_else(|| {
            let hint = format!("set {}, or name a file in `mail.smtp.password_file`", env::SMTP_PASSWORD);
            hinted(usage("the mail server's password is not configured"), hint)
        })?,
    };
    let password = password.trim_end_matches(['\r', '\n']).into();
    Ok(Some(Credentials { user: server.user.clone(), password }))
}

fn read_secret(file: &Path) -> anyhow::Result<String> {
    Ok(std::io::read_to_string(open_secret(file)?)?)
}

/// The settings of a sender.
pub fn sender_settings(settings: &MailConfig) -> SenderSettings {
    let retry = RetryPolicy { max_age: Some(settings.max_age), ..DeliveryPolicy::default().retry };
    let per_domain = (settings.per_domain > 0).then(|| {
        let per_minute = f64::from(settings.per_domain);
        // The burst is ten seconds' worth.
        DomainRate { per_minute, burst: (per_minute / 6.0).max(1.0) }
    });
    SenderSettings {
        connections: settings.smtp.connections,
        policy: DeliveryPolicy { retry, on_unanswered: settings.on_unanswered },
        per_domain,
        ..SenderSettings::default()
    }
}
