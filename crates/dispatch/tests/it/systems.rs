//! Base systems: the same cases for each, on real ones where available.

mod cases;
mod fixture;
mod kubernetes;
mod local;
mod lsf;
mod pbs;
mod scripts;
mod sge;
mod slurm;
