//! Arguments of `longshore price …`.

use std::path::PathBuf;

use clap::Subcommand;

/// Show and replace the price table.
#[derive(Debug, Subcommand)]
pub enum PriceCommand {
    /// List the prices that profiles have where they state none
    List,
    /// Replace the price table by a newer file
    #[command(after_help = "The file is TOML, in dollars per million tokens:

  date = \"2027-02-01\"
  [models.openai]
  \"gpt-6-sol\" = { input = 2, output = 10, cache_read = 0.2, batch = 0.5 }

Models that the file does not name keep their prices.

Examples:
  longshore price update prices.toml
  longshore usage recost --since 7d --dry-run       what past calls would cost at the new prices")]
    Update {
        /// File with the table
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}
