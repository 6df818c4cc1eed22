//! `ai gateway`: serves a tenant's profiles by the OpenAI and Anthropic APIs.

use std::sync::Arc;

use anyhow::Context;
use longshore_ai::gateway::{Gateway, SingleTenant};
use longshore_ai::{SecretString, read_secret_file};
use longshore_web::FreshToken;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::ai::GatewayArgs as Typed;
use crate::commands::{connect_with_ledger, retry_while_unavailable};
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::inference::{caller_tenant, flush, open_inference, run_background};
use crate::semaphore_backend;
use crate::settings::Settings;

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    if typed.no_auth && !typed.listen.ip().is_loopback() {
        let listen = typed.listen;
        let open =
            usage(format!("{listen} is reachable from other machines: --no-auth is for loopback only"));
        return Err(open).hint("omit --no-auth, or listen on 127.0.0.1");
    }
    if !typed.no_tls && !typed.listen.ip().is_loopback() {
        let listen = typed.listen;
        let open = usage(format!("{listen} is reachable from other machines, and `ai gateway` has no TLS"));
        return Err(open)
            .hint("`serve --tls-cert … --tls-key …` has the gateway at /v1; or say --no-tls behind a proxy");
    }
    // Printed, as no file has it.
    let fresh = (!typed.no_auth && typed.token_file.is_none()).then(FreshToken::new);
    let token = match (&fresh, typed.token_file) {
        (_, Some(file)) => Some(read_secret_file(file).await?),
        (fresh, None) => fresh.as_ref().map(|fresh| SecretString::from(fresh.expose())),
    };
    let connected = retry_while_unavailable(settings, || connect_with_ledger(settings)).await?;
    let inference =
        open_inference(&connected.ledger, settings)?.with_pools(semaphore_backend::registry(settings).await?);
    let listener = TcpListener::bind(typed.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", typed.listen))?;
    let address = listener.local_addr()?;
    let auth = SingleTenant { tenant: caller_tenant(settings), token };
    let gateway = Gateway::new(Arc::new(inference.clone()), Arc::new(auth));
    let fresh = fresh.as_ref().map(FreshToken::expose);
    settings.output.answer(&serde_json::json!({ "listen": address, "token": fresh }), || {
        format!("serving http://{address}/v1 for tenant `{}`", caller_tenant(settings))
    })?;
    if let Some(fresh) = fresh.filter(|_| !settings.output.is_json()) {
        settings.output.line(format!("token of this run: {fresh}"))?;
    }
    tokio::select! {
        () = gateway.serve(listener, stop_signal()) => {}
        () = run_background(&inference, &*connected.store) => {}
        () = inference.run_heartbeat(&*connected.store) => {}
    }
    flush(&inference).await;
    inference.close_session(&*connected.store).await?;
    Ok(ExitCode::Good)
}

async fn stop_signal() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
