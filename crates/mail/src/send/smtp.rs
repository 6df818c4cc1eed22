//! SMTP delivery over pooled connections.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use lettre::Address;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials as LettreCredentials, Mechanism};
use lettre::transport::smtp::client::AsyncSmtpConnection;
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use lettre::transport::smtp::response::Response;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::timeout;

use super::connection::SmtpStream;
use super::reply_class::{SmtpFailure, Stage, classify};
use super::tls::{SmtpTlsError, TlsConfig};
use super::{MailTransaction, Transport};
use crate::spool::{DeliveryOutcome, SpooledMessage};

/// How long a server may take to reply after the data (RFC 5321, 4.5.3.2.6).
const DATA_REPLY_TIMEOUT: Duration = Duration::from_secs(600);

/// How long to wait for the reply to QUIT.
const QUIT_TIMEOUT: Duration = Duration::from_secs(5);

/// How connections are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Security {
    /// No encryption: for a server on this machine.
    None,
    /// STARTTLS is required.
    #[default]
    StartTls,
    /// TLS from the first byte.
    Tls,
}

/// Login for a mail server.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The user name.
    pub user: String,
    /// The password; never logged.
    pub password: SecretString,
}

/// How to connect to a mail server.
#[derive(Debug, Clone)]
pub struct SmtpSettings {
    /// The host name.
    pub host: String,
    /// The port.
    pub port: u16,
    /// How connections are encrypted.
    pub security: Security,
    /// PEM file of certificate authorities to trust, if not the system's.
    pub authorities: Option<PathBuf>,
    /// Login, if the server requires one.
    pub credentials: Option<Credentials>,
    /// The host name sent with EHLO.
    pub hello: String,
    /// Timeout of each reply; the reply to the data has at least ten minutes.
    pub timeout: Duration,
    /// Messages per connection.
    pub max_messages: u32,
}

impl SmtpSettings {
    /// A server with STARTTLS and without login.
    pub fn new(host: &str, port: u16) -> Self {
        Self {
            host: host.to_owned(),
            port,
            security: Security::default(),
            authorities: None,
            credentials: None,
            hello: "localhost".to_owned(),
            timeout: Duration::from_secs(60),
            max_messages: 100,
        }
    }
}

/// A mail server. Cheap to clone; all clones share their connections.
#[derive(Clone)]
pub struct Smtp(Arc<SmtpInner>);

struct SmtpInner {
    settings: SmtpSettings,
    tls: Option<TlsConfig>,
    idle: Mutex<Vec<Connection>>,
}

struct Connection {
    smtp: AsyncSmtpConnection,
    messages: u32,
}

impl Smtp {
    /// Prepares TLS; connects on the first message.
    pub fn new(settings: SmtpSettings) -> Result<Self, SmtpTlsError> {
        let tls = match settings.security {
            Security::None => None,
            Security::StartTls | Security::Tls => {
                Some(TlsConfig::new(&settings.host, settings.authorities.as_deref())?)
            }
        };
        Ok(Self(Arc::new(SmtpInner { settings, tls, idle: Mutex::default() })))
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self) -> Result<Connection, SmtpFailure> {
        let SmtpInner { settings, tls, .. } = &*self.0;
        let SmtpSettings { host, port, security, hello, .. } = settings;
        let connect = async {
            let stream = SmtpStream::connect(host, *port, *security, tls.as_ref(), hello).await;
            let stream = stream.map_err(|error| SmtpFailure { code: None, text: error.to_string() })?;
            let hello = ClientId::Domain(hello.clone());
            let smtp = AsyncSmtpConnection::connect_with_transport(Box::new(stream), &hello).await;
            let mut smtp = smtp.map_err(|error| smtp_failure(&error))?;
            if let Some(Credentials { user, password }) = &settings.credentials {
                let login = LettreCredentials::new(user.clone(), password.expose_secret().to_owned());
                let reply = smtp.auth(&[Mechanism::Plain, Mechanism::Login], &login).await;
                reply.map_err(|error| smtp_failure(&error))?;
            }
            Ok(Connection { smtp, messages: 0 })
        };
        self.with_timeout(connect).await.map_err(|SmtpFailure { code, text }| SmtpFailure {
            code,
            text: format!("{host}:{port}: {text}"),
        })
    }

