//! Mail as the configuration has it: where the spool is, who renders, and who carries it on.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use longshore::{PoolName, RetryPolicy, SystemClock};
use longshore_batch::mail::{Office, OfficeError, Parcel, Posted};
pub use longshore_mail::digest::Sealer;
use longshore_mail::digest::SpoolOffice;
use longshore_mail::letterbox::Letterbox;
use longshore_mail::mjml::{Compiler, Embedded, Form, Http, Reference, Renderer, Roots};
use longshore_mail::send::{
    Carrier, Credentials, DomainRate, Folder, Security, SenderSettings, Smtp, SmtpSettings,
};
use longshore_mail::spool::{OnUnanswered, Policy, Spool, Thresholds};
use tokio::sync::OnceCell;

use crate::alarms::Alarms;
use crate::env;
use crate::error::{WithHint, hinted, usage};
use crate::permits;
use crate::settings::Settings;
use crate::whoami;

/// What the configuration says of mail.
#[derive(Debug, Clone)]
pub struct MailSettings {
    /// The spool's folder.
    pub spool: PathBuf,
    /// Who renders.
    pub renderer: RendererName,
    /// What is said to a server that renders.
    pub form: FormName,
    /// Where `npm install mjml` was run.
    pub mjml_dir: PathBuf,
    /// Folders that templates may include from, beside their own.
    pub includes: Vec<PathBuf>,
    /// How long a rendering may take.
    pub render_timeout: Duration,
    /// What each rendering holds a permit of.
    pub pool: Option<PoolName>,
    /// Where mail goes instead of to a server.
    pub folder: Option<PathBuf>,
    /// Messages to one domain in a minute; 0 is no limit.
    pub per_domain: u32,
    /// What becomes of messages that may have arrived already.
    pub on_unanswered: Unanswered,
    /// How long a message is tried.
    pub max_age: Duration,
    /// How long sent messages are kept.
    pub keep: Duration,
    /// How long failures are kept.
    pub keep_failed: Duration,
    /// From where on the spool is not well.
    pub thresholds: Thresholds,
    /// The server.
    pub smtp: ServerSettings,
}

/// The mail server.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Where it is; none if nobody said so.
    pub server: Option<(String, u16)>,
    /// How connections are secured.
    pub security: SecurityName,
    /// Authorities that its certificate may be signed by, if not the system's.
    pub authorities: Option<PathBuf>,
    /// Who we are.
    pub user: String,
    /// Where the password is.
    pub password_file: Option<PathBuf>,
    /// The name by which we greet; empty is the machine's.
    pub hello: String,
    /// Connections at most.
    pub connections: usize,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// How connections are secured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SecurityName {
    None,
    Starttls,
    Tls,
}

/// What is said to a server that renders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum FormName {
    Raw,
    Json,
}

/// What becomes of messages that may have arrived already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Unanswered {
    Again,
    Fail,
}

/// Who renders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RendererName {
    Embedded,
    Reference,
    Server(reqwest::Url),
}

impl std::str::FromStr for RendererName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "embedded" => Ok(Self::Embedded),
            "reference" => Ok(Self::Reference),
            _ => match text.parse::<reqwest::Url>() {
                Ok(url) if ["http", "https"].contains(&url.scheme()) => Ok(Self::Server(url)),
                _ => {
                    Err("a renderer is embedded, reference, or the http:// address of a server"
                        .into())
                }
            },
        }
    }
}

/// Processes of Node, and threads of our own, that render at once.
const RENDERERS: usize = 4;

/// The one who renders, by itself.
pub async fn renderer(
    name: &RendererName,
    settings: &MailSettings,
) -> anyhow::Result<Arc<dyn Renderer>> {
    Ok(match name {
        RendererName::Embedded => Arc::new(Embedded::new(RENDERERS).await?),
        RendererName::Reference => Arc::new(
            Reference::start(&settings.mjml_dir, RENDERERS)
                .await
                .hint("`npm install mjml`, and say where in `mail.mjml_dir`")?,
        ),
        RendererName::Server(url) => {
            let client =
                reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
            let form = match settings.form {
                FormName::Raw => Form::Raw,
                FormName::Json => Form::Json,
            };
            Arc::new(Http::new(client, url.clone(), form))
        }
    })
}

/// The one who renders, within its limits.
pub async fn compiler(
    typed: Option<&RendererName>,
    settings: &Settings,
) -> anyhow::Result<Compiler> {
    let mail = &settings.mail;
    let renderer = renderer(typed.unwrap_or(&mail.renderer), mail).await?;
    let compiler = Compiler::new(renderer).timeout(mail.render_timeout);
    let Some(name) = &mail.pool else { return Ok(compiler) };
    let shape = settings.bounded.shape(name, None)?;
    let alarm = Alarms::open(&settings.alerts)?;
    let permits = permits::open(settings).await?;
    Ok(compiler.within(permits::pool(permits, name.clone(), &shape, alarm)))
}

