//! Reads the server-sent events of the change feed.

use std::time::Duration;

use longshore::store::{Change, ChangeSet, Topic};
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
    buffer: Vec<u8>,
    cursor: u64,
}

impl ApiClient {
    /// Opens an event stream, from after `since` or from now on.
    pub async fn events(&self, since: Option<u64>) -> Result<Events, ApiError> {
        let request = self.build(&ApiRequest::new("events").query("since", since))?;
        let opened = tokio::time::timeout(RESPONSE_TIMEOUT, self.send_checked(request)).await;
        let response = opened
            .unwrap_or_else(|_| Err(not_longshore(&self.url, "it does not respond".into())))?;
        let (api, buffer, cursor) = (self.clone(), Vec::new(), since.unwrap_or_default());
        let mut events = Events { api, response, buffer, cursor };
        // The first event has the cursor.
        let until = Instant::now() + RESPONSE_TIMEOUT;
        let (block, missing) = (events.block(until).await?, "its event stream does not begin");
        let first = block.ok_or_else(|| not_longshore(&self.url, missing.into()))?;
        events.cursor = id(&first).ok_or_else(|| not_longshore(&self.url, missing.into()))?;
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
            let Some(block) = self.block(until).await? else {
                return Ok(ChangeSet { cursor: self.cursor, ..ChangeSet::default() });
            };
            self.cursor = id(&block).unwrap_or(self.cursor);
            let cursor = self.cursor;
            match field(&block, "event:") {
                Some("missed") => {
                    return Ok(ChangeSet { cursor, missed: true, changes: Vec::new() });
                }
                Some("changes") => {
                    let topics: Vec<Topic> = field(&block, "data:")
                        .and_then(|data| serde_json::from_str(data).ok())
                        .ok_or_else(|| {
                            not_longshore(&self.api.url, "cannot parse an event".into())
                        })?;
                    let changes = topics.into_iter().map(|topic| Change { seq: cursor, topic });
                    return Ok(ChangeSet { cursor, changes: changes.collect(), missed: false });
                }
                _ => {}
            }
        }
    }

    /// The next event's lines; `None` if it does not arrive in time.
    async fn block(&mut self, until: Instant) -> Result<Option<String>, ApiError> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                return Ok(Some(String::from_utf8_lossy(&block).into_owned()));
            }
            if self.buffer.len() > MAX_EVENT_BYTES {
                return Err(not_longshore(&self.api.url, "an event is too large".into()));
            }
            let Ok(more) = tokio::time::timeout_at(until, self.response.chunk()).await else {
                return Ok(None);
            };
            match more.map_err(|error| ApiError::of(&self.api.url, error))? {
                Some(bytes) => self.buffer.extend_from_slice(&bytes),
                None => return Err(ApiError::StreamEnded { url: self.api.url.clone() }),
            }
        }
    }
}

/// The cursor of an event.
fn id(block: &str) -> Option<u64> {
    field(block, "id:")?.parse().ok()
}

fn field<'b>(block: &'b str, name: &str) -> Option<&'b str> {
    block.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}
