//! Longshore's bounded pools on Redis or Valkey.
//!
//! A permit is a lease: an entry of a sorted set with the time at which it runs out, by the server's
//! clock. Each verb is one script and so atomic, and each may be repeated. Nobody ever blocks on the
//! server: who waits stands in a line there, and is told through a channel of its process when it is
//! worth asking again. That is a hint; without it, it looks again after a while.
//!
//! What is promised depends on what the server remembers. With an append-only file a restart forgets
//! nothing (with `appendfsync everysec` a power failure may take the last second). Without one, or on a
//! replica that was made a master, leases that are still good may be forgotten: then nothing is given
//! until they have run out, one lease's length later. The same after `FLUSHALL`, as soon as somebody asks
//! or extends who knew the pool. A server that may evict any key at all is refused.

mod answer;
mod error;
mod gathered;
mod hints;
mod link;
mod permits;
mod pools;
mod script;
mod server;
mod shared;
mod stats;

pub use permits::{RedisOptions, RedisPermits};
