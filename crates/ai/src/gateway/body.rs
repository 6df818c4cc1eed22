//! Reads a request's body, up to a maximum length.

use std::error::Error;

use axum::body::{Bytes, HttpBody};
use axum::http::Request;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use super::MAX_BODY_BYTES;
use super::error::{GatewayError, GatewayErrorKind};

/// A request body: from the gateway's own connections, or from a router that it is mounted in.
pub(super) trait IncomingBody:
    HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin
{
}

impl<B> IncomingBody for B where
    B: HttpBody<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin
{
}

/// Reads the whole body. It usually arrives in one frame, which is not copied.
pub(super) async fn read_body<B: IncomingBody>(request: Request<B>) -> Result<Bytes, GatewayError> {
    let mut body = Limited::new(request.into_body(), MAX_BODY_BYTES);
    let (mut first, mut all) = (Bytes::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| body_error(&*error))?;
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

fn body_error(error: &(dyn Error + Send + Sync + 'static)) -> GatewayError {
    match error.is::<LengthLimitError>() {
        true => GatewayError::new(GatewayErrorKind::TooLarge, "the request is longer than 32 MB"),
        false => GatewayError::new(
            GatewayErrorKind::InvalidRequest,
            "the connection ended before the end of the request's body",
        ),
    }
}
