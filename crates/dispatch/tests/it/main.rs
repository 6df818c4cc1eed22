//! Dispatch from outside.

#[cfg(test)]
mod beside;
#[cfg(test)]
mod kit;
#[cfg(test)]
mod operate;
#[cfg(test)]
mod pool;
#[cfg(test)]
mod silence;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod systems;
#[cfg(test)]
mod wire;