/// Where a template in this folder may include from.
pub fn roots(folder: &Path, typed: &[PathBuf], settings: &MailSettings) -> anyhow::Result<Roots> {
    let all =
        std::iter::once(folder).chain(typed.iter().chain(&settings.includes).map(PathBuf::as_path));
    Roots::new(all).context("a folder of includes is not there")
}

/// The spool.
pub fn spool(settings: &MailSettings) -> anyhow::Result<Spool> {
    Spool::open(&settings.spool).hint("`mail.spool` says where the spool is")
}

/// Whoever makes messages and keeps none. It holds no permits: those are for what is kept.
pub async fn sealer(settings: &Settings) -> anyhow::Result<Sealer> {
    let settings = &settings.mail;
    let renderer = renderer(&settings.renderer, settings).await?;
    let compiler = Compiler::new(renderer).timeout(settings.render_timeout);
    Ok(Sealer::new(compiler, settings.includes.clone(), Arc::new(SystemClock)))
}

/// Where messages to rows are kept: compiled and put into the spool as the configuration says. Nothing is
/// opened before the first of them, for most workers write to nobody.
pub struct LazyOffice {
    settings: Settings,
    office: OnceCell<SpoolOffice>,
}

impl LazyOffice {
    /// Opens nothing yet.
    pub fn new(settings: &Settings) -> Self {
        Self { settings: settings.clone(), office: OnceCell::new() }
    }

    async fn open(&self) -> anyhow::Result<SpoolOffice> {
        let compiler = compiler(None, &self.settings).await?;
        let mail = &self.settings.mail;
        let letterbox = Letterbox::new(spool(mail)?, Arc::new(SystemClock));
        Ok(SpoolOffice::new(compiler, letterbox, mail.includes.clone(), Arc::new(SystemClock)))
    }
}

#[async_trait]
impl Office for LazyOffice {
    async fn post(&self, parcel: Parcel) -> Result<Posted, OfficeError> {
        let office = self.office.get_or_try_init(|| self.open()).await;
        let office = office.map_err(|error| OfficeError {
            code: "SPOOL_ERROR",
            message: format!("{error:#}"),
            retryable: true,
            busy: false,
        })?;
        office.post(parcel).await
    }
}

/// Whoever carries mail on.
pub fn carrier(folder: Option<&Path>, settings: &MailSettings) -> anyhow::Result<Arc<dyn Carrier>> {
    if let Some(folder) = folder.or(settings.folder.as_deref()) {
        let carrier =
            Folder::new(folder).with_context(|| format!("no folder {}", folder.display()))?;
        return Ok(Arc::new(carrier));
    }
    let server = &settings.smtp;
    let Some((host, port)) = &server.server else {
        return Err(usage("nobody says where the mail server is")).hint(
            "write [mail.smtp] server = \"HOST:PORT\" into longshore.toml, or say --folder DIR",
        );
    };
    Ok(Arc::new(Smtp::new(SmtpSettings {
        security: match server.security {
            SecurityName::None => Security::None,
            SecurityName::Starttls => Security::StartTls,
            SecurityName::Tls => Security::Tls,
        },
        authorities: server.authorities.clone(),
        credentials: credentials(server)?,
        hello: if server.hello.is_empty() { whoami::host() } else { server.hello.clone() },
        timeout: server.timeout,
        ..SmtpSettings::new(host, *port)
    })?))
}

/// Nothing that is wrong with a password is repeated.
fn credentials(server: &ServerSettings) -> anyhow::Result<Option<Credentials>> {
    if server.user.is_empty() {
        return Ok(None);
    }
    let password = match &server.password_file {
        Some(file) => std::fs::read_to_string(file)
            .with_context(|| format!("cannot read the password in {}", file.display()))?,
        None => env::secret(env::SMTP_PASSWORD).ok_or_else(|| {
            let hint =
                format!("set {}, or name a file in `mail.smtp.password_file`", env::SMTP_PASSWORD);
            hinted(usage("the mail server's password is nowhere"), hint)
        })?,
    };
    let password = password.trim_end_matches(['\r', '\n']).into();
    Ok(Some(Credentials { user: server.user.clone(), password }))
}

/// How a sender works.
pub fn sender(settings: &MailSettings) -> SenderSettings {
    let retry = RetryPolicy { max_age: Some(settings.max_age), ..Policy::default().retry };
    let on_unanswered = match settings.on_unanswered {
        Unanswered::Again => OnUnanswered::Again,
        Unanswered::Fail => OnUnanswered::Fail,
    };
    let per_domain = (settings.per_domain > 0).then(|| {
        let per_minute = f64::from(settings.per_domain);
        // What comes in ten seconds may come at once.
        DomainRate { per_minute, burst: (per_minute / 6.0).max(1.0) }
    });
    SenderSettings {
        connections: settings.smtp.connections,
        policy: Policy { retry, on_unanswered },
        per_domain,
        ..SenderSettings::default()
    }
}
