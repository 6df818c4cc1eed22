//! A mail server, spoken to over connections that stay.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use lettre::Address;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials as Known, Mechanism};
use lettre::transport::smtp::client::AsyncSmtpConnection;
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use lettre::transport::smtp::response::Response;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::timeout;

use super::answer::{Stage, Trouble, outcome};
use super::stream::Stream;
use super::tls::{Tls, TlsError};
use super::{Carrier, Offered};
use crate::spool::{Message, Outcome};

/// How long a server may look at a message before it answers (RFC 5321, 4.5.3.2.6).
const LAST_ANSWER: Duration = Duration::from_secs(600);

/// How long a server has for a word of goodbye.
const GOODBYE: Duration = Duration::from_secs(5);

/// How a connection is secured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Security {
    /// Not at all: for a server on this machine.
    None,
    /// By STARTTLS, and never without.
    #[default]
    StartTls,
    /// From the first byte.
    Tls,
}

/// Who we are to a server.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The account.
    pub user: String,
    /// Its password, which is never shown.
    pub password: SecretString,
}

/// A mail server and how to speak to it.
#[derive(Debug, Clone)]
pub struct SmtpSettings {
    /// Its name.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How connections are secured.
    pub security: Security,
    /// Authorities that its certificate may be signed by, if not the system's.
    pub authorities: Option<PathBuf>,
    /// Who we are, if it asks.
    pub credentials: Option<Credentials>,
    /// The name by which we greet.
    pub hello: String,
    /// How long any one answer may take; that to a whole message at least ten minutes.
    pub timeout: Duration,
    /// Messages after which a connection is made anew.
    pub max_messages: u32,
}

impl SmtpSettings {
    /// A server, by STARTTLS, without credentials.
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
pub struct Smtp(Arc<Inner>);

struct Inner {
    settings: SmtpSettings,
    tls: Option<Tls>,
    idle: Mutex<Vec<Connection>>,
}

struct Connection {
    smtp: AsyncSmtpConnection,
    messages: u32,
}

impl Smtp {
    /// Connects to nothing yet.
    pub fn new(settings: SmtpSettings) -> Result<Self, TlsError> {
        let tls = match settings.security {
            Security::None => None,
            Security::StartTls | Security::Tls => {
                Some(Tls::new(&settings.host, settings.authorities.as_deref())?)
            }
        };
        Ok(Self(Arc::new(Inner { settings, tls, idle: Mutex::default() })))
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self) -> Result<Connection, Trouble> {
        let Inner { settings, tls, .. } = &*self.0;
        let SmtpSettings { host, port, security, hello, .. } = settings;
        let all = async {
            let stream = Stream::connect(host, *port, *security, tls.as_ref(), hello).await;
            let stream =
                stream.map_err(|error| Trouble { code: None, words: error.to_string() })?;
            let hello = ClientId::Domain(hello.clone());
            let smtp = AsyncSmtpConnection::connect_with_transport(Box::new(stream), &hello).await;
            let mut smtp = smtp.map_err(|error| trouble(&error))?;
            if let Some(Credentials { user, password }) = &settings.credentials {
                let known = Known::new(user.clone(), password.expose_secret().to_owned());
                let said = smtp.auth(&[Mechanism::Plain, Mechanism::Login], &known).await;
                said.map_err(|error| trouble(&error))?;
            }
            Ok(Connection { smtp, messages: 0 })
        };
        self.in_time(all).await.map_err(|Trouble { code, words }| Trouble {
            code,
            words: format!("{host}:{port}: {words}"),
        })
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        within(self.0.settings.timeout, work).await
    }

