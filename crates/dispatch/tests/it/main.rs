//! Integration tests of dispatch.

#[cfg(test)]
mod admin;
#[cfg(test)]
mod boundary;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod local_socket;
#[cfg(test)]
mod pool;
#[cfg(test)]
mod pool_fixture;
#[cfg(test)]
mod silent_worker;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod systems;
#[cfg(test)]
mod wire;
