//! What changes, as it changes: the store's change feed as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use longshore::store::ChangeSet;

use crate::call::Call;
use crate::problem::Problem;
use crate::table::Answer;

/// Between two words, if there is nothing to say: so that each side knows that the other is there,
/// and a token that was revoked is noticed.
const BREATH: Duration = Duration::from_secs(15);

/// Between two looks: a busy store changes all the time, and nobody reads that fast.
const GAP: Duration = Duration::from_millis(250);

pub(super) async fn stream(call: Call) -> Answer {
    let last = call.head.headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let last = last.map(str::parse::<u64>).transpose();
    let last = last.map_err(|_| Problem::bad("`Last-Event-ID` is not one of ours"))?;
    let since = call.query::<u64>("since")?.or(last);
    // From now on, and not from the first look on.
    let since = match since {
        Some(since) => since,
        None => {
            let now = call.house.store.changes(&call.caller.scope, u64::MAX, Duration::ZERO);
            now.await?.cursor
        }
    };
    let begin = Some((call, since, true));
    let words = stream::unfold(begin, |state| async move {
        let (call, since, is_first) = state?;
        if is_first {
            return Some((hello(since), Some((call, since, false))));
        }
        let (word, since) = next(&call, since).await?;
        Some((word, Some((call, since, false))))
    });
    let mut response = Response::new(Body::from_stream(words));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

/// Says that the line is open, and from where on.
fn hello(since: u64) -> Result<Bytes, Infallible> {
    Ok(Bytes::from(format!("retry: 2000\nid: {since}\n: open\n\n")))
}

/// The next word, and where the feed goes on; `None` ends the stream.
async fn next(call: &Call, since: u64) -> Option<(Result<Bytes, Infallible>, u64)> {
    let store = &call.house.store;
    let looking = async {
        let found = store.changes(&call.caller.scope, since, BREATH).await;
        tokio::time::sleep(GAP).await;
        found
    };
    let set = tokio::select! {
        found = looking => found.ok()?,
        () = call.house.ending() => return None,
    };
    // Whoever may not ask again may not listen on.
    call.house.door.admit(&call.head, call.house.now()).await.ok()?;
    Some((Ok(word(&set)), set.cursor))
}

fn word(set: &ChangeSet) -> Bytes {
    if set.missed {
        return Bytes::from(format!("id: {}\nevent: missed\ndata: {{}}\n\n", set.cursor));
    }
    if set.changes.is_empty() {
        return Bytes::from_static(b": still here\n\n");
    }
    let topics: Vec<_> = set.changes.iter().map(|change| &change.topic).collect();
    let topics = serde_json::to_string(&topics).unwrap_or_default();
    Bytes::from(format!("id: {}\nevent: changes\ndata: {topics}\n\n", set.cursor))
}
