//! Measures the gateway's memory with many requests in flight.

use std::time::Duration;

use anyhow::Result;

use crate::child::Process;
use crate::contest::target;
use crate::figures::{Goal, Wanted};
use crate::{Args, say};

/// Sends many requests to an upstream that takes two seconds, and reads the memory meanwhile.
pub(crate) async fn measure(args: &Args) -> Result<Goal> {
    say("memory");
    let folder = tempfile::tempdir_in(&args.dir)?;
    let upstream = Process::ours(&["upstream"])?;
    let place = folder.path().join("gateway");
    let ours = Process::ours(&["gateway".as_ref(), upstream.url.as_ref(), place.as_os_str()])?;
    let crowded = target(&ours, "crowded");
    let look = async {
        let mut most = ours.megabytes()?;
        // Until every connection has sent one request and is sending the next.
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            most = most.max(ours.megabytes()?);
        }
        anyhow::Ok(most)
    };
    let asking = crowded.load(args.crowd, Duration::from_millis(2500));
    let (most, asked) = tokio::join!(look, asking);
    asked?;
    let what = format!("memory with {} in flight, MB", args.crowd);
    Ok(Goal::new(what, most?, Wanted::Under(60.0)))
}
