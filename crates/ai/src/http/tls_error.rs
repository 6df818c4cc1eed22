//! TLS errors in words.

use std::error::Error;
use std::io;

use rustls::CertificateError;

/// The TLS error in the causes of an error, in words. I/O errors carry it without naming it as their
/// source.
pub fn tls_error(error: &(dyn Error + 'static)) -> Option<String> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let found = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(found) = found.or_else(|| error.downcast_ref()) {
            return Some(describe(found));
        }
        cause = match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

fn describe(error: &rustls::Error) -> String {
    let why = match error {
        rustls::Error::InvalidCertificate(why) => why,
        rustls::Error::InvalidMessage(_) => return "the server does not answer with TLS".to_owned(),
        rustls::Error::AlertReceived(alert) => {
            return format!("the server rejected the TLS handshake: {alert:?}");
        }
        other => return format!("the TLS handshake failed: {other}"),
    };
    let why = match why {
        // The latter: of an authority with the name of a trusted one and another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "it is issued by an authority that this machine does not trust".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another host".to_owned()
        }
        CertificateError::Revoked => "it was revoked".to_owned(),
        other if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "it is self-signed: `--ca-file` with this certificate trusts it".to_owned()
        }
        other => other.to_string(),
    };
    format!("the server's TLS certificate is rejected: {why}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_tls_error_is_told_once_and_in_words() {
        let unknown = || rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let words = "the server's TLS certificate is rejected: it is issued by an authority that this \
                     machine does not trust";
        for error in [io::Error::other(unknown()), io::Error::other(io::Error::other(unknown()))] {
            assert_eq!(tls_error(&error).as_deref(), Some(words));
        }
        assert_eq!(tls_error(&unknown()).as_deref(), Some(words));
        assert_eq!(tls_error(&io::Error::other("refused")), None);
        let self_signed = rustls::OtherError(Arc::new(io::Error::other("CaUsedAsEndEntity")));
        let self_signed = rustls::Error::InvalidCertificate(CertificateError::Other(self_signed));
        assert!(tls_error(&self_signed).is_some_and(|words| words.contains("it is self-signed: ")));
    }
}
