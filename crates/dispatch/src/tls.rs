//! TLS with a pinned certificate: the server generates it at its first start, and peers accept
//! exactly the one in the access file. Host names and authorities play no part.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};
use serde::{Deserialize, Serialize};

/// Certificates need a subject; peers ignore it.
const CERT_SUBJECT: &str = "longshore";

/// The server's certificate and private key, kept across restarts.
#[derive(Clone, Serialize, Deserialize)]
pub struct ServerIdentity {
    /// The certificate in DER.
    pub certificate: Vec<u8>,
    key: Vec<u8>,
}

impl std::fmt::Debug for ServerIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity")
    }
}

impl ServerIdentity {
    /// Generates a certificate and its key.
    pub fn generate() -> Result<Self, rcgen::Error> {
        let generated = rcgen::generate_simple_self_signed([CERT_SUBJECT.to_owned()])?;
        Ok(Self { certificate: generated.cert.der().to_vec(), key: generated.signing_key.serialize_der() })
    }

    /// The TLS configuration of the server.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, rustls::Error> {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()));
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(self.certificate.clone())], key)?;
        Ok(Arc::new(config))
    }
}

/// The TLS configuration of a peer that accepts only `certificate`.
pub fn client_config(certificate: &[u8]) -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = provider();
    let verifier = PinnedCertVerifier { certificate: certificate.to_vec(), provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// The server name that TLS requires a client to send; the server ignores it.
pub fn server_name() -> ServerName<'static> {
    ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Accepts one certificate.
#[derive(Debug)]
struct PinnedCertVerifier {
    certificate: Vec<u8>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedCertVerifier {
    fn verify_server_cert(
        &self,
        presented: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if presented.as_ref() == self.certificate {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::Error::General("the certificate is not the one in the access file".into()))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3 is supported".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