    async fn with_timeout<T>(
        &self,
        work: impl Future<Output = Result<T, SmtpFailure>>,
    ) -> Result<T, SmtpFailure> {
        timed(self.0.settings.timeout, work).await
    }

    /// Sends MAIL FROM, RCPT TO and DATA, and returns which recipients were accepted. If none was, returns a
    /// failure: a temporary one if any recipient's was.
    async fn send_envelope(
        &self,
        connection: &mut Connection,
        message: &SpooledMessage,
    ) -> Result<RecipientReplies, SmtpFailure> {
        let smtp = &mut connection.smtp;
        let from = message.envelope.from.as_deref().map(address).transpose()?;
        let mut options = Vec::new();
        let utf8 = smtp.server_info().supports_feature(Extension::SmtpUtfEight);
        let not_supported = || SmtpFailure {
            code: Some(553),
            text: "the server does not support non-ASCII addresses".into(),
        };
        let from_non_ascii = message.envelope.from.as_ref().is_some_and(|from| !from.is_ascii());
        if from_non_ascii && !utf8 {
            return Err(not_supported());
        }
        if utf8 && (from_non_ascii || message.remaining().iter().any(|to| !to.is_ascii())) {
            options.push(MailParameter::SmtpUtfEight);
        }
        if !message.body.is_ascii() && smtp.server_info().supports_feature(Extension::EightBitMime) {
            options.push(MailParameter::Body(MailBodyParameter::EightBitMime));
        }
        // The timeout applies to each reply.
        self.with_timeout(expect_ok(smtp.command(Mail::new(from, options)))).await?;
        let mut replies = RecipientReplies::default();
        let (mut permanent, mut temporary) = (None, None);
        for to in message.remaining() {
            let reply = match address(to) {
                Ok(_) if !utf8 && !to.is_ascii() => Err(not_supported()),
                Ok(address) => {
                    self.with_timeout(expect_ok(smtp.command(Rcpt::new(address, Vec::new())))).await
                }
                Err(failure) => Err(failure),
            };
            let failure = match reply {
                Ok(()) => {
                    replies.reached.push(to.to_owned());
                    continue;
                }
                // No reply, or 421: the connection is gone.
                Err(failure) if failure.code.is_none_or(|code| code == 421) => return Err(failure),
                Err(failure) => failure,
            };
            match classify(Stage::Envelope, failure.clone()) {
                DeliveryOutcome::Refused { why } => {
                    replies.refused.push((to.to_owned(), why));
                    permanent.get_or_insert(failure);
                }
                DeliveryOutcome::Deferred { why } | DeliveryOutcome::Unanswered { why } => {
                    replies.later.push((to.to_owned(), why));
                    temporary.get_or_insert(failure);
                }
                DeliveryOutcome::Accepted { .. } | DeliveryOutcome::Partial { .. } => {}
            }
        }
        if replies.reached.is_empty()
            && let Some(failure) = temporary.or(permanent)
        {
            return Err(failure);
        }
        self.with_timeout(expect_ok(smtp.command(Data))).await?;
        Ok(replies)
    }
}

#[async_trait]
impl Transport for Smtp {
    async fn begin(&self, message: &SpooledMessage) -> Result<Box<dyn MailTransaction>, DeliveryOutcome> {
        let idle = self.idle().pop();
        if let Some(mut connection) = idle {
            match self.send_envelope(&mut connection, message).await {
                Ok(replies) => {
                    return Ok(Box::new(SmtpTransaction::new(self.clone(), connection, replies)));
                }
                // A reply concerns the message. Without one, the server closed the idle connection: connect
                // again.
                Err(failure @ SmtpFailure { code: Some(_), .. }) if failure.code != Some(421) => {
                    return Err(self.reset(connection, failure).await);
                }
                Err(_) => {}
            }
        }
        let connection = self.connect().await;
        let mut connection = connection.map_err(|failure| classify(Stage::Connect, failure))?;
        match self.send_envelope(&mut connection, message).await {
            Ok(replies) => Ok(Box::new(SmtpTransaction::new(self.clone(), connection, replies))),
            Err(failure) => Err(self.reset(connection, failure).await),
        }
    }

