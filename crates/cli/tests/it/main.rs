//! The binary as users and scripts see it: real processes on real stores.

#![expect(unreachable_pub, reason = "a test exports nothing")]

#[cfg(test)]
mod admin;
#[cfg(test)]
mod ai_fair_storm;
#[cfg(test)]
mod ai_fixture;
#[cfg(test)]
mod ai_replies;
#[cfg(test)]
mod ai_secrets;
#[cfg(test)]
mod ai_settings;
#[cfg(test)]
mod ai_worker;
#[cfg(test)]
mod alert_sinks;
#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod batch_command_storm;
mod batch_commands;
#[cfg(test)]
mod batch_completion;
#[cfg(test)]
mod batch_control;
#[cfg(test)]
mod batch_databases;
#[cfg(test)]
mod batch_examples;
#[cfg(test)]
mod batch_file_errors;
mod batch_inspect;
#[cfg(test)]
mod batch_interruption;
#[cfg(test)]
mod batch_job;
#[cfg(test)]
mod batch_million;
#[cfg(test)]
mod batch_operators;
#[cfg(test)]
mod batch_outage;
#[cfg(test)]
mod batch_overlap;
mod batch_profiles;
#[cfg(test)]
mod batch_storm;
#[cfg(test)]
mod batch_trials;
#[cfg(test)]
mod bounded_pools;
#[cfg(test)]
mod browser;
#[cfg(test)]
mod bulk;
#[cfg(test)]
mod compatibility;
#[cfg(test)]
mod complaints;
#[cfg(test)]
mod completions;
#[cfg(test)]
mod compose;
#[cfg(test)]
mod config;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod cron;
#[cfg(test)]
mod deploy;
#[cfg(test)]
mod digest;
#[cfg(test)]
mod digest_memory;
#[cfg(test)]
mod digest_pg;
#[cfg(test)]
mod digest_storm;
#[cfg(test)]
mod dispatch;
#[cfg(test)]
mod dispatch_clusters;
#[cfg(test)]
mod dispatch_commands;
#[cfg(test)]
mod doctor;
#[cfg(test)]
mod exec;
#[cfg(test)]
mod exhaustion;
#[cfg(test)]
mod external_workers;
#[cfg(test)]
mod fault_matrix;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod http;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod mail;
#[cfg(test)]
mod operator_kinds;
#[cfg(test)]
mod pg_batch_storm;
#[cfg(test)]
mod pg_storm;
#[cfg(test)]
mod pool_permits;
#[cfg(test)]
mod private_files;
#[cfg(test)]
mod profiles;
#[cfg(test)]
mod remote_commands;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod sending;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod serve_dispatch;
#[cfg(test)]
mod serve_storm;
#[cfg(test)]
mod signals;
#[cfg(test)]
mod slow_renderer;
#[cfg(test)]
mod snapshots;
#[cfg(test)]
mod submit_checks;
#[cfg(test)]
mod supervise;
#[cfg(test)]
mod supervise_refresh;
#[cfg(test)]
mod supervise_storm;
#[cfg(test)]
mod support;
#[cfg(test)]
mod takeover;
#[cfg(test)]
mod tenants;
#[cfg(test)]
mod top;
#[cfg(test)]
mod traces;
#[cfg(test)]
mod two_hosts;
#[cfg(test)]
mod usage;
