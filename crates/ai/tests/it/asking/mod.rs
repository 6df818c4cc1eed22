//! The desk: profiles, tries, fallbacks, budgets and books.

mod books;
mod bounds;
mod budgets;
mod events;
mod fallbacks;
mod profiles;
mod raw;
pub(crate) mod rig;
mod schemas;
mod suspended;
mod tries;
