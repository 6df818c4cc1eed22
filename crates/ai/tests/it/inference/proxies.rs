//! Profiles with a proxy or with certificate authorities of their own, against a TLS server with a
//! private authority and a CONNECT proxy on loopback.

use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use longshore_ai::Retryability;
use longshore_testkit::fake_ai::FakeAi;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::fixture::InferenceFixture;

/// A provider behind TLS, with a certificate of a private authority.
struct PrivateServer {
    fake: FakeAi,
    endpoint: String,
    /// The authority's certificate.
    ca: String,
    _serving: JoinSet<()>,
}

impl PrivateServer {
    async fn start() -> Self {
        Self::with_certificate("localhost", |_| ()).await
    }

    /// A server with a certificate for this host, which is changed before it is signed.
    async fn with_certificate(host: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut certificate = CertificateParams::new(vec![host.to_owned()]).unwrap();
        change(&mut certificate);
        let certificate = certificate.signed_by(&key, &authority).unwrap();
        Self::serve(&certificate, &key, authority.pem()).await
    }

    /// A server with a certificate of itself that is an authority's, as `openssl req -x509` makes.
    async fn self_signed() -> Self {
        let mut certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        certificate.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        Self::serve(&certificate, &key, certificate.pem()).await
    }

    async fn serve(certificate: &Certificate, key: &KeyPair, ca: String) -> Self {
        let fake = FakeAi::start().await.unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let (acceptor, target) = (TlsAcceptor::from(Arc::new(config)), fake.url().replace("http://", ""));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (plain, _) = listener.accept().await.unwrap();
                let (acceptor, target) = (acceptor.clone(), target.clone());
                connections.spawn(async move {
                    let Ok(mut client) = acceptor.accept(plain).await else { return };
                    let mut server = TcpStream::connect(target).await.unwrap();
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { fake, endpoint, ca, _serving: serving }
    }

    fn profile(&self, more: &Value) -> Value {
        let mut body = json!({
            "provider": "openai", "model": "m", "endpoint": self.endpoint, "retry": { "attempts": 1 },
        });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    }
}

/// A proxy that requires `user:secret-1`, and records the targets of its tunnels.
struct ConnectProxy {
    url: String,
    targets: Arc<Mutex<Vec<String>>>,
    _serving: JoinSet<()>,
}

impl ConnectProxy {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let targets = Arc::new(Mutex::new(Vec::new()));
        let (mut serving, seen) = (JoinSet::new(), Arc::clone(&targets));
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                connections.spawn(tunnel(client, Arc::clone(&seen)));
            }
        });
        Self { url, targets, _serving: serving }
    }
}

async fn tunnel(mut client: TcpStream, targets: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap();
    // user:secret-1
    if !head.to_lowercase().contains("proxy-authorization: basic dxnlcjpzzwnyzxqtmq==") {
        let _ = client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await;
        return;
    }
    targets.lock().unwrap().push(target.to_owned());
    let mut server = TcpStream::connect(target).await.unwrap();
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    let _ = copy_bidirectional(&mut client, &mut server).await;
}

/// A private file with a secret, as a key's reference.
fn secret_file(dir: &tempfile::TempDir, name: &str, secret: &str) -> String {
    let path = dir.path().join(name);
    std::fs::write(&path, secret).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    format!("file:{}", path.display())
}

#[tokio::test]
async fn a_private_authority_is_trusted_by_the_profile_that_names_it_and_by_no_other() {
    let (fixture, server) = (InferenceFixture::new(), PrivateServer::start().await);
    fixture.profile("acme", "inside", server.profile(&json!({ "ca": server.ca }))).await;
    fixture.profile("acme", "outside", server.profile(&json!({}))).await;
    let other = PrivateServer::start().await;
    fixture.profile("acme", "wrong", server.profile(&json!({ "ca": other.ca }))).await;
    assert_eq!(fixture.ask("acme", "inside", "hi").await.result.unwrap().text, "hi");
    for profile in ["outside", "wrong"] {
        let error = fixture.ask("acme", profile, "hi").await.result.unwrap_err();
        assert_eq!(error.retry, Retryability::NotSent, "{error}");
        assert!(error.message.contains("certificate"), "{error}");
    }
    assert_eq!(server.fake.requests().len(), 1);
}

#[tokio::test]
async fn a_self_signed_certificate_is_trusted_by_the_profile_that_names_it() {
    let (fixture, server) = (InferenceFixture::new(), PrivateServer::self_signed().await);
    fixture.profile("acme", "inside", server.profile(&json!({ "ca": server.ca }))).await;
    let other = PrivateServer::start().await;
    fixture.profile("acme", "wrong", server.profile(&json!({ "ca": other.ca }))).await;
    assert_eq!(fixture.ask("acme", "inside", "hi").await.result.unwrap().text, "hi");
    let error = fixture.ask("acme", "wrong", "hi").await.result.unwrap_err();
    assert!(error.message.contains("it is self-signed: `--ca-file`"), "{error}");
}

