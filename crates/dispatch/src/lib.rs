//! Scripts on persistent workers that Slurm, SGE, PBS, LSF or this machine started.
//!
//! Two roles, two objects. A **base system** ([`system`]) starts jobs: scripts as they are, or the
//! persistent workers of a pool. A **pool** hands scripts to the workers that are there, over TCP.

pub mod access;
pub mod client;
pub mod launch;
pub mod link;
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
