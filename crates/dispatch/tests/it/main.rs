//! Dispatch from outside.

#![expect(unreachable_pub, reason = "modules of one binary")]

#[cfg(test)]
mod kit;
#[cfg(test)]
mod pool;
#[cfg(test)]
mod systems;
#[cfg(test)]
mod wire;
