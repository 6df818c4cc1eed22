//! Shares, caps and bounds with many tenants, claimers and senders at once.

longshore_testkit::fairness_suite!(crate::conformance::memory);
