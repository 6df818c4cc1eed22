//! What changes, as it changes: server-sent events, read one by one.

use std::time::Duration;

use longshore::store::{Change, ChangeSet, Topic};
use reqwest::Response;
use tokio::time::Instant;

use super::call::{Ask, odd};
use super::server::ANSWER;
use super::{ApiClient, ApiError};

/// Longest event: a server that sends more is none of ours.
const LONGEST: usize = 16 * 1024 * 1024;

/// An open line to the server's events.
pub struct Events {
    api: ApiClient,
    response: Response,
    read: Vec<u8>,
    cursor: u64,
}

impl ApiClient {
    /// Listens, from after `since` or from now on.
    pub async fn events(&self, since: Option<u64>) -> Result<Events, ApiError> {
        let request = self.request(&Ask::new("events").with("since", since))?;
        let opened = tokio::time::timeout(ANSWER, self.sent(request)).await;
        let response =
            opened.unwrap_or_else(|_| Err(odd(&self.url, "it does not answer".into())))?;
        let (api, read, cursor) = (self.clone(), Vec::new(), since.unwrap_or_default());
        let mut events = Events { api, response, read, cursor };
        // The first word says from where on it is.
        let until = Instant::now() + ANSWER;
        let (read, silent) = (events.block(until).await?, "its events do not begin");
        let first = read.ok_or_else(|| odd(&self.url, silent.into()))?;
        events.cursor = id(&first).ok_or_else(|| odd(&self.url, silent.into()))?;
        Ok(events)
    }
}

impl Events {
    /// Where it is.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// What changes next; nothing if that takes longer than `wait`. Safe to drop.
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
                        .ok_or_else(|| odd(&self.api.url, "an event makes no sense".into()))?;
                    let changes = topics.into_iter().map(|topic| Change { seq: cursor, topic });
                    return Ok(ChangeSet { cursor, changes: changes.collect(), missed: false });
                }
                _ => {}
            }
        }
    }

    /// The next block of lines; nothing if it does not come in time.
    async fn block(&mut self, until: Instant) -> Result<Option<String>, ApiError> {
        loop {
            if let Some(end) = self.read.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.read.drain(..end + 2).collect();
                return Ok(Some(String::from_utf8_lossy(&block).into_owned()));
            }
            if self.read.len() > LONGEST {
                return Err(odd(&self.api.url, "an event has no end".into()));
            }
            let Ok(more) = tokio::time::timeout_at(until, self.response.chunk()).await else {
                return Ok(None);
            };
            match more.map_err(|error| ApiError::of(&self.api.url, error))? {
                Some(bytes) => self.read.extend_from_slice(&bytes),
                None => return Err(ApiError::Ended { url: self.api.url.clone() }),
            }
        }
    }
}

/// Where an event is in the feed.
fn id(block: &str) -> Option<u64> {
    field(block, "id:")?.parse().ok()
}

fn field<'b>(block: &'b str, name: &str) -> Option<&'b str> {
    block.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}
