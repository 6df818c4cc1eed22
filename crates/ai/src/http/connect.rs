//! Connects to a provider, directly or through a proxy's tunnel: TCP_NODELAY, certificate roots, and
//! a timeout.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tower_service::Service;

use super::HttpOptions;

/// Timeout for a connection, TLS handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

type Failure = Box<dyn Error + Send + Sync>;
type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Connects within [`CONNECT_TIMEOUT`], or fails.
#[derive(Clone)]
pub(super) enum Connector {
    /// To the provider.
    Direct(HttpsConnector<HttpConnector>),
    /// To a proxy that connects to the provider (`CONNECT`): it sees the host, and no more.
    Proxy(HttpsConnector<Tunnel<HttpConnector>>),
}

/// The connector, and why it cannot verify certificates, if so: a machine without certificate
/// authorities can still use a server over plain HTTP.
pub(super) fn connector(options: &HttpOptions) -> (Connector, Option<Arc<str>>) {
    let (config, no_roots) = match verifying_config(options) {
        Ok(config) => (config, None),
        Err(error) => (empty_config(), Some(error.to_string().into())),
    };
    let mut http = HttpConnector::new();
    http.set_nodelay(true);
    http.enforce_http(false);
    let https = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1();
    let connector = match &options.proxy {
        None => Connector::Direct(https.wrap_connector(http)),
        Some(proxy) => {
            let tunnel = Tunnel::new(proxy.clone(), http);
            let authorization = options.proxy_authorization();
            let tunnel = match authorization {
                Some(value) => tunnel.with_auth(value),
                None => tunnel,
            };
            Connector::Proxy(https.wrap_connector(tunnel))
        }
    };
    (connector, no_roots)
}

fn verifying_config(options: &HttpOptions) -> Result<ClientConfig, Failure> {
    if let Some(config) = options.tls_config()? {
        return Ok(config);
    }
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(ring).with_safe_default_protocol_versions()?;
    Ok(builder.try_with_platform_verifier()?.with_no_client_auth())
}

/// Never used for a handshake: `Http` rejects the request before.
fn empty_config() -> ClientConfig {
    // If the binary has not installed a cryptography provider, this installs ring.
    let _ = rustls::crypto::ring::default_provider().install_default();
    ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth()
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, Failure>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        match self {
            Self::Direct(direct) => direct.poll_ready(context),
            Self::Proxy(proxy) => proxy.poll_ready(context),
        }
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let connecting = match self {
            Self::Direct(direct) => direct.call(address),
            Self::Proxy(proxy) => proxy.call(with_port(address)),
        };
        Box::pin(async move {
            match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
                Ok(connected) => connected,
                Err(_) => Err(super::no_connection(CONNECT_TIMEOUT).into()),
            }
        })
    }
}

/// A tunnel's default port is that of HTTPS.
fn with_port(address: Uri) -> Uri {
    let Some(host) = address.host().filter(|_| address.scheme_str() == Some("http")) else { return address };
    if address.port().is_some() {
        return address;
    }
    Uri::builder()
        .scheme("http")
        .authority(format!("{host}:80"))
        .path_and_query("/")
        .build()
        .unwrap_or(address)
}
