//! Base systems: the same cases for each, on the real ones where they can be had.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod cases;
mod local;
mod lsf;
mod pbs;
mod place;
mod scripts;
mod sge;
mod slurm;
