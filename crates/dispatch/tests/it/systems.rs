//! Base systems: the same cases for each, on the real ones where they can be had.

mod cases;
mod fixture;
mod local;
mod lsf;
mod pbs;
mod scripts;
mod sge;
mod slurm;
