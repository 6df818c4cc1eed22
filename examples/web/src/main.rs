//! `cargo run -p example-web [ADDRESS]`, then open the address in a browser.

use std::process::ExitCode;
use std::time::Duration;

use longshore_pool::axum::terminated;
use longshore_pool::child;
use tokio::net::TcpListener;

fn main() -> ExitCode {
    // Must come first, so that no Python process outlives this process, however it ends.
    if let Some(ended) = child::run_if_worker(|_| None) {
        return ended;
    }
    tracing_subscriber::fmt().init();
    // One thread is enough for all requests, because nothing blocks it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> anyhow::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let folder = tempfile::tempdir()?;
    let (app, pools) = example_web::open(folder.path()).await?;
    let listener = TcpListener::bind(&address).await?;
    tracing::info!("open http://{}/", listener.local_addr()?);
    let server = |stop| axum::serve(listener, app).with_graceful_shutdown(stop);
    pools.serve(terminated(), Duration::from_secs(10), server).await?;
    Ok(())
}
