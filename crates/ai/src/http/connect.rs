//! Connects to a provider: TCP_NODELAY, the machine's certificate roots, and a timeout.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tower_service::Service;

/// Timeout for a connection, TLS handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

type Failure = Box<dyn Error + Send + Sync>;
type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Connects within [`CONNECT_TIMEOUT`], or fails.
#[derive(Clone)]
pub(super) struct Connector(HttpsConnector<HttpConnector>);

/// The connector, and why it cannot verify certificates, if so: a machine without certificate
/// authorities can still use a server over plain HTTP.
pub(super) fn connector() -> (Connector, Option<Arc<str>>) {
    let (config, no_roots) = match verifying_config() {
        Ok(config) => (config, None),
        Err(error) => (empty_config(), Some(error.to_string().into())),
    };
    let mut http = HttpConnector::new();
    http.set_nodelay(true);
    http.enforce_http(false);
    let https = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1();
    (Connector(https.wrap_connector(http)), no_roots)
}

fn verifying_config() -> Result<ClientConfig, rustls::Error> {
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
        self.0.poll_ready(context)
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let connecting = self.0.call(address);
        Box::pin(async move {
            match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
                Ok(connected) => connected,
                Err(_) => Err(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs()).into()),
            }
        })
    }
}
