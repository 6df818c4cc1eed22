//! The limit on PostgreSQL: pgbench sends the same two statements, without the client's own work.

use anyhow::{Context as _, Result, ensure};
use longshore_testkit::servers::PrivatePostgres;

/// The statements of `longshore-postgres`, with a random id.
const SCRIPT: &str = r"\set a random(1, 1000000000000)
\set b random(1, 1000000000000)
SELECT id, outcome, fence, waited, ahead, retry_after FROM longshore_permit_acquire('pgbench',
  lpad(to_hex(:a::bigint) || to_hex(:b::bigint), 32, '0')::uuid, 64, 1, 2::smallint, 'pgbench', 30000000, 90000000,
  30000000);
SELECT id, outcome, fence, waited, ahead, retry_after FROM longshore_permit_release('pgbench',
  ARRAY[lpad(to_hex(:a::bigint) || to_hex(:b::bigint), 32, '0')::uuid]);
";

/// Measures pairs per second with this many clients, which no commit makes wait for the disk.
pub(crate) fn run(server: &PrivatePostgres, clients: u32, seconds: f64) -> Result<f64> {
    let script = tempfile::NamedTempFile::new()?;
    std::fs::write(script.path(), SCRIPT)?;
    let mut pgbench = server.client("pgbench")?;
    pgbench.args(["--no-vacuum", "--protocol=extended", "--file"]).arg(script.path());
    // Whole seconds only.
    pgbench.arg(format!("--time={:.0}", seconds.ceil())).arg(format!("--client={clients}"));
    let output =
        pgbench.env("PGOPTIONS", "-c synchronous_commit=off").output().context("pgbench is missing")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "pgbench: {stderr}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let rate = stdout.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    rate.with_context(|| format!("pgbench reports no rate: {stdout}"))
}
