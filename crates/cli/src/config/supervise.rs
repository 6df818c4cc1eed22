//! The schema of `[supervise]` and its workers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `[supervise]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SuperviseConfig {
    pub pid_file: String,
    pub recover: bool,
    pub start_time: String,
    pub start_failures: u32,
    pub start_window: String,
    pub restart_after: String,
    pub restart_most: String,
    pub version_file: String,
    pub settle: String,
    /// Supervised processes, by their names.
    pub workers: BTreeMap<String, SupervisedConfig>,
}

impl Default for SuperviseConfig {
    fn default() -> Self {
        Self {
            pid_file: "longshore-supervise.pid".into(),
            recover: false,
            start_time: "5s".into(),
            start_failures: 5,
            start_window: "5m".into(),
            restart_after: "1s".into(),
            restart_most: "1m".into(),
            version_file: String::new(),
            settle: "300s".into(),
            workers: BTreeMap::new(),
        }
    }
}

/// `[supervise.workers.NAME]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SupervisedConfig {
    pub command: Vec<String>,
    pub kinds: Vec<String>,
    pub queues: Vec<String>,
    pub slots: u32,
    pub dir: String,
    pub env: BTreeMap<String, String>,
    pub count: u32,
    pub min: u32,
    pub max: u32,
    pub max_memory: String,
    pub max_age: String,
    pub max_units: u64,
}

impl Default for SupervisedConfig {
    fn default() -> Self {
        Self {
            command: vec![],
            kinds: vec![],
            queues: vec![],
            slots: 0,
            dir: ".".into(),
            env: BTreeMap::new(),
            count: 0,
            min: 1,
            max: 0,
            max_memory: String::new(),
            max_age: "0s".into(),
            max_units: 0,
        }
    }
}
