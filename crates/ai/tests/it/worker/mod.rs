//! Requests from the queue, answered by a real worker: contract, errors, replies, crashes,
//! deadlines.

mod crashes;
mod deadlines;
mod duplicates;
mod errors;
mod fixture;
mod invalid_requests;
mod no_credit;
mod outages;
mod prompts;
mod rate_limit_waits;
mod replies;
