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
use crate::feed::Feed;
use crate::problem::Problem;
use crate::table::Answer;

pub(super) async fn stream(call: Call) -> Answer {
    let last = call.head.headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let last = last.map(str::parse::<u64>).transpose();
    let last = last.map_err(|_| Problem::bad("`Last-Event-ID` is not one of ours"))?;
    let since = call.query::<u64>("since")?.or(last);
    // Who was here before hears what it missed; others begin with now, and not with the first look.
    let missed =
        call.house.store.changes(&call.caller.scope, since.unwrap_or(u64::MAX), Duration::ZERO);
    let missed = missed.await?;
    let news = since.is_some() && (missed.missed || !missed.changes.is_empty());
    let (first, since) = (hello(missed.cursor, news.then(|| word(&missed))), missed.cursor);
    // Listeners of one scope share a look.
    let feed = call.house.feeds.of(&call.caller.scope);
    let begin = Some((call, feed, since, Some(first)));
    let words = stream::unfold(begin, |state| async move {
        let (call, feed, since, first) = state?;
        if let Some(first) = first {
            return Some((Ok::<_, Infallible>(first), Some((call, feed, since, None))));
        }
        let (word, since) = next(&call, &feed, since).await?;
        Some((Ok(word), Some((call, feed, since, None))))
    });
    let mut response = Response::new(Body::from_stream(words));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

/// Says that the line is open, and from where on; and what came before.
fn hello(since: u64, news: Option<Bytes>) -> Bytes {
    let mut hello = format!("retry: 2000\nid: {since}\n: open\n\n").into_bytes();
    hello.extend_from_slice(&news.unwrap_or_default());
    hello.into()
}

/// The next word, and where the feed goes on; `None` ends the stream. There is one now and then even
/// if nothing changes: so that each side knows that the other is there, and a token that was revoked is
/// noticed.
async fn next(call: &Call, feed: &Feed, since: u64) -> Option<(Bytes, u64)> {
    let set = tokio::select! {
        found = feed.next(&*call.house.store, since) => found.ok()?,
        () = call.house.ending() => return None,
    };
    // Whoever may not ask again may not listen on.
    call.house.door.admit(&call.head, call.house.now()).await.ok()?;
    Some((word(&set), set.cursor))
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
