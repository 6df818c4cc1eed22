//! A gateway with fake profiles, for tests of the official SDKs.
//!
//! `gateway TOKEN [ADDRESS]` listens on the loopback, prints its URL, and serves until
//! its standard input ends.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test's server")]

#[path = "../tests/it/gateway/fake_backend.rs"]
#[allow(dead_code, reason = "the tests look at the rest")]
mod fake_backend;

use std::sync::Arc;

use longshore::TenantId;
use longshore_ai::gateway::{Gateway, SingleTenant};
use tokio::io::AsyncReadExt;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let token = arguments.next().expect("a token");
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let authenticator = SingleTenant { tenant: TenantId::default(), token: Some(token.into()) };
    let gateway = Gateway::new(Arc::new(fake_backend::FakeBackend::default()), Arc::new(authenticator));
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    gateway.serve(listener, input_ended()).await;
    Ok(())
}

async fn input_ended() {
    let mut rest = Vec::new();
    let _ = tokio::io::stdin().read_to_end(&mut rest).await;
}
