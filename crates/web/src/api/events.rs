//! The store's change feed as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use longshore::store::ChangeSet;
use longshore_ai::sse;
use serde::Serialize;
use serde_json::json;

use crate::change_broadcast::ChangeBroadcast;
use crate::endpoints::ApiResult;
use crate::problem::Problem;
use crate::request_context::RequestContext;

pub(super) async fn stream(ctx: RequestContext) -> ApiResult {
    let last = ctx.head.headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let last = last.map(str::parse::<u64>).transpose();
    let last = last.map_err(|_| Problem::bad_request("`Last-Event-ID` is not a cursor"))?;
    let since = ctx.query::<u64>("since")?.or(last);
    // A reconnecting client gets the changes it missed; others start now, and not with the first poll.
    let missed = ctx.app.store.changes(&ctx.caller.scope, since.unwrap_or(u64::MAX), Duration::ZERO);
    let missed = missed.await?;
    let missed_event = since.is_some() && (missed.missed || !missed.changes.is_empty());
    let (first, since) = (first_event(missed.cursor, missed_event.then(|| event(&missed))), missed.cursor);
    // Listeners of one scope share a poll.
    let broadcast = ctx.app.broadcasts.of(&ctx.caller.scope);
    let begin = Some((ctx, broadcast, since, Some(first)));
    let events = stream::unfold(begin, |state| async move {
        let (ctx, broadcast, since, first) = state?;
        if let Some(first) = first {
            return Some((Ok::<_, Infallible>(first), Some((ctx, broadcast, since, None))));
        }
        let (event, since) = next(&ctx, &broadcast, since).await?;
        Some((Ok(event), Some((ctx, broadcast, since, None))))
    });
    let mut response = Response::new(Body::from_stream(events));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

/// The first event: the cursor, and missed changes.
fn first_event(since: u64, missed_event: Option<Bytes>) -> Bytes {
    let mut out = b"retry: 2000\n: open\n".to_vec();
    out.extend(encode(since, "begin", &json!({})));
    out.extend(missed_event.unwrap_or_default());
    out.into()
}

/// The next event and its cursor; `None` ends the stream. A keep-alive is sent now and then, so that both
/// sides notice a lost connection and a revoked token ends the stream.
async fn next(ctx: &RequestContext, broadcast: &ChangeBroadcast, since: u64) -> Option<(Bytes, u64)> {
    let set = tokio::select! {
        found = broadcast.next(&*ctx.app.store, since) => found.ok()?,
        () = ctx.app.stopped() => return None,
    };
    // A revoked token must not receive further events.
    ctx.app.auth.authenticate(&ctx.head, ctx.app.now()).await.ok()?;
    Some((event(&set), set.cursor))
}

fn event(set: &ChangeSet) -> Bytes {
    if set.missed {
        return encode(set.cursor, "missed", &json!({})).into();
    }
    if set.changes.is_empty() {
        return Bytes::from_static(b": still here\n\n");
    }
    let topics: Vec<_> = set.changes.iter().map(|change| &change.topic).collect();
    encode(set.cursor, "changes", &topics).into()
}

fn encode(cursor: u64, name: &str, body: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::new();
    sse::id(&mut out, cursor);
    sse::name(&mut out, name);
    sse::data(&mut out, body);
    out
}
