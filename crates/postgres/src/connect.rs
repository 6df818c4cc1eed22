//! Where the database is, and the connections to it.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::QueueMode;
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime, Timeouts};
use longshore_core::{Clock, Error, Result, SystemClock};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::Translate;

/// How others' commits are heard of.
#[derive(Clone, PartialEq, Eq, Default)]
pub enum Listen {
    /// On a connection of its own to the store's URL, if a trial shows that notices arrive there
    /// (behind a transaction pooler they do not); else by polling.
    #[default]
    Auto,
    /// On a connection to this URL, which must lead to the server itself.
    At(String),
    /// Only by polling.
    Off,
}

impl std::fmt::Debug for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the URL: it may hold a password.
        f.write_str(match self {
            Self::Auto => "Auto",
            Self::At(_) => "At(…)",
            Self::Off => "Off",
        })
    }
}

/// Whose clock ends a leader's term and says which schedules are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Terms {
    /// The server's, which all processes share: their own may be set wrongly.
    #[default]
    Server,
    /// The store's own, where a test moves it.
    Own,
}

/// How a store is opened.
#[derive(Clone)]
pub struct PostgresOptions {
    /// Connections at most, not counting the one that listens.
    pub connections: usize,
    /// How others' commits are heard of.
    pub listen: Listen,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// What is decided by the server's clock all the same.
    pub terms: Terms,
    /// How long a verb may take, waits for a connection and for locks included.
    pub patience: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            connections: 8,
            listen: Listen::Auto,
            clock: Arc::new(SystemClock),
            terms: Terms::default(),
            patience: Duration::from_secs(30),
        }
    }
}

impl std::fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { connections, patience, .. } = self;
        // Not the URL that is listened at: it may hold a password.
        write!(f, "PostgresOptions({connections} connections, {patience:?})")
    }
}

/// Reads a URL. The text itself is never part of an error: it may hold a password.
pub(crate) fn config(url: &str) -> Result<Config> {
    let mut config = Config::from_str(url)
        .map_err(|error| Error::Invalid(format!("not a PostgreSQL URL: {error}")))?;
    if config.get_application_name().is_none() {
        config.application_name("longshore");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(5));
    }
    // A network that swallows packets must not hold a worker for the quarter of an hour that TCP
    // would try: found dead within seconds, idle or in the middle of an answer.
    config.keepalives_idle(Duration::from_secs(5));
    config.keepalives_interval(Duration::from_secs(2));
    config.keepalives_retries(3);
    config.tcp_user_timeout(Duration::from_secs(10));
    Ok(config)
}

/// TLS as elsewhere in Longshore: rustls on ring. With `sslmode=require` and `prefer` the server's
/// certificate is not checked, as in every PostgreSQL client; `PGSSLROOTCERT` is not read here.
pub(crate) fn tls() -> Result<MakeRustlsConnect> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(trust::AnyCertificate::new(Arc::clone(&provider)));
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::unavailable(format!("no TLS: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(client))
}

/// Runs one statement on a connection of its own, outside a transaction: `CREATE DATABASE` takes
/// none.
pub async fn run_statement(url: &str, sql: &str) -> Result<()> {
    let (client, connection) = config(url)?.connect(tls()?).await.or_translate()?;
    tokio::select! {
        answer = client.batch_execute(sql) => answer.or_translate(),
        _ = connection => Err(Error::unavailable("the connection to PostgreSQL was lost")),
    }
}

/// A pool of connections.
pub(crate) fn pool(config: Config, options: &PostgresOptions) -> Result<Pool> {
    let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = match config.get_ssl_mode() {
        SslMode::Disable => Manager::from_config(config, tokio_postgres::NoTls, manager_config),
        _ => Manager::from_config(config, tls()?, manager_config),
    };
    let wait = Some(options.patience);
    Pool::builder(manager)
        .max_size(options.connections.max(1))
        // The one that was last used: the server has its plans made there, and its pages at hand.
        .queue_mode(QueueMode::Lifo)
        .timeouts(Timeouts { wait, create: wait, recycle: wait })
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(|error| Error::unavailable(format!("no pool of connections: {error}")))
}

/// What `sslmode=require` means everywhere: encrypted, whoever it is.
mod trust {
    use std::sync::Arc;

    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{DigitallySignedStruct, Error, SignatureScheme};

    #[derive(Debug)]
    pub(super) struct AnyCertificate {
        provider: Arc<CryptoProvider>,
    }

    impl AnyCertificate {
        pub(super) fn new(provider: Arc<CryptoProvider>) -> Self {
            Self { provider }
        }
    }

    impl ServerCertVerifier for AnyCertificate {
        fn verify_server_cert(
            &self,
            _end_entity: &CertificateDer<'_>,
            _intermediates: &[CertificateDer<'_>],
            _server_name: &ServerName<'_>,
            _ocsp_response: &[u8],
            _now: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            verify_tls12_signature(message, certificate, signature, algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            verify_tls13_signature(message, certificate, signature, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider.signature_verification_algorithms.supported_schemes()
        }
    }
}
