//! Arguments of `longshore migrate`.

use clap::{Args, Subcommand};

/// Migrate the store's schema to the current version.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(
    after_help = "A store is created by the first command that uses it. After that, SQLite is migrated when a
newer program opens it, PostgreSQL only by this command, or with [postgres] migrate_on_open = true.
Programs of the version before keep working on the migrated store.

Examples:
  longshore migrate --plan                          the SQL, before it is run
  longshore migrate
  longshore migrate list                            which migrations are applied
  longshore migrate validate                        exit code 1 unless all are, and unchanged"
)]
pub struct MigrateArgs {
    /// Print the SQL that would be run, and run nothing
    #[arg(long)]
    pub plan: bool,
    #[command(subcommand)]
    pub command: Option<MigrateCommand>,
}

/// Commands about migrations.
#[derive(Debug, Subcommand)]
pub enum MigrateCommand {
    /// List migrations, and whether they are applied
    List,
    /// Check that all migrations are applied and unchanged
    Validate,
}