    /// From whom, to whom, and the word that the message comes; who was turned away while others were not.
    /// If all were, it is not offered: as a whole it may be tried again if any of them may.
    async fn announce(
        &self,
        connection: &mut Connection,
        message: &Message,
    ) -> Result<Turned, Trouble> {
        let smtp = &mut connection.smtp;
        let from = message.envelope.from.as_deref().map(address).transpose()?;
        let mut options = Vec::new();
        let utf8 = smtp.server_info().supports_feature(Extension::SmtpUtfEight);
        let odd = || Trouble { code: Some(553), words: "the server takes no such address".into() };
        let from_odd = message.envelope.from.as_ref().is_some_and(|from| !from.is_ascii());
        if from_odd && !utf8 {
            return Err(odd());
        }
        if utf8 && (from_odd || message.left().iter().any(|to| !to.is_ascii())) {
            options.push(MailParameter::SmtpUtfEight);
        }
        if !message.body.is_ascii() && smtp.server_info().supports_feature(Extension::EightBitMime)
        {
            options.push(MailParameter::Body(MailBodyParameter::EightBitMime));
        }
        // Each answer has its own time.
        self.in_time(told(smtp.command(Mail::new(from, options)))).await?;
        let mut turned = Turned::default();
        let (mut for_ever, mut for_now) = (None, None);
        for to in message.left() {
            let said = match address(to) {
                Ok(_) if !utf8 && !to.is_ascii() => Err(odd()),
                Ok(address) => {
                    self.in_time(told(smtp.command(Rcpt::new(address, Vec::new())))).await
                }
                Err(trouble) => Err(trouble),
            };
            let trouble = match said {
                Ok(()) => {
                    turned.reached.push(to.to_owned());
                    continue;
                }
                // Without a word, or with the last one, there is no conversation any more.
                Err(trouble) if trouble.code.is_none_or(|code| code == 421) => return Err(trouble),
                Err(trouble) => trouble,
            };
            match outcome(Stage::Offering, trouble.clone()) {
                Outcome::Refused { why } => {
                    turned.refused.push((to.to_owned(), why));
                    for_ever.get_or_insert(trouble);
                }
                Outcome::Deferred { why } | Outcome::Unanswered { why } => {
                    turned.later.push((to.to_owned(), why));
                    for_now.get_or_insert(trouble);
                }
                Outcome::Taken { .. } | Outcome::Partly { .. } => {}
            }
        }
        if turned.reached.is_empty()
            && let Some(trouble) = for_now.or(for_ever)
        {
            return Err(trouble);
        }
        self.in_time(told(smtp.command(Data))).await?;
        Ok(turned)
    }
}

#[async_trait]
impl Carrier for Smtp {
    async fn offer(&self, message: &Message) -> Result<Box<dyn Offered>, Outcome> {
        let waiting = self.idle().pop();
        if let Some(mut connection) = waiting {
            match self.announce(&mut connection, message).await {
                Ok(turned) => return Ok(Box::new(Open { smtp: self.clone(), connection, turned })),
                // A server that spoke means the message; one that is gone did not like to wait.
                Err(trouble @ Trouble { code: Some(_), .. }) if trouble.code != Some(421) => {
                    return Err(self.refused(connection, trouble).await);
                }
                Err(_) => {}
            }
        }
        let connection = self.connect().await;
        let mut connection = connection.map_err(|trouble| outcome(Stage::Connecting, trouble))?;
        match self.announce(&mut connection, message).await {
            Ok(turned) => Ok(Box::new(Open { smtp: self.clone(), connection, turned })),
            Err(trouble) => Err(self.refused(connection, trouble).await),
        }
    }

    /// Says goodbye on connections that wait.
    async fn close(&self) {
        let idle = std::mem::take(&mut *self.idle());
        join_all(idle.into_iter().map(Connection::quit)).await;
    }
}

impl Connection {
    async fn quit(mut self) {
        // It ends either way.
        let _ = timeout(GOODBYE, self.smtp.quit()).await;
    }
}

impl Smtp {
    /// An offer that was not accepted leaves the connection as it was, if the server takes it back.
    async fn refused(&self, mut connection: Connection, trouble: Trouble) -> Outcome {
        let reset = self.in_time(async {
            connection.smtp.command("RSET\r\n").await.map_err(|error| self::trouble(&error))
        });
        if trouble.code.is_some() && reset.await.is_ok() {
            self.keep(connection).await;
        }
        outcome(Stage::Offering, trouble)
    }

    async fn keep(&self, connection: Connection) {
        match connection.messages < self.0.settings.max_messages {
            true => self.idle().push(connection),
            false => connection.quit().await,
        }
    }
}

/// Who is to get a message, and who was turned away.
#[derive(Debug, Default)]
struct Turned {
    reached: Vec<String>,
    refused: Vec<(String, String)>,
    later: Vec<(String, String)>,
}

/// A connection on which a message is awaited.
struct Open {
    smtp: Smtp,
    connection: Connection,
    turned: Turned,
}

#[async_trait]
impl Offered for Open {
    async fn hand_over(mut self: Box<Self>, message: &Message) -> Outcome {
        let sent = async {
            let answer = self.connection.smtp.message(&message.body).await;
            answer.map_err(|error| trouble(&error))
        };
        // Who gives up too early sends again what has arrived.
        let limit = self.smtp.0.settings.timeout.max(LAST_ANSWER);
        match within(limit, sent).await {
            Ok(answer) => {
                self.connection.messages += 1;
                self.smtp.keep(self.connection).await;
                let words = answer.message().collect::<Vec<_>>().join(" ");
                let answer = format!("{} {words}", answer.code());
                let Turned { reached, refused, later } = self.turned;
                match refused.is_empty() && later.is_empty() {
                    true => Outcome::Taken { answer },
                    false => Outcome::Partly { answer, reached, refused, later },
                }
            }
            Err(trouble) => {
                if trouble.code.is_some() {
                    self.smtp.keep(self.connection).await;
                }
                outcome(Stage::HandedOver, trouble)
            }
        }
    }
}

/// A command that was answered well.
async fn told(command: impl Future<Output = Result<Response, Error>>) -> Result<(), Trouble> {
    command.await.map(drop).map_err(|error| trouble(&error))
}

async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, Trouble> {
    let late = |_| Trouble { code: None, words: format!("no answer within {limit:?}") };
    timeout(limit, work).await.map_err(late)?
}

fn address(text: &str) -> Result<Address, Trouble> {
    // As a server would say it: for ever.
    text.parse().map_err(|_| Trouble { code: Some(553), words: format!("`{text}` is no address") })
}

fn trouble(error: &Error) -> Trouble {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let words: Vec<String> = causes.map(ToString::to_string).collect();
    let words = if words.is_empty() { error.to_string() } else { words.join(": ") };
    Trouble { code: error.status().map(u16::from), words }
}
