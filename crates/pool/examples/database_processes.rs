//! A database with connections in child processes, so that a driver may crash:
//! `cargo run -p longshore-pool --features sqlite --example database_processes`.

use std::process::ExitCode;
use std::time::Duration;

use longshore_pool::database::{self, Db, DbIsolation, DbOptions};
use longshore_pool::{child, params};

fn main() -> ExitCode {
    // Must come first: as a worker, this process does nothing else.
    if let Some(ended) = child::run_if_worker(database::of_worker) {
        return ended;
    }
    let done = tokio::runtime::Runtime::new().map_err(Into::into);
    match done.and_then(|runtime| runtime.block_on(run())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("harbour-{}.db", std::process::id()));
    let options = DbOptions::default()
        .isolation(DbIsolation::Processes(None))
        .create_if_missing()
        .init("PRAGMA journal_mode = wal");
    let db = Db::sqlite(&path, options).await?;
    db.execute("CREATE TABLE ship (name TEXT)", []).await?;
    db.insert("INSERT INTO ship (name) VALUES (?)", params!["Erika"]).await?;
    let ships = db.select_col("SELECT name FROM ship", []).await?;
    tracing::info!(?ships);
    db.close(Duration::from_secs(5)).await;
    std::fs::remove_file(path)?;
    Ok(())
}
