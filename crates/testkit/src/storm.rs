//! A storm of processes on one pool: they take permits, give them back, give up, are killed and stopped,
//! while the pool is made larger and smaller and its server is restarted.
//!
//! A witness outside the pool counts. A process tells it before it asks, when it was given a permit, and
//! before it gives it back, and goes on when the witness has heard. So what the witness believes to be
//! held is held: for a lease from before the ask, whatever becomes of the process. It never has to
//! believe a pool's own figures or another process' clock.

mod books;
mod chance;
mod member;
mod report;
mod weather;
mod witness;

pub use chance::Chance;
pub use member::{Orders, member};
pub use report::Report;
pub use weather::{Member, Storm};
