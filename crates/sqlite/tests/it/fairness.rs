//! Weights, caps and capacities with many tenants, claimers and senders at once.

longshore_testkit::fairness_suite!(crate::helpers::fixture);
