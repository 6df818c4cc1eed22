//! The fake provider as a process, for clients in other languages: prints its URL, and serves until its
//! standard input ends.

use std::io::Write;

use longshore_testkit::fake_ai::FakeAi;
use tokio::io::AsyncReadExt;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let fake = FakeAi::start().await?;
    writeln!(std::io::stdout(), "{}", fake.url())?;
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(())
}
