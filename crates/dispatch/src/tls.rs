//! TLS between a server and whoever has its access file: one certificate, made at the server's first
//! start and believed because the access file names it. No names, no authorities.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};
use serde::{Deserialize, Serialize};

/// Nobody looks at it.
const CERT_SUBJECT: &str = "longshore";

/// A server's certificate and its key, as they are kept between two lives of the server.
#[derive(Clone, Serialize, Deserialize)]
pub struct ServerIdentity {
    /// In DER.
    pub certificate: Vec<u8>,
    key: Vec<u8>,
}

impl std::fmt::Debug for ServerIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity")
    }
}

impl ServerIdentity {
    /// A new one.
    pub fn generate() -> Result<Self, rcgen::Error> {
        let generated = rcgen::generate_simple_self_signed([CERT_SUBJECT.to_owned()])?;
        Ok(Self {
            certificate: generated.cert.der().to_vec(),
            key: generated.signing_key.serialize_der(),
        })
    }

    /// The server's side.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, rustls::Error> {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()));
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(self.certificate.clone())], key)?;
        Ok(Arc::new(config))
    }
}

/// The side of whoever was told the certificate.
pub fn client_config(certificate: &[u8]) -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = provider();
    let verifier =
        PinnedCertVerifier { certificate: certificate.to_vec(), provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// The name that clients send, since one must be sent.
pub fn server_name() -> ServerName<'static> {
    ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Believes one certificate.
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
        Err(rustls::Error::General("this is not the server that the access file names".into()))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3 is spoken".into()))
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
