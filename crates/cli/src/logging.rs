//! Writes the log to stderr, or to daily files that are removed after a while.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;

use anyhow::Context;
use longshore_trusted_path::{check_readers, check_unwritable};
use tracing_appender::non_blocking::WorkerGuard;
use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::config::{LogConfig, LogFormat};
use crate::error::usage;
use crate::telemetry::Telemetry;

/// Keeps the log's writer alive; dropping it flushes the buffer.
#[must_use = "dropping it ends the log"]
pub struct Logging(#[expect(dead_code, reason = "held for its drop")] Option<WorkerGuard>);

/// Default filters. The PostgreSQL driver logs every closed connection and every notice; the store
/// logs what matters of it, once. The verifier of TLS certificates logs every rejected one, which the error
/// of the connection says in words. Spans of traces go to collectors only. A level that names these
/// targets overrides the filters.
const DEFAULT_FILTERS: &str = "tokio_postgres=error,rustls_platform_verifier=off,longshore::trace=off";

/// Starts logging, at level `by_default` unless the settings name one.
pub fn start(settings: &LogConfig, default_level: &str, telemetry: &Telemetry) -> anyhow::Result<Logging> {
    let level = if settings.level.is_empty() { default_level } else { &settings.level };
    let filter = EnvFilter::try_new(format!("{DEFAULT_FILTERS},{level}"))
        .map_err(|error| usage(format!("log level `{level}`: {error}")))?;
    let Some(dir) = &settings.dir else {
        install(filter, settings.format, std::io::stderr, telemetry)?;
        return Ok(Logging(None));
    };
    let cannot = || format!("cannot write logs into {}", dir.display());
    // The files get their mode from the umask, and a log may quote payloads.
    let created = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    let metadata = created.and_then(|()| dir.metadata()).with_context(cannot)?;
    check_unwritable(dir, &metadata).and_then(|()| check_readers(dir, &metadata)).with_context(cannot)?;
    let files = RollingFileAppender::builder()
        .rotation(Rotation::DAILY)
        .filename_prefix("longshore")
        .filename_suffix("log")
        .max_log_files(settings.keep)
        .build(dir)
        .with_context(cannot)?;
    let (writer, guard) = tracing_appender::non_blocking(files);
    install(filter, settings.format, writer, telemetry)?;
    Ok(Logging(Some(guard)))
}

fn install<W>(filter: EnvFilter, format: LogFormat, writer: W, telemetry: &Telemetry) -> anyhow::Result<()>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    use std::io::IsTerminal;
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines = match format {
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
        LogFormat::Human => lines.with_ansi(std::io::stderr().is_terminal()).with_target(false).boxed(),
    };
    let all = tracing_subscriber::registry().with(lines.with_filter(filter)).with(telemetry.layer());
    all.try_init().map_err(|error| anyhow::anyhow!("cannot start the log: {error}"))
}
