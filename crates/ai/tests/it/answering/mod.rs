//! Requests from the queue, answered by a real worker: contract, refusals, replies, crashes and ends.

mod crashes;
mod ends;
mod errors;
mod office;
mod once;
mod prompts;
mod refusals;
mod replies;
mod waiting;
