//! A request's body, whole and not too long.

use std::error::Error;

use axum::body::{Bytes, HttpBody};
use axum::http::Request;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use super::LONGEST;
use super::refusal::{Refusal, Why};

/// A body that comes: over a connection of ours, or through somebody's router.
pub(super) trait Incoming:
    HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin
{
}

impl<B> Incoming for B where
    B: HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin
{
}

/// All of it. Mostly it comes in one piece, which is then not copied.
pub(super) async fn whole_body<B: Incoming>(request: Request<B>) -> Result<Bytes, Refusal> {
    let mut body = Limited::new(request.into_body(), LONGEST);
    let (mut first, mut all) = (Bytes::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| refusal(&*error))?;
        let Ok(bytes) = frame.into_data() else { continue };
        if first.is_empty() && all.is_empty() {
            first = bytes;
        } else {
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&bytes);
        }
    }
    Ok(if all.is_empty() { first } else { all.into() })
}

fn refusal(error: &(dyn Error + Send + Sync + 'static)) -> Refusal {
    match error.is::<LengthLimitError>() {
        true => Refusal::new(Why::TooLong, "the request is longer than 32 MB"),
        false => Refusal::new(Why::Malformed, "the request's body did not come whole"),
    }
}
