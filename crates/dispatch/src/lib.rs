//! Runs scripts on persistent workers that Slurm, SGE, PBS, LSF, Kubernetes or this
//! machine started.
//!
//! A **base system** ([`system`]) starts jobs: single scripts, or the persistent workers of a pool.
//! A **pool** ([`server`], [`worker`]) hands scripts to its connected workers over TCP.

pub mod access;
pub mod client;
pub mod connection;
pub mod launch;
mod local_socket;
pub mod request;
pub mod scheduler;
pub mod script;
pub mod server;
pub mod stream;
pub mod system;
pub mod tls;
pub mod wire;
pub mod worker;