#[tokio::test]
async fn what_is_wrong_with_a_handshake_is_told_once_and_in_words() {
    let fixture = InferenceFixture::new();
    let trusted = PrivateServer::start().await;
    let expired = |params: &mut CertificateParams| params.not_after = date_time_ymd(2020, 1, 1);
    let future = |params: &mut CertificateParams| params.not_before = date_time_ymd(2999, 1, 1);
    let (expired, future) = (
        PrivateServer::with_certificate("localhost", expired).await,
        PrivateServer::with_certificate("localhost", future).await,
    );
    let elsewhere = PrivateServer::with_certificate("db.example", |_| ()).await;
    let (unknown, own) = (PrivateServer::start().await, PrivateServer::self_signed().await);
    let plain = trusted.fake.url().replace("http://127.0.0.1", "https://localhost");
    for (name, endpoint, ca, words) in [
        ("expired", &expired.endpoint, &expired.ca, "it has expired"),
        ("future", &future.endpoint, &future.ca, "it is not valid yet"),
        ("elsewhere", &elsewhere.endpoint, &elsewhere.ca, "it is for another host"),
        (
            "unknown",
            &unknown.endpoint,
            &trusted.ca,
            "it is issued by an authority that this machine does not trust",
        ),
        ("own", &own.endpoint, &trusted.ca, "it is self-signed: `--ca-file` with this certificate trusts it"),
        ("plain", &plain, &trusted.ca, "the server does not answer with TLS"),
    ] {
        fixture.profile("acme", name, trusted.profile(&json!({ "endpoint": endpoint, "ca": ca }))).await;
        let error = fixture.ask("acme", name, "hi").await.result.unwrap_err();
        assert_eq!(error.retry, Retryability::NotSent, "{name}: {error}");
        let prefix = if name == "plain" { "" } else { "the server's TLS certificate is rejected: " };
        assert_eq!(error.message.matches(&format!("{prefix}{words}")).count(), 1, "{name}: {error}");
        assert_eq!(error.message.matches("TLS").count(), 1, "{name}: {error}");
        let raw = ["invalid peer certificate", "InvalidCertificate", "Custom {", "client error"];
        assert!(raw.iter().all(|raw| !error.message.contains(raw)), "{name}: {error}");
    }
}

#[tokio::test]
async fn a_proxy_is_asked_for_a_tunnel_with_its_password_and_the_connection_is_kept() {
    let (fixture, server) = (InferenceFixture::new(), PrivateServer::start().await);
    let (proxy, dir) = (ConnectProxy::start().await, tempfile::tempdir().unwrap());
    let right = secret_file(&dir, "right", "user:secret-1\n");
    let wrong = secret_file(&dir, "wrong", "user:secret-2");
    let route = |key: &str| json!({ "ca": server.ca, "proxy": proxy.url, "proxy_key": key });
    fixture.profile("acme", "inside", server.profile(&route(&right))).await;
    fixture.profile("acme", "wrong", server.profile(&route(&wrong))).await;
    for prompt in ["one", "two"] {
        assert_eq!(fixture.ask("acme", "inside", prompt).await.result.unwrap().text, prompt);
        // A profile that is read again has the same client.
        fixture.inference.clear_cache();
    }
    let target = server.endpoint.replace("https://", "");
    assert_eq!(*proxy.targets.lock().unwrap(), [target], "one tunnel for both questions");
    let error = fixture.ask("acme", "wrong", "hi").await.result.unwrap_err();
    assert_eq!(error.retry, Retryability::NotSent, "{error}");
    assert!(!error.message.contains("secret-2"), "{error}");
    assert_eq!(server.fake.requests().len(), 2);
}

#[tokio::test]
async fn a_plain_endpoint_is_reached_through_the_proxy_too() {
    let (fixture, fake) = (InferenceFixture::new(), FakeAi::start().await.unwrap());
    let (proxy, dir) = (ConnectProxy::start().await, tempfile::tempdir().unwrap());
    let key = secret_file(&dir, "key", "user:secret-1");
    let body = json!({
        "provider": "openai", "model": "m", "endpoint": fake.url(), "proxy": proxy.url, "proxy_key": key,
    });
    fixture.profile("acme", "p", body).await;
    assert_eq!(fixture.ask("acme", "p", "hi").await.result.unwrap().text, "hi");
    assert_eq!(*proxy.targets.lock().unwrap(), [fake.url().replace("http://", "")]);
}
