//! `ai gateway`: a tenant's profiles behind the APIs that others speak.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use longshore_ai::gateway::{Gateway, OneTenant};
use longshore_ai::{SecretString, read_secret_file};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::ai::Gateway as Typed;
use crate::commands::{connect_both, patiently};
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::inference::{asking, beside, close_books, desk};
use crate::permits;
use crate::settings::Settings;

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    let token = token(typed.token_file).await?;
    if token.is_none() && !typed.listen.ip().is_loopback() {
        let open = usage(format!("{} can be reached by others", typed.listen));
        return Err(open).hint("add --token-file FILE, or listen on 127.0.0.1");
    }
    let connected = patiently(settings, || connect_both(settings)).await?;
    let desk = desk(&connected.ledger, settings)?.with_pools(permits::book(settings).await?);
    let listener = TcpListener::bind(typed.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", typed.listen))?;
    let address = listener.local_addr()?;
    let guests = OneTenant { tenant: asking(settings), token };
    let gateway = Gateway::new(Arc::new(desk.clone()), Arc::new(guests));
    settings.output.answer(&serde_json::json!({ "listen": address }), || {
        format!("serving http://{address}/v1 for tenant `{}`", asking(settings))
    })?;
    tokio::select! {
        () = gateway.serve(listener, told_to_end()) => {}
        () = beside(&desk, &*connected.store) => {}
        () = desk.be_present(&*connected.store) => {}
    }
    close_books(&desk).await;
    desk.leave(&*connected.store).await?;
    Ok(ExitCode::Good)
}

/// The token that callers must send.
async fn token(file: Option<PathBuf>) -> anyhow::Result<Option<SecretString>> {
    Ok(match file {
        Some(file) => Some(read_secret_file(file).await?),
        None => None,
    })
}

async fn told_to_end() {
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
