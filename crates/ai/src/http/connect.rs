//! From an address to a connection: without delays of small packets, with the machine's certificate
//! roots, and not forever.

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

/// How long a connection may take, the handshake of TLS included.
const PATIENCE: Duration = Duration::from_secs(10);

type Failure = Box<dyn Error + Send + Sync>;
type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Connects within [`PATIENCE`], or not at all.
#[derive(Clone)]
pub(super) struct Connector(HttpsConnector<HttpConnector>);

/// The connector, and why it can check no certificate, if so: a machine without certificate
/// authorities can still ask a server of its own.
pub(super) fn connector() -> (Connector, Option<Arc<str>>) {
    let (config, no_roots) = match checking() {
        Ok(config) => (config, None),
        Err(error) => (trusting_nobody(), Some(error.to_string().into())),
    };
    let mut http = HttpConnector::new();
    http.set_nodelay(true);
    http.enforce_http(false);
    let https = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1();
    (Connector(https.wrap_connector(http)), no_roots)
}

fn checking() -> Result<ClientConfig, rustls::Error> {
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(ring).with_safe_default_protocol_versions()?;
    Ok(builder.try_with_platform_verifier()?.with_no_client_auth())
}

/// Never used for a handshake: `Http` refuses before.
fn trusting_nobody() -> ClientConfig {
    // Where the binary has chosen no cryptography of its own, this chooses ring.
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
            match tokio::time::timeout(PATIENCE, connecting).await {
                Ok(connected) => connected,
                Err(_) => Err(format!("no connection within {} s", PATIENCE.as_secs()).into()),
            }
        })
    }
}
