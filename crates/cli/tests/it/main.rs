//! The binary as users and scripts meet it: real processes on real stores.

#![expect(unreachable_pub, reason = "a test exports nothing")]

#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod config;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod exec;
#[cfg(test)]
mod operate;
#[cfg(test)]
mod signals;
#[cfg(test)]
mod support;
