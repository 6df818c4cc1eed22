//! Mutations of a mail server's replies: delivered, retried or failed, never a panic.

use std::sync::Arc;
use std::time::Duration;

use longshore_mail::send::{Security, Smtp, SmtpSettings};
use longshore_mail::spool::Spool;
use longshore_testkit::fuzz;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{letter, now, send};

#[test]
fn fuzz_smtp_replies() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    fuzz(env!("CARGO_MANIFEST_DIR"), "smtp", |bytes| {
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let spool = Spool::open(folder.path()).unwrap();
            spool.enqueue(&[letter("a@example.org", "a")], now()).unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let settings = SmtpSettings {
                security: Security::None,
                timeout: Duration::from_secs(2),
                ..SmtpSettings::new("127.0.0.1", port)
            };
            let smtp = Arc::new(Smtp::new(settings).unwrap());
            let serving = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                // All replies at once; the client may close before it has read them.
                let _ = stream.write_all(bytes).await;
                let _ = stream.shutdown().await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            };
            let (report, ()) = tokio::join!(send(&spool, smtp), serving);
            assert_eq!(report.sent + report.retried + report.failed, 1, "{report:?}");
        });
    });
}
