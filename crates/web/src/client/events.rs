//! Reads the server-sent events of the change feed.

use std::time::Duration;

use longshore::store::{Change, ChangeSet, Topic};
use longshore_ai::sse::{DecodedEvent, EventDecoder, Framing};
use reqwest::Response;
use tokio::time::Instant;

use super::config::RESPONSE_TIMEOUT;
use super::request::{ApiRequest, not_longshore};
use super::{ApiClient, ApiError};

/// Maximum size of an event.
const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

/// An open event stream.
pub struct Events {
    api: ApiClient,
    response: Response,
    decoder: EventDecoder,
    cursor: u64,
}

impl ApiClient {
    /// Opens an event stream, from after `since` or from now on.
    pub async fn events(&self, since: Option<u64>) -> Result<Events, ApiError> {
        let request = self.build(&ApiRequest::new("events").query("since", since))?;
        let opened = tokio::time::timeout(RESPONSE_TIMEOUT, self.send_checked(request)).await;
        let response =
            opened.unwrap_or_else(|_| Err(not_longshore(&self.url, "it does not respond".into())))?;
        let (api, decoder) = (self.clone(), EventDecoder::new(Framing::Sse));
        let mut events = Events { api, response, decoder, cursor: since.unwrap_or_default() };
        // The first event has the cursor.
        let first = events.next_event(Instant::now() + RESPONSE_TIMEOUT).await?;
        let cursor = first.and_then(|first| first.id.parse().ok());
        let missing = || not_longshore(&self.url, "its event stream does not begin".into());
        events.cursor = cursor.ok_or_else(missing)?;
        Ok(events)
    }
}

impl Events {
    /// The current cursor.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Waits for the next changes; empty after `wait`. Cancel-safe.
    pub async fn next(&mut self, wait: Duration) -> Result<ChangeSet, ApiError> {
        let until = Instant::now() + wait;
        loop {
            let Some(event) = self.next_event(until).await? else {
                return Ok(ChangeSet { cursor: self.cursor, ..ChangeSet::default() });
            };
            self.cursor = event.id.parse().unwrap_or(self.cursor);
            let cursor = self.cursor;
            match event.name.as_str() {
                "missed" => return Ok(ChangeSet { cursor, missed: true, changes: Vec::new() }),
                "changes" => {
                    let topics: Vec<Topic> = serde_json::from_str(&event.data)
                        .map_err(|_| not_longshore(&self.api.url, "cannot parse an event".into()))?;
                    let changes = topics.into_iter().map(|topic| Change { seq: cursor, topic });
                    return Ok(ChangeSet { cursor, changes: changes.collect(), missed: false });
                }
                _ => {}
            }
        }
    }

    /// The next event; `None` if it does not arrive in time.
    async fn next_event(&mut self, until: Instant) -> Result<Option<DecodedEvent>, ApiError> {
        loop {
            if let Some(event) = self.decoder.next_event() {
                return Ok(Some(event));
            }
            if self.decoder.buffered() > MAX_EVENT_BYTES {
                return Err(not_longshore(&self.api.url, "an event is too large".into()));
            }
            let Ok(more) = tokio::time::timeout_at(until, self.response.chunk()).await else {
                return Ok(None);
            };
            match more.map_err(|error| ApiError::of(&self.api.url, error))? {
                Some(bytes) => self.decoder.push(&bytes),
                None => return Err(ApiError::StreamEnded { url: self.api.url.clone() }),
            }
        }
    }
}
