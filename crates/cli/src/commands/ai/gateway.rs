//! `ai gateway`: a tenant's profiles behind the APIs that others speak.

use std::sync::Arc;

use anyhow::Context;
use longshore_ai::gateway::{self, OneTenant};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::{asking, beside, desk};
use crate::args::ai::Gateway;
use crate::commands::connect_ledger_patiently;
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::settings::Settings;

/// Runs the command.
pub async fn run(typed: Gateway, settings: &Settings) -> anyhow::Result<ExitCode> {
    let token = typed.token_file.as_deref().map(longshore_ai::vault::read_secret).transpose()?;
    if token.is_none() && !typed.listen.ip().is_loopback() {
        let open = usage(format!("{} can be reached by others", typed.listen));
        return Err(open).hint("add --token-file FILE, or listen on 127.0.0.1");
    }
    let connected = connect_ledger_patiently(settings).await?;
    let desk = desk(&connected.ledger, settings)?;
    let listener = TcpListener::bind(typed.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", typed.listen))?;
    let address = listener.local_addr()?;
    let guests = OneTenant::new(asking(settings), token);
    let router = gateway::router(Arc::new(desk.clone()), Arc::new(guests));
    settings.output.answer(&serde_json::json!({ "listen": address }), || {
        format!("serving http://{address}/v1 for tenant `{}`", asking(settings))
    })?;
    let serving = axum::serve(listener, router).with_graceful_shutdown(told_to_end());
    tokio::select! {
        ended = serving => ended?,
        () = beside(&desk, &*connected.store) => {}
    }
    tokio::select! {
        () = desk.books_kept() => {}
        () = desk.keep_books() => {}
    }
    Ok(ExitCode::Good)
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
