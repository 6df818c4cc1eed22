//! Longshore's bounded pools on Redis or Valkey.
//!
//! A permit is a lease: an entry of a sorted set with its expiry, by the server's clock. Each
//! operation is one script and so atomic, and may be repeated. No request blocks on the server:
//! waiters are queued there, and a message on a channel of their process tells them when to ask
//! again. Without a message they ask again after a while.
//!
//! The guarantees depend on what the server keeps. With an append-only file a restart loses nothing
//! (with `appendfsync everysec` a power failure may lose the last second). Without one, or on a
//! replica that was promoted to master, leases that are still valid may be lost: then nothing is
//! granted for the longest TTL, until they have expired. This also holds after `FLUSHALL`, as soon
//! as a client that knew the pool acquires or renews. A server that may evict any key is refused.

mod batched;
mod connection;
mod error;
mod inner;
mod notifications;
mod permits;
mod registry;
mod reply;
mod script;
mod server_info;
mod stats;

pub use permits::{RedisOptions, RedisPermits};