    /// Sends QUIT on idle connections.
    async fn close(&self) {
        let idle = std::mem::take(&mut *self.idle());
        join_all(idle.into_iter().map(Connection::quit)).await;
    }
}

impl Connection {
    async fn quit(mut self) {
        // The connection is closed in any case.
        let _ = timeout(QUIT_TIMEOUT, self.smtp.quit()).await;
    }
}

impl Smtp {
    /// Resets a failed transaction, and keeps the connection if the server confirms the reset.
    async fn reset(&self, mut connection: Connection, failure: SmtpFailure) -> DeliveryOutcome {
        let reset = self.with_timeout(async {
            connection.smtp.command("RSET\r\n").await.map_err(|error| smtp_failure(&error))
        });
        if failure.code.is_some() && reset.await.is_ok() {
            self.return_to_pool(connection).await;
        }
        classify(Stage::Envelope, failure)
    }

    async fn return_to_pool(&self, connection: Connection) {
        match connection.messages < self.0.settings.max_messages {
            true => self.idle().push(connection),
            false => connection.quit().await,
        }
    }
}

/// The server's replies for each recipient.
#[derive(Debug, Default)]
struct RecipientReplies {
    reached: Vec<String>,
    refused: Vec<(String, String)>,
    later: Vec<(String, String)>,
}

/// A connection on which the server waits for the data.
struct SmtpTransaction {
    smtp: Smtp,
    connection: Connection,
    replies: RecipientReplies,
    /// Whether the server replied to the data, so that the connection can be used again.
    replied: bool,
}

impl SmtpTransaction {
    fn new(smtp: Smtp, connection: Connection, replies: RecipientReplies) -> Self {
        Self { smtp, connection, replies, replied: false }
    }
}

#[async_trait]
impl MailTransaction for SmtpTransaction {
    async fn send_data(&mut self, message: &SpooledMessage) -> DeliveryOutcome {
        let sent = async {
            let answer = self.connection.smtp.message(&message.body).await;
            answer.map_err(|error| smtp_failure(&error))
        };
        // A timeout that is too short would resend a delivered message.
        let limit = self.smtp.0.settings.timeout.max(DATA_REPLY_TIMEOUT);
        match timed(limit, sent).await {
            Ok(answer) => {
                self.connection.messages += 1;
                self.replied = true;
                let text = answer.message().collect::<Vec<_>>().join(" ");
                let answer = format!("{} {text}", answer.code());
                let RecipientReplies { reached, refused, later } = std::mem::take(&mut self.replies);
                match refused.is_empty() && later.is_empty() {
                    true => DeliveryOutcome::Accepted { answer },
                    false => DeliveryOutcome::Partial { answer, reached, refused, later },
                }
            }
            Err(failure) => {
                self.replied = failure.code.is_some();
                classify(Stage::Data, failure)
            }
        }
    }

    async fn close(self: Box<Self>) {
        if self.replied {
            self.smtp.return_to_pool(self.connection).await;
        }
    }
}

/// Sends a command and expects a positive reply.
async fn expect_ok(command: impl Future<Output = Result<Response, Error>>) -> Result<(), SmtpFailure> {
    command.await.map(drop).map_err(|error| smtp_failure(&error))
}

async fn timed<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, SmtpFailure>>,
) -> Result<T, SmtpFailure> {
    let timed_out = |_| SmtpFailure { code: None, text: format!("no reply within {limit:?}") };
    timeout(limit, work).await.map_err(timed_out)?
}

fn address(text: &str) -> Result<Address, SmtpFailure> {
    // The code for an invalid mailbox, which is permanent.
    text.parse().map_err(|_| SmtpFailure { code: Some(553), text: format!("`{text}` is no address") })
}

fn smtp_failure(error: &Error) -> SmtpFailure {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let text: Vec<String> = causes.map(ToString::to_string).collect();
    let text = if text.is_empty() { error.to_string() } else { text.join(": ") };
    SmtpFailure { code: error.status().map(u16::from), text }
}
