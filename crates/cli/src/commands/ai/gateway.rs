//! `ai gateway`: serves a tenant's profiles by the OpenAI and Anthropic APIs.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use longshore_ai::gateway::{Gateway, SingleTenant};
use longshore_ai::{SecretString, read_secret_file};
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
    let token = token(typed.token_file).await?;
    if token.is_none() && !typed.listen.ip().is_loopback() {
        let open = usage(format!("{} is reachable from other machines", typed.listen));
        return Err(open).hint("add --token-file FILE, or listen on 127.0.0.1");
    }
    let connected = retry_while_unavailable(settings, || connect_with_ledger(settings)).await?;
    let inference =
        open_inference(&connected.ledger, settings)?.with_pools(semaphore_backend::registry(settings).await?);
    let listener = TcpListener::bind(typed.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", typed.listen))?;
    let address = listener.local_addr()?;
    let auth = SingleTenant { tenant: caller_tenant(settings), token };
    let gateway = Gateway::new(Arc::new(inference.clone()), Arc::new(auth));
    settings.output.answer(&serde_json::json!({ "listen": address }), || {
        format!("serving http://{address}/v1 for tenant `{}`", caller_tenant(settings))
    })?;
    tokio::select! {
        () = gateway.serve(listener, stop_signal()) => {}
        () = run_background(&inference, &*connected.store) => {}
        () = inference.run_heartbeat(&*connected.store) => {}
    }
    flush(&inference).await;
    inference.close_session(&*connected.store).await?;
    Ok(ExitCode::Good)
}

/// The token that clients must send.
async fn token(file: Option<PathBuf>) -> anyhow::Result<Option<SecretString>> {
    Ok(match file {
        Some(file) => Some(read_secret_file(file).await?),
        None => None,
    })
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
